"""Temporal straightening (SD-JEPA, arXiv 2605.31111): latents of a window lie on a straight path.

G = mean of 1 - cos(z_{t+1} - z_t, z_{t+2} - z_{t+1})
"""

from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.cosine import cosine


def straightening(latents: Tensor) -> Tensor:
    """G: latents [B, T, D] -> scalar; 0 for a straight path, 2 for one that turns back at each step."""
    frames = check("latents", latents, "B T D", dtype="float")["T"]
    if frames < 3:
        raise ShapeError(f"straightening: expected at least 3 frames in a window, found {frames}")
    steps = latents.diff(dim=1)
    return (1 - cosine(steps[:, 1:], steps[:, :-1])).mean()
