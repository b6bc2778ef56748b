"""exp of a skew-symmetric matrix, with a backward pass that stays in the rotation group.

Torch differentiates matrix_exp through the exponential of a 2d x 2d block matrix: 50 ms for two 192 x 192 matrices on
one core, more than the rest of the transition. For Q = exp(K) with K skew,

    d exp(K)[E] = Q phi(-ad_K)[E],   ad_K E = K E - E K,   phi(x) = (e^x - 1) / x = sum_j x^j / (j+1)!

so that the gradient with respect to K is phi(ad_K) applied to the skew part of Q^T G: one d x d product per term,
because K S - S K = K S - (K S)^T for skew K and S. Large K are halved first: phi(2x) = phi(x) (1 + e^x) / 2, and
e^{ad_K} S = Q S Q^T.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGEST_NORM = 1.0
"""Spectral norm of K up to which the series is summed directly; its terms then fall from the start (2^j / (j+1)!)."""


def exp_skew(w: Tensor) -> Tensor:
    """Rotations exp(W - W^T): w [..., D, D] -> [..., D, D]."""
    return _ExpSkewRoots.apply(w - w.mT)[-1]


class _ExpSkewRoots(torch.autograd.Function):
    """exp(K / 2^m), ..., exp(K / 2), exp(K) for skew K [..., D, D] -> [m + 1, ..., D, D]; only the last may be used."""

    generate_vmap_rule = True  # so that torch.func can differentiate a transition with respect to its latents

    @staticmethod
    def forward(k: Tensor) -> Tensor:
        halvings = _halvings(k)
        roots = [torch.matrix_exp(k * 0.5**halvings)]
        for _ in range(halvings):
            roots.append(roots[-1] @ roots[-1])
        return torch.stack(roots)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        k, roots = ctx.saved_tensors
        total = _phi_ad(k * 0.5 ** (len(roots) - 1), _skew_part(roots[-1].mT @ gradient[-1]))
        for root in roots[:-1]:
            total = (total + root @ total @ root.mT) / 2
        return total


def _halvings(k: Tensor) -> int:
    """How often K must be halved for its spectral norm to be at most LARGEST_NORM."""
    # Eigenvalues of a skew matrix come in pairs +-i*lambda: both bounds hold, either may be the tighter one.
    one_norm = k.abs().sum(-2).amax()
    frobenius = k.square().sum((-2, -1)).amax().sqrt() / math.sqrt(2)
    bound = torch.minimum(one_norm, frobenius).item()
    return max(0, math.ceil(math.log2(bound / LARGEST_NORM))) if math.isfinite(bound) and bound > 0 else 0


def _phi_ad(k: Tensor, s: Tensor) -> Tensor:
    """phi(ad_K) S for skew K of spectral norm <= 1 and skew S, to the precision of the dtype."""
    total, term = s.clone(), s
    for j in range(1, TERMS[k.dtype]):
        product = k @ term
        term = (product - product.mT) / (j + 1)
        total += term
    return total


def _skew_part(m: Tensor) -> Tensor:
    return (m - m.mT) / 2


def _terms(dtype: torch.dtype) -> int:
    """Terms of the series until 2^j / (j+1)! is below half a unit in the last place."""
    j = 0
    while (2 * LARGEST_NORM) ** j / math.factorial(j + 1) > torch.finfo(dtype).eps / 2:
        j += 1
    return j


TERMS = {dtype: _terms(dtype) for dtype in (torch.float32, torch.float64)}
