"""Sums over all training processes that gradients flow back through.

Convention, the same for batch normalisation and SIGReg: every process holds its own loss, the loss that is meant is
their mean, and the trainer averages gradients (as DistributedDataParallel does). Torch's own differentiable
all-reduce is deprecated in 2.13.
"""

from typing import Any

import torch
from torch import Tensor, distributed


def process_count() -> int:
    """Training processes that share a batch; 1 unless torch.distributed is initialised."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def sum_over_processes(x: Tensor) -> Tensor:
    """Sum of every process's x, known to all of them: [...] -> [...]; x itself on one process."""
    return _SumOverProcesses.apply(x) if process_count() > 1 else x


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # Each process's loss depends on the sum, so each x collects the gradients of all of them.
        return sum_over_processes(gradients[0])


def process_rank() -> int:
    """Which of the training processes this is, from 0."""
    return distributed.get_rank() if process_count() > 1 else 0


def of_all_processes(x: Tensor) -> Tensor:
    """The equal shares of all processes in their order: [B, ...] -> [processes * B, ...]; x itself on one process."""
    if process_count() == 1:
        return x
    shares = [x if rank == process_rank() else torch.zeros_like(x) for rank in range(process_count())]
    return sum_over_processes(torch.cat(shares))
