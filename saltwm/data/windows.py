"""Training windows: K+1 frames and the K action blocks between them; a batch is a pure function of (seed, step)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from saltwm.data import split as split_rules
from saltwm.disk.dataset import Dataset
from saltwm.ground import rng
from saltwm.ground.checks import check, one_of
from saltwm.ground.errors import UsageError

if TYPE_CHECKING:
    from saltwm.data.features import Later, Pictures

Ids = split_rules.Ids


@dataclass(frozen=True)
class Batch:
    """Windows as the model takes them: raw frames, raw actions."""

    frames: NDArray[Any]
    """uint8 [B, K + 1, H, W, 3], or what a frozen encoder made of them, float16 [B, K + 1, D]"""
    actions: NDArray[np.float32]
    """[B, K, frameskip * A], the frameskip actions of a block side by side"""


class Windows:
    """All windows of a dataset, numbered by episode and start, and their split into training and validation."""

    def __init__(
        self,
        dataset: Dataset,
        frames: int,
        frameskip: int,
        *,
        split: Literal["episode", "window"] = "episode",
        split_seed: int = 3072,
        validation_fraction: float = 0.1,
        pictures: "Pictures | None" = None,
    ) -> None:
        one_of("split", split, ("episode", "window"))
        if frames < 2 or frameskip < 1:
            raise UsageError(f"a window needs at least 2 frames and a frameskip of 1, found {frames} and {frameskip}")
        if frameskip % dataset.frame_every:
            raise UsageError(
                f"{dataset.path}: holds every {dataset.frame_every}th frame, so the frameskip must be a multiple of "
                f"{dataset.frame_every}, found {frameskip}; collect it again with another `frame_every`"
            )
        split_rules.require_trainable(dataset)
        if not 0.0 <= validation_fraction < 1.0:
            raise UsageError(f"validation_fraction must be in [0, 1), found {validation_fraction}")
        self.dataset = dataset
        self._pictures = pictures or dataset
        self.blocks = frames - 1
        """K, action blocks of a window."""
        self.frameskip = frameskip
        span = self.blocks * frameskip
        starts = np.maximum(0, (dataset.lengths - span) // dataset.frame_every + 1)
        self._first_window = np.concatenate([[0], np.cumsum(starts)])
        self._split_seed = split_seed
        self._epoch: tuple[tuple[int, int], Ids] | None = None
        self.validation_episodes: Ids | None = None
        """Episodes held out, ascending; None where the windows of both sides overlap."""
        in_validation = np.zeros(len(self), bool)
        if split == "episode":
            self.validation_episodes = split_rules.held_out_episodes(dataset, split_seed, validation_fraction)
            in_validation[np.isin(np.repeat(np.arange(len(dataset)), starts), self.validation_episodes)] = True
        else:  # as the paper splits (App. B.1)
            in_validation[split_rules.chosen(len(self), split_seed, validation_fraction)] = True
        self.train, self.validation = np.flatnonzero(~in_validation), np.flatnonzero(in_validation)
        """Window ids of each side, ascending."""
        if not len(self.train):
            raise UsageError(
                f"{dataset.path}: no training window: {frames} frames {frameskip} steps apart need episodes of "
                f"{span} steps, the longest has {dataset.lengths.max()}; "
                "train with fewer `starts` or `rollout_steps`, or collect longer ones"
            )

    def __len__(self) -> int:
        """Number of windows on both sides."""
        return int(self._first_window[-1])

    # --- batches --------------------------------------------------------------------------------------------------

    def training_ids(self, seed: int, step: int, batch_size: int) -> Ids:
        """Windows of training step `step`: each epoch visits every window at most once, the last rest is dropped."""
        steps = len(self.train) // batch_size
        if steps == 0:
            raise UsageError(
                f"{self.dataset.path}: {len(self.train)} training windows, fewer than a batch of {batch_size}"
            )
        epoch, index = divmod(step, steps)
        return self._permutation(seed, epoch)[index * batch_size : (index + 1) * batch_size]

    def validation_ids(self, index: int, batch_size: int) -> Ids:
        """Windows of validation batch `index`: the same mixture of episodes each time; it wraps around at the end."""
        if not len(self.validation):
            raise UsageError(
                f"{self.dataset.path}: no validation window; raise the validation fraction or collect more"
            )
        order = rng.stream(self._split_seed, "validation").permutation(self.validation)
        return order.take(np.arange(index * batch_size, (index + 1) * batch_size), mode="wrap")

    def batch(self, ids: Ids) -> Batch:
        """The windows `ids` [B]."""
        return self.batch_later(ids).result()

    def batch_later(self, ids: Ids) -> "BatchLater":
        """Begin to read a batch as `batch` does; `.result()` waits for it."""
        episodes, starts = self.locate(ids)
        steps = starts[:, None] + np.arange(self.blocks + 1) * self.frameskip
        frames = self._pictures.read_frames_later(np.repeat(episodes, self.blocks + 1), steps.ravel())
        rows = self.dataset.first_step[episodes] + starts
        actions = self.dataset.all_actions[rows[:, None] + np.arange(self.blocks * self.frameskip)]
        return BatchLater(frames, actions.reshape(len(ids), self.blocks, -1))

    def locate(self, ids: Ids) -> tuple[Ids, Ids]:
        """Episode and first step of windows: [B] -> [B], [B]."""
        check("window ids", ids, "B", dtype="int")
        if ((ids < 0) | (ids >= len(self))).any():
            raise UsageError(
                f"{self.dataset.path}: window ids must be in 0 .. {len(self) - 1}, found {ids.min()} .. {ids.max()}"
            )
        episodes = np.searchsorted(self._first_window, ids, side="right") - 1
        return episodes, (ids - self._first_window[episodes]) * self.dataset.frame_every

    def _permutation(self, seed: int, epoch: int) -> Ids:
        """The epoch's order; the last one is kept, because steps ask for it one after another."""
        if self._epoch is None or self._epoch[0] != (seed, epoch):
            self._epoch = (seed, epoch), rng.stream(seed, "epoch", epoch).permutation(self.train)
        return self._epoch[1]


@dataclass(frozen=True)
class BatchLater:
    """A batch whose frames are being read."""

    frames: "Later"
    actions: NDArray[np.float32]

    def result(self) -> Batch:
        """Wait for the frames."""
        frames = self.frames.result()
        count, blocks = self.actions.shape[:2]
        return Batch(frames.reshape(count, blocks + 1, *frames.shape[1:]), self.actions)
