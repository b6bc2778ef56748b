"""What a dataset looks like on disk; docs/data.md shows it to users.

    DIR/collection.json           what is being made; written first, so that a resume can refuse other options
    DIR/part-00000/               episodes 0 .. episodes_per_part-1: whole, with a manifest of hashes, or absent
        frames/  actions/  states/  lengths/       Zarr v3 arrays, the episodes one after another
    DIR/zarr.json                 the Zarr v3 root group with the dataset's attributes; written last

A dataset that grows gets parts of its own for the new episodes, so that no stored byte changes: first collection.json
says what it grows to, then the parts come, then a new root that names the old one. Until then the old root is valid.

An episode of T actions has T+1 states and a frame at every `frame_every`-th of them, so no value is ever a marker.
"""

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saltwm.ground.checks import check
from saltwm.ground.config import Variant, WorldSpec
from saltwm.ground.errors import NonFiniteError, ShapeError
from saltwm.ground.strict_json import IF_SET, LATER

FORMAT = "saltwm dataset"
FORMAT_VERSION = 1
ROOT_FILE = "zarr.json"
RECIPE_FILE = "collection.json"

SHARD_BYTES = 64 * 2**20
"""Raw bytes of frames in one shard file, at most: what a writer holds in memory."""
MAX_SHARD_FRAMES = 4096
PART_STEPS = 4000
"""Steps in a part, about: small enough to lose little to an interruption, large enough for few files."""


# --- where episodes come from ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Episodes that a policy made: episode i is a function of (seed, i)."""

    kind: Literal["collect"] = "collect"
    policy: str
    seed: int
    state_fields: str | None = field(default=None, metadata=IF_SET)
    """What the numbers of a state are called, for environments that are not part of the package."""


@dataclass(frozen=True, kw_only=True)
class HeldOut(Collected):
    """Episodes that no model may be trained on, of streams that no training episode has."""

    split: Literal["held-out"] = "held-out"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Episodes of somebody else's file."""

    kind: Literal["import"] = "import"
    file: str
    """Its name, without folders."""
    bytes: int
    zero_state_fields: str = field(default="", metadata=LATER)
    """State fields that the file does not hold, separated by commas."""
    sha256: str | None = field(default=None, metadata=LATER)
    """None in datasets that were imported before it was written down."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Episodes that were recorded, without a simulator."""

    kind: Literal["recorded"] = "recorded"
    state_fields: str
    """What the numbers of a state are called."""
    format: str = "program"
    """The format of the files that they come from, or program."""
    file: str = ""
    """Name of the file or folder, without those above it."""
    camera: str = ""
    split: Literal["training", "held-out"] = "training"
    added: tuple[str, ...] | None = field(default=None, metadata=IF_SET)
    """The file or folder of each time that the dataset grew."""
    fit: Literal["pad", "crop", "stretch"] | None = field(default=None, metadata=IF_SET)
    """How oblong frames became square; None in datasets that were written before it was kept."""
    action_names: str | None = field(default=None, metadata=IF_SET)
    """What the numbers of an action are called, where the recording says so."""


Source = Collected | HeldOut | Imported | Recorded


