"""Runs alone in a child process of pt_file: a .pt file in, a safetensors file out, or one line that says why not.

A .pt file is a pickle. Torch's weights-only reader admits tensors and plain containers; should a file get past it, or
ask for more memory than there is, it meets this process and its limits, not the user's. There is no second attempt
with a more trusting reader. This file imports nothing of saltwm, so that it can be run by its path.
"""

import resource
import sys
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

CPU_SECONDS = 60
WRAPPERS = ("state_dict", "model")
MOST_WRAPPERS = 3


def main(source: str, target: str, memory: int) -> None:
    """Read `source`, write `target`; exit status 1 and a line "refused: ..." on standard error if it cannot be."""
    limit(memory)
    try:
        loaded = torch.load(source, map_location="cpu", weights_only=True)
        save_file(plain_tensors(unwrap(loaded), memory), target)
    except Exception as error:  # whatever a hostile file provokes is one and the same answer
        sys.exit(f"refused: {reason(error)}")


def limit(memory: int) -> None:
    """No core file, a bounded output, bounded time, and `memory` bytes more than this process holds already."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    if sys.platform == "linux":  # elsewhere the address space cannot be limited; the time still is
        with open("/proc/self/statm", encoding="ascii") as file:
            held = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + memory, held + memory))


def unwrap(loaded: Any) -> dict[Any, Any]:
    """The state dict inside {"state_dict": ...} and {"model": ...}."""
    for _ in range(MOST_WRAPPERS):
        if not isinstance(loaded, dict):
            break
        inner = [loaded[key] for key in WRAPPERS if isinstance(loaded.get(key), dict)]
        if not inner:
            return loaded
        loaded = inner[0]
    raise ValueError(f"expected named tensors, found {type(loaded).__name__}")


def plain_tensors(named: dict[Any, Any], memory: int) -> dict[str, Tensor]:
    """Dense copies on the CPU; a view may claim more elements than its file has bytes, so sizes are added up first."""
    for name, value in named.items():
        if not isinstance(name, str) or not name.isprintable() or not isinstance(value, Tensor):
            raise ValueError(f"{name!r:.80}: expected a named tensor, found {type(value).__name__}")
        if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
            raise ValueError(f"{name!r:.80}: not a dense tensor of numbers")
    total = sum(tensor.numel() * tensor.element_size() for tensor in named.values())
    if total > memory:
        raise ValueError(f"its tensors would fill {total} bytes")
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in named.items()}


def reason(error: Exception) -> str:
    """One line of an error; of torch's page of advice, only what the weights-only reader objected to."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    objection = [line for line in lines if "WeightsUnpickler error" in line]
    return (objection or lines)[0].split(". Please use")[0].strip()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
