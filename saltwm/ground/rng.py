"""The only source of randomness: a stream is a function of (seed, purpose, index), never hidden state.

Resuming then needs no generator state, and what one task or one episode draws does not depend on its neighbours,
on the number of workers or on what was drawn before.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Key = str | int


def derive(seed: int, *key: Key) -> int:
    """A 63-bit seed for the purpose named by `key`: equal keys give equal seeds, different keys unrelated ones."""
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in key)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *key: Key) -> np.random.Generator:
    """NumPy generator for the purpose named by `key`, e.g. stream(0, "episode", 17)."""
    return np.random.Generator(np.random.PCG64(derive(seed, *key)))


def torch_stream(seed: int, *key: Key) -> "torch.Generator":
    """Torch CPU generator for the purpose named by `key`; draw on the CPU, then move, to be equal on every device."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *key))
