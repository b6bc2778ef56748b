"""Where a model plans, encodes or is measured: on the CPU or an accelerator. Training asks Fabric (launch)."""

import os
from typing import TYPE_CHECKING

from saltwm.ground.errors import UsageError
from saltwm.processes.pool import WORKER_NUMBER

if TYPE_CHECKING:
    import torch


def accelerator() -> "torch.device | None":
    """The kind of accelerator that this machine has."""
    import torch

    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def device_named(word: str) -> str:
    """The device that a person means, as records have it; UsageError for one that this machine lacks."""
    if word == "cpu":  # the usual one, for which nobody waits for torch
        return word
    import torch

    here = accelerator()
    if word == "auto":
        return "cpu" if here is None else here.type
    try:
        wanted = here if word == "gpu" and here is not None else torch.device(word)
    except RuntimeError as error:
        raise UsageError(
            f"device {word!r}: expected cpu, auto, gpu, or an accelerator in torch's words, such as cuda, cuda:1 or mps"
        ) from error
    found = "no accelerator" if here is None else f"{torch.accelerator.device_count()} x {here.type}"
    is_one = here is not None and wanted.type == here.type and (wanted.index or 0) < torch.accelerator.device_count()
    if wanted.type != "cpu" and not is_one:
        raise UsageError(f"device {word!r}: this machine has {found}", remedy="examine")
    return "cpu" if wanted.type == "cpu" else str(wanted)


def device_of_worker(word: str) -> "torch.device":
    """The device of that name; of several of its kind, each worker of a pool takes another one in turn."""
    import torch

    wanted = torch.device(device_named(word))
    if wanted.type == "cpu" or wanted.index is not None:
        return wanted
    return torch.device(wanted.type, int(os.environ.get(WORKER_NUMBER, "0")) % torch.accelerator.device_count())
