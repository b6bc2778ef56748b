"""How the model learns: predictions of its own latents, and SIGReg against their collapse (eq. 10)."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from saltwm.ground.checks import check, one_of
from saltwm.ground.config import ObjectiveConfig, ObjectiveName
from saltwm.ground.errors import ShapeError
from saltwm.model.processes import process_count, sum_over_processes
from saltwm.model.world_model import WorldModel

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
    return Losses(prediction + objective.sigreg_weight * regularity, prediction, regularity, latents)


# --- prediction ------------------------------------------------------------------------------------------------------


def prediction_loss(
    model: WorldModel, latents: Tensor, conditions: Tensor, objective: ObjectiveName, starts: int = 1
) -> Tensor:
    """Mean squared error of the predictions: latents [B, T, D], conditions [B, T-1, D] -> scalar.

    rollout: predictions are fed back from the first latent on (eq. 9); with more than one start also from the next
    ones on, each rollout K = T - starts blocks long. one-step: each is made from encoded latents (eq. 1), once however
    many starts there are. Both predict the same targets, and gradients flow into the targets (Sec. 3.5).
    """
    one_of("objective", objective, ("rollout", "one-step"))
    sizes = check("conditions", conditions, "B N C", dtype="float")
    check("latents", latents, "B T D", B=sizes["B"], T=sizes["N"] + 1, dtype="float")
    if not 1 <= starts <= sizes["N"]:
        raise ShapeError(f"starts: expected 1 to {sizes['N']} in a window of {sizes['N'] + 1} frames, found {starts}")
    # Means over all elements, as the authors' code has it: the paper's squared norm divided by d.
    if objective == "one-step":
        return F.mse_loss(model.transition.predict(latents[:, :-1], conditions), latents[:, 1:])
    steps = sizes["N"] + 1 - starts
    predictions = model.rollout(latents[:, :starts].flatten(0, 1)[:, None], _runs_of(conditions, steps))
    return F.mse_loss(predictions, _runs_of(latents[:, 1:], steps))


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
        sums = sum_over_processes(_CharacteristicSums.apply(x, LARGEST_KNOT / (knots - 1), knots))  # [2, knots, T M]
        samples = _global_batch(x)
        real, imaginary = sums / samples
        distance = (real - gaussian[:, None]).square() + imaginary.square()
        return samples * ((weights * gaussian) @ distance).mean()


def _global_batch(x: Tensor) -> float | Tensor:
    """Samples over all processes."""
    return sum_over_processes(x.new_full((), len(x))) if process_count() > 1 else float(len(x))


class _CharacteristicSums(torch.autograd.Function):
    """Sums over the batch of cos(t_k x) and sin(t_k x) at t_k = k * step: x [B, P] -> [2, knots, P].

    The knots are equidistant, so one cosine and one sine per sample are enough: the others follow from
    cos(k a) = 2 cos(a) cos((k-1) a) - cos((k-2) a), and alike for sines. The gradient is a trigonometric polynomial in
    a = step * x, which Clenshaw's recurrence sums in the same way. Terms are kept with the signs +, +, -, -, ...: each
    step of a recurrence is then one multiply-add in place. 8 times faster than evaluating [B, P, knots], and without
    that much memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float, knots: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.step, ctx.knots = step, knots
        sums = x.new_empty(2, knots, x.shape[1])
        for block in _column_blocks(x):
            angle = x[:, block] * step
            cosine, sine = angle.cos(), angle.sin()
            _sum_multiples(cosine, torch.ones_like(cosine), cosine, sums[0, :, block])
            _sum_multiples(cosine, torch.zeros_like(sine), sine, sums[1, :, block])
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        # d/dx of sum_k g_k cos(k a) + h_k sin(k a) is sum_k t_k (h_k cos(k a) - g_k sin(k a)).
        t = torch.arange(ctx.knots, dtype=x.dtype, device=x.device).view(-1, 1) * ctx.step
        of_cosine, of_sine = t * gradient[1], -t * gradient[0]
        slope = torch.empty_like(x)
        for block in _column_blocks(x):
            angle = x[:, block] * ctx.step
            cosine, sine = angle.cos(), angle.sin()
            first, second = _clenshaw(cosine, of_cosine[:, block])
            first_of_sine, _ = _clenshaw(cosine, of_sine[:, block])
            slope[:, block] = of_cosine[0, block] + cosine * first - second + sine * first_of_sine
        return slope, None, None


def _sum_multiples(cosine: Tensor, zeroth: Tensor, first: Tensor, sums: Tensor) -> None:
    """Batch sums of cos(k a) or sin(k a) into sums [knots, P], from the terms k = 0 and 1, [B, P] each."""
    twice = 2 * cosine
    before, now = zeroth, first.clone()
    torch.sum(before, 0, out=sums[0])
    torch.sum(now, 0, out=sums[1])
    for k in range(2, len(sums)):
        before, now = now, before.addcmul_(twice, now, value=_sign(k) * _sign(k - 1))
        torch.mul(now.sum(0), _sign(k), out=sums[k])


def _clenshaw(cosine: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """b_1 and b_2 of b_k = coefficients_k + 2 cos(a) b_{k+1} - b_{k+2}: cos a [B, P], [knots, P] -> [B, P] twice.

    sum_k coefficients_k sin(k a) = b_1 sin(a), and sum_k coefficients_k cos(k a) = coefficients_0 + b_1 cos(a) - b_2.
    """
    twice = 2 * cosine
    after, now = torch.zeros_like(cosine), torch.zeros_like(cosine)
    for k in range(len(coefficients) - 1, 0, -1):
        after.addcmul_(twice, now, value=_sign(k) * _sign(k + 1)).add_(coefficients[k], alpha=_sign(k))
        after, now = now, after
    return now, -after  # _sign(1) = 1, _sign(2) = -1


def _sign(k: int) -> int:
    """Signs +, +, -, -, repeating: two steps on, the sign has changed."""
    return -1 if k % 4 in (2, 3) else 1


def _column_blocks(x: Tensor) -> list[slice]:
    """Columns of x [B, P] in blocks of half a megabyte, near a core's cache; all at once on an accelerator."""
    columns = x.shape[1]
    width = max(64, 2**17 // max(1, len(x))) if x.device.type == "cpu" else columns
    return [slice(start, min(start + width, columns)) for start in range(0, columns, width)]


# --- a monitor of collapse -------------------------------------------------------------------------------------------


@torch.no_grad()
def effective_rank(latents: Tensor) -> float:
    """Number of directions that latents [N, D] use: the exponential of their covariance spectrum's entropy, 1 to D."""
    check("latents", latents, "N D", dtype="float")
    centred = (latents - latents.mean(0)).double()
    spectrum = torch.linalg.eigvalsh(centred.mT @ centred).clamp(min=0)
    total = spectrum.sum()
    if total == 0:
        return 1.0
    share = spectrum / total
    return math.exp(-torch.special.xlogy(share, share).sum().item())
