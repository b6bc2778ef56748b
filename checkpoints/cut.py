"""Write the first episodes of each held-out dataset into checkpoints/small, for the wheel: python checkpoints/cut.py.

Episode i is a function of the seed and i, so this is what collecting so few of them would give.
"""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from saltwm.disk import dataset_writer as parts
from saltwm.disk import durable, layout
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import Episode

HERE = Path(__file__).resolve().parent
EPISODES = {"two-room": 40, "push-t": 32, "reacher": 20, "cube": 6}


def cut(source: Path, out: Path, episodes: int) -> None:
    """The first `episodes` of a dataset, in one part."""
    dataset = Dataset.open(source)
    recipe = dataclasses.replace(dataset.recipe, episodes=episodes, episodes_per_part=episodes)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    durable.write_config(out / layout.RECIPE_FILE, recipe)
    parts.write_part(out, recipe, 0, [episode(dataset, index) for index in range(episodes)])
    parts.finish(out, recipe)


def episode(dataset: Dataset, index: int) -> Episode:
    """One of its episodes."""
    steps = np.arange(0, dataset.lengths[index] + 1, dataset.frame_every)
    frames = dataset.read_frames(np.full(len(steps), index), steps)
    return Episode(frames, dataset.actions(index), dataset.states(index))


if __name__ == "__main__":
    for name, count in EPISODES.items():
        cut(HERE / f"{name}-data", HERE / "small" / f"{name}-data", count)
