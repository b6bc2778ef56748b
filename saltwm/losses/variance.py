"""Variance hinges (VICReg's, as PLDM uses them): every coordinate of the latent spreads by at least 1.

    V   = mean over frames and coordinates of relu(1 - sqrt(var over the batch + 1e-4))
    V_t = the same hinge with the variance over time inside a window

Both use the unbiased variance. PLDM on LeWM's backbone takes V_t of latents whose mean over the batch is removed first.
"""

import torch
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.batch import centred, global_count
from saltwm.model.processes import sum_over_processes

EPSILON = 1e-4
"""Inside the root, so that latents of no variance have a finite gradient."""


def variance(latents: Tensor) -> Tensor:
    """V over the batch of all processes: latents [B, T, D] -> scalar."""
    check("latents", latents, "B T D", dtype="float")
    count = global_count(latents)
    if count < 2:
        raise ShapeError(f"variance: expected at least 2 windows in a batch, found {count}")
    return _hinge(sum_over_processes(centred(latents).square().sum(0)) / (count - 1))


def variance_over_time(latents: Tensor) -> Tensor:
    """V_t of each window, averaged: latents [B, T, D] -> scalar."""
    if check("latents", latents, "B T D", dtype="float")["T"] < 2:
        raise ShapeError("variance over time: expected at least 2 frames in a window, found 1")
    return _hinge(centred(latents).var(dim=1))


def _hinge(variances: Tensor) -> Tensor:
    return torch.relu(1 - torch.sqrt(variances + EPSILON)).mean()
