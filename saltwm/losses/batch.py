"""The batch of all processes, of which each holds an equal share."""

from torch import Tensor

from saltwm.model.processes import process_count, sum_over_processes


def global_count(latents: Tensor) -> int:
    """Windows over all processes: latents [B, ...]."""
    return len(latents) * process_count()


def centred(latents: Tensor) -> Tensor:
    """Latents [B, ...] without their mean over the batch of all processes."""
    return latents - sum_over_processes(latents.sum(0)) / global_count(latents)
