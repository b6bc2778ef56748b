"""Stretches: pieces of episodes that a model is measured on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saltwm.disk.dataset import Dataset

CONTEXT = 3
"""True frames before the first prediction, for every model: the common interface (App. C.5). SALT sees the last one."""


@dataclass(frozen=True)
class Stretches:
    """N pieces of episodes: K+1 frames and the K action blocks between them."""

    episodes: NDArray[np.int64]
    """[N]"""
    starts: NDArray[np.int64]
    """[N], step of the first frame"""
    frames: NDArray[np.uint8]
    """[N, K + 1, H, W, 3]"""
    blocks: NDArray[np.float32]
    """[N, K, frameskip * A]"""


def read_stretches(
    dataset: Dataset, long_enough: NDArray[np.int64], blocks: int, skip: int, count: int, rng: np.random.Generator
) -> Stretches:
    """Stretches of `blocks` action blocks at random places of random episodes, each of another one if there are enough.

    Every episode of `long_enough` has at least blocks * skip steps.
    """
    episodes = rng.choice(long_enough, count, replace=count > len(long_enough))
    last_starts = (dataset.lengths[episodes] - blocks * skip) // dataset.frame_every
    starts = rng.integers(0, last_starts + 1) * dataset.frame_every
    steps = starts[:, None] + skip * np.arange(blocks + 1)
    frames = dataset.read_frames(np.repeat(episodes, blocks + 1), steps.flatten())
    actions = np.stack(
        [
            dataset.actions(episode)[start : start + blocks * skip].reshape(blocks, -1)
            for episode, start in zip(episodes.tolist(), starts.tolist(), strict=True)
        ]
    )
    return Stretches(episodes, starts, frames.reshape(count, blocks + 1, *frames.shape[1:]), actions)
