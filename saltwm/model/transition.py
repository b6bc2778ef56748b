"""What every transition offers, so that nobody has to ask which one they hold."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.model import own
from saltwm.model.actions import ActionEncoder
from saltwm.model.exportable import LastPrediction

if TYPE_CHECKING:
    from saltwm.model.folded import FoldedAffine

FastRollout = Callable[[Tensor, Tensor, Tensor], Tensor]
"""One task's history [W, D], past conditions [W-1, C] and normalised plans [S, H, A] -> z_H [S, D]."""


class Transition(nn.Module, abc.ABC):
    """F: latents and action conditions to next latents, looking back at most `window` latents.

    A new one has `_predict` and `_rollout`, and a row in `traits.TRANSITIONS`; the rest is there for all.
    """

    window: int = 1
    start_latents: int = 1
    """Latents that a training rollout starts from, where there are as many."""
    has_matrix: bool = False
    """Whether it is affine in the state: `matrix` and `folded` are there, and Gauss-Newton can plan with it."""
    named_as: str | None = None
    """module:Class of a user's own."""

    def __init__(self, dim: int, condition_dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.condition_dim = condition_dim

    def predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """One-step predictions from encoded latents: latents [B, T, D], conditions [B, T, C] -> [B, T, D].

        The prediction at t sees the latents t-window+1 .. t, as many of them as there are.
        """
        sizes = check("latents", latents, "B T D", D=self.dim, dtype="float")
        check("conditions", conditions, "B T C", B=sizes["B"], T=sizes["T"], C=self.condition_dim, dtype="float")
        _at_least("latents", "T", sizes["T"], 1)
        return self._checked(self._predict, latents, conditions, sizes["T"])

    def rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        """Predictions fed back: history [B, W, D], 1 <= W <= window, conditions [B, W-1+K, C] -> [B, K, D].

        conditions[:, i] belongs to history[:, i]; those that follow belong to the predictions.
        """
        sizes = check("history", history, "B W D", D=self.dim, dtype="float")
        found = check("conditions", conditions, "B K C", B=sizes["B"], C=self.condition_dim, dtype="float")
        if not 1 <= sizes["W"] <= self.window:
            raise ShapeError(f"history: expected 1 to {self.window} latents of history, found {sizes['W']}")
        _at_least("conditions", f"{sizes['W']}-1+K", found["K"], sizes["W"])
        return self._checked(self._rollout, history, conditions, found["K"] - sizes["W"] + 1)

    def _checked(self, step: Callable[[Tensor, Tensor], Tensor], z: Tensor, c: Tensor, count: int) -> Tensor:
        """What a step predicts [B, count, D]; a loss would broadcast any other shape."""
        with own.errors_in_one_line(self):
            predicted = step(z, c)
        what = f"{self.named_as or type(self).__name__}: {step.__name__}"
        check(what, predicted, "B K D", B=len(z), K=count, D=self.dim)
        return predicted

    @abc.abstractmethod
    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor: ...

    # --- for planning ------------------------------------------------------------------------------------------------

    def fast_rollout(self, encoder: ActionEncoder) -> FastRollout:
        """The last latent of one task's plans, without gradients: the plain rollout, unless there is a faster way."""

        @torch.no_grad()
        def last_latent(history: Tensor, past: Tensor, plans: Tensor) -> Tensor:
            return self.last_latent(encoder, history, past, plans)

        return last_latent

    def last_latent(self, encoder: ActionEncoder, history: Tensor, past: Tensor, plans: Tensor) -> Tensor:
        """z_H [S, D] of one task by the plain and differentiable rollout; shapes as in FastRollout."""
        future = encoder.encode_normalised(plans)
        past, history = past.expand(len(plans), -1, -1), history.expand(len(plans), -1, -1)
        return self.rollout(history, torch.cat([past, future], dim=1))[:, -1]

    def folded(self, encoder: ActionEncoder) -> "FoldedAffine":
        """A state-affine transition rearranged for planning; UsageError for any other."""
        raise UsageError("this transition is not affine in its state; plan with cem, icem or mppi")

    def exportable(self) -> nn.Module:
        """A module in operations that other runtimes know: latents, conditions [N, T, D] -> the next latent [N, D]."""
        return LastPrediction(self)

    # --- for analysis ------------------------------------------------------------------------------------------------

    def base_matrix(self) -> Tensor | None:
        """A0 [D, D], where there is one."""
        return None

    def matrix(self, c: Tensor) -> Tensor:
        """A(c) [B, D, X] of a state-affine transition: c [B, C]; UsageError for any other."""
        raise UsageError("this transition is not affine in its state and has no matrix A(c)")

    def next_latent(self, history: Tensor, conditions: Tensor) -> Tensor:
        """The prediction after a whole history, to be differentiated: [B, W, D], conditions [B, W, C] -> [B, D]."""
        return self.predict(history, conditions)[:, -1]

    def history_jacobians(self, history: Tensor, conditions: Tensor) -> Tensor | None:
        """The next latent's derivatives by each of history [B, W, D], conditions [B, W, C] -> [B, W, D, D], if known.

        None where they depend on the state and must be differentiated.
        """
        return None


def _at_least(name: str, letter: str, found: int, least: int) -> None:
    if found < least:
        raise ShapeError(f"{name}: expected {letter} >= {least}, found {found}")
