"""What a frozen encoder makes of a dataset's frames, computed once and kept: training then reads features, not frames.

    FEATURES/features.json              the data and the encoder that they are of
    FEATURES/part-00000/features.npy    float16 [up to 2048 frames, D], and a manifest with its hash

A part is whole or absent, so a killed computation goes on with the next part. Features of other data or of other
weights are refused, and a part that changed since is damage.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saltwm.disk import durable
from saltwm.disk.arrays import write_npy
from saltwm.disk.claim import claim
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import frame_counts, offsets
from saltwm.ground.budget import VARIABLE, budget_bytes
from saltwm.ground.config import EncoderConfig, ModelConfig, RunConfig
from saltwm.ground.errors import DamagedError, NonFiniteError, Stopped, UsageError
from saltwm.ground.progress import progress
from saltwm.model.encoder import Encoder
from saltwm.model.traits import traits_of
from saltwm.processes.stopping import stop_signal

RECORD, FILE = "features.json", "features.npy"
PART_FRAMES, FRAMES_AT_ONCE = 2048, 64


@dataclass(frozen=True)
class _FeaturesRecord:
    """What features are of."""

    encoder: EncoderConfig
    """With the hash of its weights."""
    dataset_sha256: str
    frames: int
    dim: int
    """Numbers per frame."""


@dataclass(frozen=True)
class FrozenEncoder:
    """An encoder whose weights come from elsewhere, and where its features are kept."""

    source: Path
    """Where the weights come from."""
    read: Callable[[], dict[str, Tensor]]
    """The weights by the names of Encoder."""
    features: Path


class Later(Protocol):
    """Pictures that are being read."""

    def result(self) -> NDArray[Any]:
        """Wait for them: [N, ...]."""


class Pictures(Protocol):
    """Where frames, or features of them, come from: a dataset, or what is kept of it here."""

    def read_frames_later(self, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> Later:
        """Those at given steps of given episodes: [N], [N] -> [N, ...]."""


class Features:
    """Features of all stored frames of a dataset; read like its frames."""

    def __init__(self, folder: Path, dataset: Dataset, record: _FeaturesRecord) -> None:
        self._dataset = dataset
        self._first_frame = offsets(frame_counts(dataset.lengths, dataset.frame_every))
        self._parts = [_opened(folder, record, part) for part in range(_parts(record))]

    def read_frames_later(self, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> "_FeaturesLater":
        """Features at given steps of given episodes: [N], [N] -> [N, D], read in `.result()`."""
        return _FeaturesLater(self, self._first_frame[episodes] + steps // self._dataset.frame_every)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        """Features by the frame's number in the dataset: [N] -> [N, D]."""
        parts, places = np.divmod(rows, PART_FRAMES)
        found = np.empty((len(rows), self._parts[0].shape[1]), np.float16)
        for part in np.unique(parts):
            mine = parts == part
            found[mine] = self._parts[part][places[mine]]
        return found


@dataclass(frozen=True)
class _FeaturesLater:
    """Features that are read when they are needed; the files are mapped, so there is nothing to wait for."""

    features: Features
    numbers: NDArray[np.int64]

    def result(self) -> NDArray[np.float16]:
        """The features [N, D]."""
        return self.features.rows(self.numbers)


def features_for(run: RunConfig, dataset: Dataset, frozen: FrozenEncoder | None, processes: int) -> Features | None:
    """What the frozen encoder of a run makes of the frames; UsageError unless it is there for a model that has one."""
    if traits_of(run.model.model).is_frozen != (frozen is not None):
        raise UsageError(f"model {run.model.model}: weights of a frozen encoder go with a model that has one: dino-wm")
    return None if frozen is None else open_features(run.model, dataset, frozen, make=processes == 1)


