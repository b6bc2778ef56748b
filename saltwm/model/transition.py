"""What both transitions offer, so that nobody has to ask which one they hold."""

import abc

from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError


class Transition(nn.Module, abc.ABC):
    """F: latents and action conditions to next latents, looking back at most `window` latents."""

    window: int

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
        return self._predict(latents, conditions)

    def rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        """Predictions fed back: history [B, W, D], 1 <= W <= window, conditions [B, W-1+K, C] -> [B, K, D].

        conditions[:, i] belongs to history[:, i]; those that follow belong to the predictions.
        """
        sizes = check("history", history, "B W D", D=self.dim, dtype="float")
        found = check("conditions", conditions, "B K C", B=sizes["B"], C=self.condition_dim, dtype="float")
        if not 1 <= sizes["W"] <= self.window:
            raise ShapeError(f"history: expected 1 to {self.window} latents of history, found {sizes['W']}")
        _at_least("conditions", f"{sizes['W']}-1+K", found["K"], sizes["W"])
        return self._rollout(history, conditions)

    @abc.abstractmethod
    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor: ...


def _at_least(name: str, letter: str, found: int, least: int) -> None:
    if found < least:
        raise ShapeError(f"{name}: expected {letter} >= {least}, found {found}")
