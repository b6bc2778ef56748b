"""Cosines that have a finite gradient where a vector vanishes."""

from torch import Tensor

EPSILON = 1e-8
"""Added to a squared length: shorter vectors than 1e-4 have no direction."""


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between vectors: [..., D], [..., D] -> [...]; 0 where one of them is 0."""
    lengths = (a.square().sum(-1) + EPSILON) * (b.square().sum(-1) + EPSILON)
    return (a * b).sum(-1) / lengths.sqrt()
