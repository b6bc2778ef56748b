"""How the model learns: predictions of its own latents, and SIGReg against their collapse (eq. 10)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from saltwm.ground.checks import check, one_of
from saltwm.ground.config import ObjectiveConfig, ObjectiveName
from saltwm.ground.errors import ShapeError
from saltwm.model.processes import process_count, sum_over_processes
from saltwm.model.world_model import WorldModel
from saltwm.sigreg_kernel import characteristic_sums

LARGEST_KNOT = 3.0  # SIGReg's integral runs over [-3, 3]


class Losses(NamedTuple):  # a named tuple, because Fabric looks into what a forward pass returns
    """One batch's losses, and the latents they were computed from."""

    total: Tensor
    """prediction + lambda * sigreg (eq. 10), scalar."""
    prediction: Tensor
    """Scalar."""
    sigreg: Tensor
    """Scalar, before its weight lambda."""
    latents: Tensor
    """Encoded frames [B, T, D]; not detached."""


def training_loss(
    model: WorldModel, frames: Tensor, action_blocks: Tensor, objective: ObjectiveConfig, projections: Tensor
) -> Losses:
    """The loss of eq. 10: frames uint8 [B, T, H, W, 3], raw action blocks [B, T-1, F], projections [D, M]."""
    sizes = check("action blocks", action_blocks, "B N F", N=objective.window_blocks)
    check("frames", frames, "B T H W 3", B=sizes["B"], T=sizes["N"] + 1)
    latents = model.encode(frames)
    conditions = model.condition(action_blocks)
    prediction = prediction_loss(model, latents, conditions, objective.objective, objective.starts)
    regularity = sigreg(latents, projections, objective.sigreg_knots)
    total = prediction + objective.sigreg_weight * regularity  # eq. 10
    return Losses(total, prediction, regularity, latents)


# --- prediction ------------------------------------------------------------------------------------------------------


def prediction_loss(
    model: WorldModel, latents: Tensor, conditions: Tensor, objective: ObjectiveName, starts: int = 1
) -> Tensor:
    """The loss that `objective` names: latents [B, T, D], conditions [B, T-1, D] -> scalar."""
    one_of("objective", objective, ("rollout", "one-step"))
    if objective == "one-step":
        return one_step_loss(model, latents, conditions)
    return rollout_loss(model, latents, conditions, starts)


# Both are means over all elements, as the authors' code has it: the paper's squared norm divided by d.
# Gradients flow into the targets (Sec. 3.5).


def rollout_loss(model: WorldModel, latents: Tensor, conditions: Tensor, starts: int = 1) -> Tensor:
    """Mean squared error of predictions that are fed back: latents [B, T, D], conditions [B, T-1, D] -> scalar.

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
    """Mean squared error of predictions from encoded latents: latents [B, T, D], conditions [B, T-1, D] -> scalar."""
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


# --- SIGReg ----------------------------------------------------------------------------------------------------------


def draw_projections(dim: int, count: int, generator: torch.Generator) -> Tensor:
    """Random unit directions [dim, count]; drawn on the CPU, so that every device and process has the same."""
    return F.normalize(torch.randn(dim, count, generator=generator), dim=0)


def sigreg(latents: Tensor, projections: Tensor, knots: int = 17) -> Tensor:
    """Distance of the latents' distribution from N(0, I): latents [B, T, D], unit projections [D, M] -> scalar.

    Epps and Pulley's statistic of each frame's projections over the batch of all processes:
    N * integral over [-3, 3] of |mean exp(i t x) - exp(-t^2 / 2)|^2 exp(-t^2 / 2) dt, averaged over frames and
    projections.
    """
    sizes = check("latents", latents, "B T D", dtype="float")
    check("projections", projections, "D M", D=sizes["D"], dtype="float")
    if knots < 2:
        raise ShapeError(f"SIGReg: expected at least 2 knots, found {knots}")
    with torch.autocast(latents.device.type, enabled=False):
        x = (latents.to(projections.dtype) @ projections).flatten(1)  # [B, T M]
        t = torch.linspace(0, LARGEST_KNOT, knots, dtype=x.dtype, device=x.device)
        gaussian = torch.exp(-t.square() / 2)
        weights = torch.full_like(t, 2 * LARGEST_KNOT / (knots - 1))  # trapezoids, both halves of the integral
        weights[[0, -1]] /= 2
        sums = sum_over_processes(characteristic_sums(x, LARGEST_KNOT / (knots - 1), knots))  # [2, knots, T M]
        samples = _global_batch(x)
        real, imaginary = sums / samples
        distance = (real - gaussian[:, None]).square() + imaginary.square()
        return samples * ((weights * gaussian) @ distance).mean()


def _global_batch(x: Tensor) -> float | Tensor:
    """Samples over all processes."""
    return sum_over_processes(x.new_full((), len(x))) if process_count() > 1 else float(len(x))