def open_features(model: ModelConfig, dataset: Dataset, frozen: FrozenEncoder, *, make: bool = True) -> Features:
    """The features of a dataset; those that are missing are computed first, or refused where `make` is off."""
    frames = int(frame_counts(dataset.lengths, dataset.frame_every).sum())
    record = _FeaturesRecord(model.encoder, dataset.sha256, frames, model.latent_dim)
    _require_room(record, frozen.features)
    durable.check_folder(frozen.features)
    if make:
        durable.make_folder(frozen.features)
        with durable.only_writer(frozen.features, "features"):
            claim(frozen.features / RECORD, record, partial(durable.read_config, _FeaturesRecord))
            durable.remove_leftovers(frozen.features)
            _compute(record, dataset, frozen)
    elif not all(_part(frozen.features, part).is_dir() for part in range(_parts(record))):
        raise UsageError(f"{frozen.features}: not all features are there; one process makes them: train with one first")
    return Features(frozen.features, dataset, record)


def _require_room(record: _FeaturesRecord, folder: Path) -> None:
    """UsageError if the features would take more bytes than the budget has."""
    size, allowed = 2 * record.frames * record.dim, budget_bytes()
    if size > allowed:
        raise UsageError(
            f"{folder}: features of {record.frames} frames of {record.dim} numbers would take {size / 2**30:.3g} GB, "
            f"more than the {allowed / 2**30:.3g} GB that they may; choose fewer `patches`, or set {VARIABLE}"
        )


def _compute(record: _FeaturesRecord, dataset: Dataset, frozen: FrozenEncoder) -> None:
    """Every part that is missing, in order."""
    missing = [part for part in range(_parts(record)) if not _part(frozen.features, part).is_dir()]
    if not missing:
        return
    encoder = Encoder(record.encoder, dataset.world.image_size, record.dim).eval()
    encoder.load_state_dict(frozen.read())
    stored = frame_counts(dataset.lengths, dataset.frame_every)
    episodes = np.repeat(np.arange(len(dataset)), stored)
    steps = np.concatenate([np.arange(count) for count in stored]) * dataset.frame_every
    with stop_signal() as stopping, progress(f"features of {dataset.path.name}", _parts(record)) as advance:
        advance(_parts(record) - len(missing))
        for part in missing:
            chosen = slice(part * PART_FRAMES, (part + 1) * PART_FRAMES)
            values = _encode(encoder, dataset, episodes[chosen], steps[chosen])
            with durable.publish_directory(_part(frozen.features, part)) as folder:
                write_npy(folder / FILE, values)
            advance(1)
            if stopping():
                raise Stopped("stopped while computing features, saved; the same command goes on", stopping())


@torch.inference_mode()
def _encode(
    encoder: Encoder, dataset: Dataset, episodes: NDArray[np.int64], steps: NDArray[np.int64]
) -> NDArray[np.float16]:
    """Frames at these steps [N], a few at a time -> [N, D]; NonFiniteError if float16 cannot hold them."""
    parts = []
    for start in range(0, len(episodes), FRAMES_AT_ONCE):
        some = slice(start, start + FRAMES_AT_ONCE)
        parts.append(encoder(torch.from_numpy(dataset.read_frames(episodes[some], steps[some]))).half())
        if not parts[-1].isfinite().all():
            raise NonFiniteError(f"{dataset.path}: features of episode {episodes[start]} are not finite in float16")
    return torch.cat(parts).numpy()


def _parts(record: _FeaturesRecord) -> int:
    return math.ceil(record.frames / PART_FRAMES)


def _part(folder: Path, part: int) -> Path:
    return folder / f"part-{part:05d}"


def _opened(folder: Path, record: _FeaturesRecord, part: int) -> NDArray[np.float16]:
    """The mapped features of a part, after checking its hash; DamagedError unless they are what the record says."""
    path = _part(folder, part)
    try:
        durable.verify_directory(path)
        found = np.load(path / FILE, mmap_mode="r", allow_pickle=False)
    except (DamagedError, ValueError, OSError) as error:
        raise DamagedError(f"{path}: cannot be read ({error}); remove this folder to have it made again") from error
    expected = (min(PART_FRAMES, record.frames - part * PART_FRAMES), record.dim)
    if found.shape != expected or found.dtype != np.float16:
        raise DamagedError(f"{path / FILE}: expected float16 {list(expected)}, found {found.dtype} {list(found.shape)}")
    return found
