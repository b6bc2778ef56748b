"""Held out: which episodes training never sees, which datasets it refuses, and whether a run saw them all the same.

A dataset is held out as a whole (its source is `HeldOut`), or by a share of its episodes that the split chooses.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import Collected, Imported, Recorded, Source
from saltwm.disk.records import TaskSet
from saltwm.ground import rng
from saltwm.ground.config import TrainConfig
from saltwm.ground.errors import UsageError

if TYPE_CHECKING:
    from saltwm.disk.checkpoint import CheckpointInfo, Origin

Ids = NDArray[np.int64]


# --- the choice ------------------------------------------------------------------------------------------------------


def held_out(dataset: Dataset) -> Ids:
    """Held-out episodes: those of the default split, the same for every model, or all of a held-out dataset.

    `why_seen` says whether a given run left them out of its training.
    """
    split = TrainConfig()
    return held_out_episodes(dataset, split.split_seed, split.validation_fraction)


def held_out_episodes(dataset: Dataset, split_seed: int, validation_fraction: float) -> Ids:
    """Episodes that training never sees, ascending: a share of the dataset, or all of it if it is held out itself.

    A function of its arguments alone, so that tasks and diagnoses can use it.
    """
    if dataset.recipe.is_held_out:
        return np.arange(len(dataset))
    first, *grown = dataset.recipe.stage_episodes
    # Each stage is split for itself, so that an episode stays on its side of the split when the dataset grows.
    sides = [chosen(len(first), split_seed, validation_fraction)]
    for number, stage in enumerate(grown, start=1):
        sides.append(stage.start + chosen(len(stage), split_seed, validation_fraction, number))
    return np.concatenate(sides)


def chosen(count: int, seed: int, fraction: float, *stage: int) -> Ids:
    """A random share of 0 .. count-1, ascending (App. B.1); another for each stage of a dataset that grew."""
    return np.sort(rng.stream(seed, "split", *stage).permutation(count)[: round(fraction * count)])


# --- the refusals ----------------------------------------------------------------------------------------------------


def require_trainable(dataset: Dataset) -> None:
    """UsageError for a dataset that is held out as a whole."""
    if dataset.recipe.is_held_out:
        raise UsageError(
            f"{dataset.path}: held out, its episodes are for evaluation alone; train on a dataset that was "
            "collected without `held_out`"
        )


def require_some(episodes: Ids | None, protocol: str) -> Ids:
    """The held-out episodes of a dataset; UsageError if the protocol wants some and there are none."""
    if episodes is None or len(episodes) == 0:
        raise UsageError(
            f"protocol {protocol!r} wants episodes that training did not see, and there are none; collect some "
            "with `held_out`, or evaluate under the protocol paper"
        )
    return episodes


def why_seen(info: "CheckpointInfo", source: Dataset | TaskSet) -> str | None:
    """Reason to suspect that training saw the held-out episodes of a dataset, or tasks from them; else None.

    A frozen task set records only its dataset's hash, so tasks from another dataset are assumed unseen. A run has also
    seen what the checkpoints in its lineage have seen.
    """
    if isinstance(source, Dataset) and source.recipe.is_held_out:
        return None
    seen: list[CheckpointInfo | Origin] = [info, *(info.lineage or ())]
    return next(filter(None, (_why_trained_on(trained, source) for trained in seen)), None)


def _why_trained_on(trained: "CheckpointInfo | Origin", source: Dataset | TaskSet) -> str | None:
    known = (trained.dataset_sha256, *(trained.dataset_lineage or ()))
    if isinstance(source, TaskSet):
        same = source.dataset_sha256 in known
    else:
        same = source.is_or_was(trained.dataset_sha256) or source.sha256 in known
    if same:  # or was so before it grew: an episode stays on its side of the split
        return _why_split(trained.run.train)
    return None if isinstance(source, TaskSet) else _why_same_episodes(trained.dataset_source, source.recipe.source)


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
    if isinstance(trained, Collected) and isinstance(other, Collected) and trained.seed == other.seed:
        return f"it was trained on episodes of seed {trained.seed}, as these are"
    if isinstance(trained, Imported) and isinstance(other, Imported) and _same_file(trained, other):
        return f"it was trained on episodes of {trained.file}, as these are"
    if isinstance(trained, Recorded) and isinstance(other, Recorded) and (shared := _files(trained) & _files(other)):
        return f"it was trained on episodes of {min(shared)}, as these are"
    return None


def _files(recorded: Recorded) -> set[str]:
    """The files that recordings come from, those that a dataset grew by too."""
    return {recorded.file, *(recorded.added or ())} - {""}


def _same_file(one: Imported, other: Imported) -> bool:
    """Whether two imports may be of one file: by content where both know it, and by name."""
    return one.file == other.file or (one.sha256 is not None and one.sha256 == other.sha256)
