"""Which episodes count as held out, and whether a run may have been trained on them all the same."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saltwm.config import TrainConfig
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.records import TaskSet

if TYPE_CHECKING:
    from saltwm.checkpoint import CheckpointInfo  # torch, which an evaluation of the random policy does without


def held_out(dataset: Dataset) -> NDArray[np.int64]:
    """Episodes that tasks and diagnoses take: by the default split, the same for every model, or all of a held-out set.

    Whether a given run left them out of its training is for `why_seen` to say.
    """
    split = TrainConfig()
    return held_out_episodes(dataset, split.split_seed, split.validation_fraction)


def why_seen(info: "CheckpointInfo", source: Dataset | TaskSet) -> str | None:
    """Why the run may have been trained on the held-out episodes of a dataset, or of tasks from it; None if it was not.

    Of a dataset that is not the run's own nothing is known that would speak against it.
    """
    own = source.dataset_sha256 if isinstance(source, TaskSet) else source.sha256
    if info.dataset_sha256 != own or (isinstance(source, Dataset) and source.recipe.is_held_out):
        return None
    train, default = info.run.train, TrainConfig()
    if train.split == "window":
        return "it held out windows of this dataset and not episodes, so that it saw frames of every episode"
    if (train.split_seed, train.validation_fraction) != (default.split_seed, default.validation_fraction):
        return (
            f"its split of this dataset has seed {train.split_seed} and fraction {train.validation_fraction}, held-out "
            f"episodes are those of {default.split_seed} and {default.validation_fraction}"
        )
    return None
