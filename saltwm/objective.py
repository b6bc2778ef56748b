"""How the model learns: predictions of its own latents, and SIGReg against their collapse (eq. 10).

Other objectives put other terms in SIGReg's place; losses/ has them, with their table.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from saltwm.ground.checks import check, one_of
from saltwm.ground.config import ObjectiveConfig, ObjectiveName
from saltwm.ground.errors import ShapeError
from saltwm.losses.regulariser import Regulariser
from saltwm.losses.table import Seen
from saltwm.model.world_model import WorldModel


class Losses(NamedTuple):  # a named tuple, because Fabric looks into what a forward pass returns
    """One batch's losses, and the latents they were computed from."""

    total: Tensor
    """prediction + lambda * sigreg (eq. 10), scalar."""
    prediction: Tensor
    """Scalar."""
    terms: dict[str, Tensor]
    """What is added to it by name, scalars before their weights: `sigreg` alone in eq. 10."""
    latents: Tensor
    """Encoded frames [B, T, D]; not detached."""


def training_loss(
    model: WorldModel,
    frames: Tensor,
    action_blocks: Tensor,
    objective: ObjectiveConfig,
    projections: Tensor,
    regulariser: Regulariser | None = None,
) -> Losses:
    """The loss of eq. 10: frames uint8 [B, T, H, W, 3], raw action blocks [B, T-1, F], projections [D, M].

    A regulariser that learns is handed over; without one, a new one is made.
    """
    sizes = check("action blocks", action_blocks, "B N F", N=objective.window_blocks)
    check("frames", frames, "B T D" if frames.ndim == 3 else "B T H W 3", B=sizes["B"], T=sizes["N"] + 1)
    latents = model.latents_of(frames)
    conditions = model.condition(action_blocks)
    prediction = prediction_loss(model, latents, conditions, objective.objective, objective.starts)
    regulariser = regulariser or Regulariser(objective, model)
    terms = regulariser(Seen(latents, model.action_encoder.normalise(action_blocks), projections))
    total = prediction
    for name, term in terms.items():
        total = total + regulariser.weight(name) * term  # eq. 10
    return Losses(total, prediction, terms, latents)


# --- prediction ------------------------------------------------------------------------------------------------------


def prediction_loss(
    model: WorldModel, latents: Tensor, conditions: Tensor, objective: ObjectiveName, starts: int = 1
) -> Tensor:
    """The loss that `objective` names: latents [B, T, D], conditions [B, T-1, C] -> scalar."""
    one_of("objective", objective, ("rollout", "one-step"))
    if objective == "one-step":
        return one_step_loss(model, latents, conditions)
    return rollout_loss(model, latents, conditions, starts)


# Both are means over all elements, as the authors' code has it: the paper's squared norm divided by d.
# Gradients flow into the targets (Sec. 3.5).


def rollout_loss(model: WorldModel, latents: Tensor, conditions: Tensor, starts: int = 1) -> Tensor:
    """Mean squared error of predictions that are fed back: latents [B, T, D], conditions [B, T-1, C] -> scalar.

    With more than one start also from the next latents on, each rollout K = T - starts blocks long. A transition with
    memory starts from two latents where there are two; the first start remembers nothing, as a first decision does.
    """
    blocks = _blocks(latents, conditions)
    if not 1 <= starts <= blocks:
        raise ShapeError(f"starts: expected 1 to {blocks} in a window of {blocks + 1} frames, found {starts}")
    steps = blocks + 1 - starts
    if model.transition.start_latents == 1:
        first = latents[:, :starts].flatten(0, 1)[:, None]
        predictions = model.rollout(first, _runs_of(conditions, steps))
        return F.mse_loss(predictions, _runs_of(latents[:, 1:], steps))  # eq. 9
    if starts < 2:
        raise ShapeError("starts: rollouts of a transition with memory start from 2 latents, so expected 2, found 1")
    alone = model.rollout(latents[:, :1], conditions[:, :steps])
    others = model.rollout(_runs_of(latents[:, :starts], 2), _runs_of(conditions, steps + 1))
    targets = torch.cat([latents[:, 1 : 1 + steps], _runs_of(latents[:, 2:], steps)])
    return F.mse_loss(torch.cat([alone, others]), targets)  # eq. 9


def one_step_loss(model: WorldModel, latents: Tensor, conditions: Tensor) -> Tensor:
    """Mean squared error of predictions from encoded latents: latents [B, T, D], conditions [B, T-1, C] -> scalar."""
    _blocks(latents, conditions)
    predictions = model.transition.predict(latents[:, :-1], conditions)
    return F.mse_loss(predictions, latents[:, 1:])  # eq. 1


def _blocks(latents: Tensor, conditions: Tensor) -> int:
    """Action blocks of a window; ShapeError unless there is one latent more than conditions."""
    sizes = check("conditions", conditions, "B N C", dtype="float")
    check("latents", latents, "B T D", B=sizes["B"], T=sizes["N"] + 1, dtype="float")
    return sizes["N"]


def _runs_of(sequence: Tensor, length: int) -> Tensor:
    """Every run of `length` successive entries: [B, N, D] -> [B * (N - length + 1), length, D]."""
    return sequence.unfold(1, length, 1).transpose(2, 3).flatten(0, 1)
