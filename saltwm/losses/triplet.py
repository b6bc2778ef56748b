"""Progression triplet (SD-JEPA, arXiv 2605.31111): neighbours in time are alike, other windows are not.

    P = mean of relu(cos(a, n) - cos(a, p) + margin)

a is the frame T // 2, p the frame after it, n the frame T // 2 of the window before it in the batch, the last window's
for the first.
"""

import torch
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.batch import global_count
from saltwm.losses.cosine import cosine
from saltwm.model.processes import of_all_processes, process_rank


def progression_triplet(latents: Tensor, margin: float = 0.2) -> Tensor:
    """P over the batch of all processes: progression coordinates [B, T, D] -> scalar."""
    frames = check("latents", latents, "B T D", dtype="float")["T"]
    if frames < 3:
        raise ShapeError(f"triplet: expected at least 3 frames in a window, found {frames}")
    if global_count(latents) < 2:
        raise ShapeError("triplet: expected at least 2 windows in a batch, found 1")
    middle, share = frames // 2, len(latents)
    anchor, positive = latents[:, middle], latents[:, middle + 1]
    first = process_rank() * share
    negative = of_all_processes(anchor).roll(1, dims=0)[first : first + share]
    return torch.relu(cosine(anchor, negative) - cosine(anchor, positive) + margin).mean()