# --- a dataset -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a dataset's content: the same recipe gives the same bytes."""

    world: WorldSpec
    variant: Variant
    """Physics that the episodes were made with."""
    state_dim: int
    """Numbers in one state."""
    episodes: int
    frame_every: int
    """Steps between two stored frames of an episode."""
    episodes_per_part: int
    source: Source
    """Where the episodes come from."""
    stages: tuple[int, ...] | None = field(default=None, metadata=IF_SET)
    """Episodes that it had before each time it grew; the parts of each stage are its own."""

    @property
    def is_held_out(self) -> bool:
        """Whether every episode is for evaluation."""
        return getattr(self.source, "split", "training") == "held-out"

    @property
    def parts(self) -> int:
        """Number of parts; the last one of a stage may be smaller."""
        return sum(map(self._parts_of, self.stage_episodes))

    def part_episodes(self, part: int) -> range:
        """Episodes of one part."""
        for stage in self.stage_episodes:
            if part < self._parts_of(stage):
                first = stage.start + part * self.episodes_per_part
                return range(first, min(first + self.episodes_per_part, stage.stop))
            part -= self._parts_of(stage)
        raise IndexError(part)

    @property
    def stage_episodes(self) -> list[range]:
        """Episodes of each stage: those that it began with, then those of each time it grew."""
        borders = [0, *(self.stages or ()), self.episodes]
        return [range(*border) for border in itertools.pairwise(borders)]

    def _parts_of(self, stage: range) -> int:
        return -((stage.start - stage.stop) // self.episodes_per_part)

    def grown(self, episodes: int, file: str = "") -> "Recipe":
        """The recipe of this dataset with more episodes; recorded ones come from `file`."""
        source = self.source
        if isinstance(source, Recorded):
            source = replace(source, added=(*(source.added or ()), file))
        return replace(self, episodes=episodes, stages=(*(self.stages or ()), self.episodes), source=source)

    def before(self, stage: int) -> "Recipe":
        """The recipe that it had before it grew for the time number `stage`, from 0 on."""
        assert self.stages is not None, "it grew"
        source = self.source
        if isinstance(source, Recorded):
            source = replace(source, added=(source.added or ())[:stage] or None)
        return replace(self, episodes=self.stages[stage], stages=self.stages[:stage] or None, source=source)


@dataclass(frozen=True)
class Episode:
    """T actions between T+1 states, and the frames of every `frame_every`-th state."""

    frames: NDArray[np.uint8]
    """[T // frame_every + 1, H, W, 3]"""
    actions: NDArray[np.float32]
    """[T, A], raw"""
    states: NDArray[np.float64]
    """[T + 1, S]"""


def part_path(dataset: Path, part: int) -> Path:
    """Directory of a part; names come from numbers alone, so no file can lead out of the dataset."""
    return dataset / f"part-{part:05d}"


def frame_counts(lengths: NDArray[np.int64], frame_every: int) -> NDArray[np.int64]:
    """Stored frames of episodes with `lengths` actions: [E] -> [E]."""
    counts: NDArray[np.int64] = lengths // frame_every + 1
    return counts


def offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """First row of each episode when they stand one after another, and the total: [E] -> [E + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


# --- values at the door ---------------------------------------------------------------------------------------------


def check_episode(where: str, index: int, episode: Episode, recipe: Recipe) -> None:
    """ShapeError or NonFiniteError naming file, episode, step and field, unless the episode fits the recipe."""
    name, size = f"{where}: episode {index}", recipe.world.image_size
    steps = check(f"{name}: action", episode.actions, "T A", dtype="float32", A=recipe.world.action_dim)["T"]
    if steps == 0:
        raise ShapeError(f"{name}: action: expected at least one, found none")
    check(f"{name}: state", episode.states, "N S", dtype="float64", N=steps + 1, S=recipe.state_dim)
    frames = steps // recipe.frame_every + 1
    check(f"{name}: frame", episode.frames, "N H W 3", dtype="uint8", N=frames, H=size, W=size)
    check_finite(name, "action", episode.actions)
    check_finite(name, "state", episode.states)


def check_finite(name: str, what: str, values: NDArray[Any]) -> None:
    """NonFiniteError naming the first bad step and dimension of values [steps, dimensions]."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        step, dimension = bad[0]
        found = values[step, dimension]
        raise NonFiniteError(f"{name}, step {step}: {what} is {found} in dimension {dimension}; make it again")


# --- Zarr v3 --------------------------------------------------------------------------------------------------------

_ZSTD: dict[str, Any] = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
_CRC32C: dict[str, Any] = {"name": "crc32c"}


def frames_metadata(count: int, image_size: int) -> dict[str, Any]:
    """Zarr v3 metadata of frames: shards of many frames, each frame a compressed and checksummed chunk of its own."""
    shard = max(1, min(MAX_SHARD_FRAMES, SHARD_BYTES // (3 * image_size**2)))
    frame = [image_size, image_size, 3]
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [1, *frame],
            "codecs": [{"name": "bytes"}, _ZSTD, _CRC32C],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, _CRC32C],
        },
    }
    return _metadata([count, *frame], "uint8", [shard, *frame], [sharding])


def table_metadata(shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """Zarr v3 metadata of actions, states or lengths: one compressed and checksummed chunk."""
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, _ZSTD, _CRC32C]
    return _metadata(list(shape), dtype, list(shape), codecs)


def group_metadata(attributes: dict[str, Any]) -> dict[str, Any]:
    """Zarr v3 metadata of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def _metadata(shape: list[int], dtype: str, chunk: list[int], codecs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0 if "int" in dtype else 0.0,
        "codecs": codecs,
    }
