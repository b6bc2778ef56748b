"""Which episodes count as held out, and whether a run may have been trained on them all the same."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saltwm.data.windows import held_out_episodes
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import TaskSet
from saltwm.ground.config import TrainConfig

if TYPE_CHECKING:
    from saltwm.disk.checkpoint import CheckpointInfo  # torch, which an evaluation of the random policy does without

Source = dict[str, str | int]
"""A dataset's, from its recipe."""


def held_out(dataset: Dataset) -> NDArray[np.int64]:
    """Episodes that tasks and diagnoses take: by the default split, the same for every model, or all of a held-out set.

    Whether a given run left them out of its training is for `why_seen` to say.
    """
    split = TrainConfig()
    return held_out_episodes(dataset, split.split_seed, split.validation_fraction)


def why_seen(info: "CheckpointInfo", source: Dataset | TaskSet) -> str | None:
    """Why the run may have been trained on the held-out episodes of a dataset, or of tasks from it; None if it was not.

    Of frozen tasks only the dataset's hash is known, so that nothing speaks against those of another dataset.
    """
    if isinstance(source, Dataset) and source.recipe.is_held_out:
        return None
    own = source.dataset_sha256 if isinstance(source, TaskSet) else source.sha256
    if info.dataset_sha256 == own:
        return _why_split(info.run.train)
    return None if isinstance(source, TaskSet) else _why_same_episodes(info.dataset_source, source.recipe.source)


def _why_split(train: TrainConfig) -> str | None:
    """Why a run with this split saw episodes that the default one leaves out."""
    default = TrainConfig()
    if train.split == "window":
        return "it held out windows of this dataset and not episodes, so that it saw frames of every episode"
    if (train.split_seed, train.validation_fraction) != (default.split_seed, default.validation_fraction):
        return (
            f"its split of this dataset has seed {train.split_seed} and fraction {train.validation_fraction}, held-out "
            f"episodes are those of {default.split_seed} and {default.validation_fraction}"
        )
    return None


def _why_same_episodes(trained: Source | None, other: Source) -> str | None:
    """Why two datasets may hold the same episodes: episode i is a function of the seed and i, under any hash.

    Policies are not compared: one may act as another in some of its episodes.
    """
    if trained is None:
        return "nothing says which episodes it was trained on, and these may be among them"
    if trained["kind"] != other["kind"]:
        return None
    if other["kind"] == "collect" and trained["seed"] == other["seed"]:
        return f"it was trained on episodes of seed {trained['seed']}, as these are"
    if other["kind"] == "import" and trained["file"] == other["file"]:
        return f"it was trained on episodes of {trained['file']}, as these are"
    return None
