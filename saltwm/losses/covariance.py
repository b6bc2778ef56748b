"""Covariance penalties (VICReg's, as PLDM uses them): no coordinate of the latent repeats another.

    C   = mean over frames of sum_{i != j} Cov_ij^2 / (D (D - 1)),      Cov over the batch
    C_t = the same with the covariance over time inside a window, averaged over windows

Both use the unbiased covariance. PLDM on LeWM's backbone takes C_t of latents whose mean over the batch is removed
first.
"""

import torch
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.batch import centred, global_count
from saltwm.model.processes import sum_over_processes


def covariance(latents: Tensor) -> Tensor:
    """C over the batch of all processes: latents [B, T, D] -> scalar."""
    check("latents", latents, "B T D", dtype="float")
    count = global_count(latents)
    if count < 2:
        raise ShapeError(f"covariance: expected at least 2 windows in a batch, found {count}")
    with torch.autocast(latents.device.type, enabled=False):
        x = centred(latents).movedim(0, 1)  # [T, B, D]
        return _off_diagonal(sum_over_processes(x.mT @ x) / (count - 1))


def covariance_over_time(latents: Tensor) -> Tensor:
    """C_t of each window, averaged: latents [B, T, D] -> scalar."""
    steps = check("latents", latents, "B T D", dtype="float")["T"]
    if steps < 2:
        raise ShapeError("covariance over time: expected at least 2 frames in a window, found 1")
    with torch.autocast(latents.device.type, enabled=False):
        x = centred(latents)
        x = x - x.mean(dim=1, keepdim=True)
        return _off_diagonal(x.mT @ x / (steps - 1))


def _off_diagonal(matrices: Tensor) -> Tensor:
    """Mean square of the entries beside the diagonal: [N, D, D] -> scalar."""
    dim = matrices.shape[-1]
    if dim < 2:
        raise ShapeError("covariance: expected latents of at least 2 numbers, found 1")
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    return ((matrices.square().sum((-2, -1)) - diagonal.square().sum(-1)) / (dim * (dim - 1))).mean()
