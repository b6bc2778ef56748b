"""Temporal similarity (PLDM): successive latents are near each other.

S = mean (z_{t+1} - z_t)^2
"""

import torch.nn.functional as F
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError


def similarity(latents: Tensor) -> Tensor:
    """S, a mean over all elements: latents [B, T, D] -> scalar."""
    if check("latents", latents, "B T D", dtype="float")["T"] < 2:
        raise ShapeError("temporal similarity: expected at least 2 frames in a window, found 1")
    return F.mse_loss(latents[:, 1:], latents[:, :-1])
