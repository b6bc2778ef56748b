"""Reading a dataset: verified before use, frames read asynchronously, everything small held in memory."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorstore
from numpy.typing import NDArray

from saltwm.disk import durable, layout
from saltwm.disk.arrays import first_line, open_array, read_context, read_table
from saltwm.disk.durable import read_config
from saltwm.disk.layout import Recipe, part_path
from saltwm.disk.shipped import named, require_no_misnomer
from saltwm.ground import budget
from saltwm.ground.checks import check
from saltwm.ground.config import Variant, WorldSpec
from saltwm.ground.errors import DamagedError, UsageError, not_a_dataset
from saltwm.ground.strict_json import IF_SET, from_plain, to_plain

Verify = Literal["full", "sizes"]
MOST_NAMED = 20
"""Entries that one error names."""


class Dataset:
    """Episodes of one world. Made by `Dataset.open`; docs/data.md describes the files."""

    def __init__(self, path: Path, attributes: "_Attributes", lengths: NDArray[np.int64]) -> None:
        recipe = attributes.recipe
        self.path = path
        self.recipe = recipe
        self.world: WorldSpec = recipe.world
        self.variant: Variant = recipe.variant
        self.frame_every = recipe.frame_every
        self.state_dim = recipe.state_dim
        self.lengths = lengths
        """[E], actions of each episode"""
        self.action_mean = np.array(attributes.action_mean, np.float64)
        self.action_std = np.array(attributes.action_std, np.float64)
        """[A], population standard deviation"""
        self.versions = attributes.versions
        self.sha256 = attributes.sha256
        self.lineage = tuple(
            Ancestor(episodes, root.sha256)
            for episodes, root in zip(recipe.stages or (), attributes.lineage or (), strict=True)
        )
        """What the dataset was before each time it grew, oldest first."""
        self._attributes = attributes
        self._first_episode = np.array([recipe.part_episodes(part).start for part in range(recipe.parts)])
        self._first_step = layout.offsets(lengths)
        self._first_frame = layout.offsets(layout.frame_counts(lengths, recipe.frame_every))
        self._states: dict[int, NDArray[np.float64]] = {}
        self._frames: dict[int, Any] = {}
        self._context = read_context()

    @classmethod
    def open(cls, path: Path | str, verify: Verify = "full") -> "Dataset":
        """The dataset at `path`, or an error before anything of it is used.

        `full` compares every file with its hash and every value with its contract; `sizes` looks at names, sizes and
        lengths only, for a dataset that was fully verified before.
        """
        path = named(path)
        attributes = read_root(path)
        _check_entries(path, attributes.recipe)
        for part, entry in enumerate(attributes.parts):
            _check_part(part_path(path, part), entry, hashes=verify == "full")
        lengths = _read_lengths(path, attributes)
        dataset = cls(path, attributes, lengths)
        if verify == "full":
            dataset._check_values()
        return dataset

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r}: {len(self)} episodes of {self.world.environment})"

    def as_of(self, sha256: str) -> "Dataset":
        """The dataset that had this hash before it grew: the same episodes, split and hash; itself for another hash."""
        for stage, ancestor in enumerate(self.lineage):
            if ancestor.sha256 == sha256:
                return Dataset(self.path, self._attributes.before(stage), self.lengths[: ancestor.episodes])
        return self

    def is_or_was(self, sha256: str) -> bool:
        """Whether the dataset has this hash or had it before it grew."""
        return sha256 == self.sha256 or any(ancestor.sha256 == sha256 for ancestor in self.lineage)

    # --- states and actions ---------------------------------------------------------------------------------------

    @functools.cached_property
    def all_actions(self) -> NDArray[np.float32]:
        """Actions of all episodes one after another [sum T, A]; `first_step` says where each begins."""
        return np.concatenate([self._read_actions(part) for part in range(self.recipe.parts)])

    @property
    def first_step(self) -> NDArray[np.int64]:
        """Row of each episode's first action in `all_actions`, and their number [E + 1]."""
        return self._first_step

    def actions(self, episode: int) -> NDArray[np.float32]:
        """Raw actions of an episode [T, A]."""
        self._check_episode(episode)
        return self.all_actions[self._first_step[episode] : self._first_step[episode + 1]]

    def states(self, episode: int) -> NDArray[np.float64]:
        """States of an episode [T + 1, S]."""
        self._check_episode(episode)
        part = int(self._part_of(np.array([episode]))[0])
        if part not in self._states:
            self._states[part] = self._read_states(part)
        first = self._first_episode[part]
        # One state more than actions in every episode before this one.
        start = self._first_step[episode] - self._first_step[first] + (episode - first)
        return self._states[part][start : start + self.lengths[episode] + 1]

    def _read_actions(self, part: int) -> NDArray[np.float32]:
        file = part_path(self.path, part) / "actions"
        values: NDArray[np.float32] = read_table(file, (self._steps(part), self.world.action_dim), "float32")
        self._check_finite(part, "action", values, extra=0)
        return values

    def _read_states(self, part: int) -> NDArray[np.float64]:
        file = part_path(self.path, part) / "states"
        rows = self._steps(part) + len(self.recipe.part_episodes(part))
        values: NDArray[np.float64] = read_table(file, (rows, self.state_dim), "float64")
        self._check_finite(part, "state", values, extra=1)
        return values

    def _steps(self, part: int) -> int:
        episodes = self.recipe.part_episodes(part)
        return int(self._first_step[episodes.stop] - self._first_step[episodes.start])

    def _check_finite(self, part: int, field: str, values: NDArray[Any], extra: int) -> None:
        """Name episode and step of the first bad value; `extra` is 1 where an episode has T+1 rows."""
        if np.isfinite(values).all():
            return
        row = 0
        for episode in self.recipe.part_episodes(part):
            rows = int(self.lengths[episode]) + extra
            layout.check_finite(f"{self.path}: episode {episode}", field, values[row : row + rows])
            row += rows

    # --- frames ---------------------------------------------------------------------------------------------------

    def read_frames(self, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Frames at given steps of given episodes: [N], [N] -> [N, H, W, 3]."""
        return self.read_frames_later(episodes, steps).result()

    def read_frames_later(self, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> "_FramesLater":
        """Begin to read frames as `read_frames` does; `.result()` waits for them."""
        episodes, steps = np.asarray(episodes), np.asarray(steps)
        count = check("episodes", episodes, "N", dtype="int")["N"]
        check("steps", steps, "N", dtype="int", N=count)
        self._check_stored(episodes, steps)
        rows = self._first_frame[episodes] + steps // self.frame_every
        part_of = self._part_of(episodes)
        # Sorted by part and row, so that each part is one request, in the order of its file.
        order = np.argsort(rows, kind="stable")
        borders = np.flatnonzero(np.diff(part_of[order])) + 1
        size = self.world.image_size
        frames = np.empty((count, size, size, 3), np.uint8)
        requests = [
            (part, self._read_into(frames, places, part, rows[places]))
            for places in np.split(order, borders)
            for part in part_of[places[:1]].tolist()
        ]
        return _FramesLater(frames, requests, self._explain_damage)

    def _part_of(self, episodes: NDArray[np.int64]) -> NDArray[np.intp]:
        """The part of each episode: [N] -> [N]."""
        return np.searchsorted(self._first_episode, episodes, side="right") - 1

    def _read_into(
        self, frames: NDArray[np.uint8], places: NDArray[np.int64], part: int, rows: NDArray[np.int64]
    ) -> Any:
        """Begin to decode `rows` of a part straight into `places` of `frames`; copying them once more costs as much."""
        if part not in self._frames:
            self._frames[part] = self._open_frames(part)
        source = self._frames[part][rows - self._first_frame[self._first_episode[part]]]
        return tensorstore.array(frames)[places].write(source)

    def _open_frames(self, part: int) -> Any:
        episodes = self.recipe.part_episodes(part)
        count = int(self._first_frame[episodes.stop] - self._first_frame[episodes.start])
        metadata = layout.frames_metadata(count, self.world.image_size)
        return open_array(part_path(self.path, part) / "frames", metadata, self._context)

    def _check_stored(self, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> None:
        if ((episodes < 0) | (episodes >= len(self))).any():
            bad = episodes[(episodes < 0) | (episodes >= len(self))][0]
            raise UsageError(f"{self.path}: no episode {bad}; it has episodes 0 to {len(self) - 1}")
        wrong = (steps < 0) | (steps > self.lengths[episodes]) | (steps % self.frame_every != 0)
        if wrong.any():
            step, episode = int(steps[wrong][0]), int(episodes[wrong][0])
            raise UsageError(
                f"{self.path}: episode {episode} has no frame at step {step}; stored are steps 0 to "
                f"{self.lengths[episode]} in strides of {self.frame_every}"
            )

    def _explain_damage(self, part: int, error: Exception) -> DamagedError:
        """Find the first unreadable frame of a part, for a message that says which episode is lost."""
        file = part_path(self.path, part) / "frames"
        for episode in self.recipe.part_episodes(part):
            rows = np.arange(self._first_frame[episode], self._first_frame[episode + 1])
            frames = np.empty((len(rows), self.world.image_size, self.world.image_size, 3), np.uint8)
            try:
                self._read_into(frames, np.arange(len(rows)), part, rows).result()
            except ValueError as cause:
                return DamagedError(f"{file}: frames of episode {episode} cannot be read ({first_line(cause)})")
        return DamagedError(f"{file}: cannot be read ({first_line(error)})")

    # --- verification ---------------------------------------------------------------------------------------------

    def _check_values(self) -> None:
        """Read every action and state, which checks them, and open every array of frames."""
        mean, std = self.all_actions.astype(np.float64).mean(0), self.all_actions.astype(np.float64).std(0)
        if not (np.allclose(mean, self.action_mean) and np.allclose(std, self.action_std)):
            raise DamagedError(f"{self.path / layout.ROOT_FILE}: action mean and std are not those of the actions")
        for part in range(self.recipe.parts):
            self._states[part] = self._read_states(part)
            self._frames[part] = self._open_frames(part)

    def _check_episode(self, episode: int) -> None:
        if not 0 <= episode < len(self):
            raise UsageError(f"{self.path}: no episode {episode}; it has episodes 0 to {len(self) - 1}")


class _FramesLater:
    """Frames being read; `.result()` waits for them."""

    def __init__(
        self,
        frames: NDArray[np.uint8],
        requests: list[tuple[int, Any]],
        explain: Callable[[int, Exception], DamagedError],
    ) -> None:
        self._frames = frames
        self._requests = requests
        self._explain = explain

    def result(self) -> NDArray[np.uint8]:
        """The frames [N, H, W, 3]; DamagedError if one of them fails its checksum."""
        for part, request in self._requests:
            try:
                request.result()
            except ValueError as error:
                raise self._explain(part, error) from error
        return self._frames


# --- the root -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ancestor:
    """What a dataset was before it grew."""

    episodes: int
    """It had the first ones of today's."""
    sha256: str


@dataclass(frozen=True)
class _Part:
    steps: int
    manifest_sha256: str


@dataclass(frozen=True)
class OldRoot:
    """Values of the root before the dataset grew that the new one does not hold; the old hash is checked with them."""

    action_mean: list[float]
    action_std: list[float]
    versions: dict[str, str]
    sha256: str


@dataclass(frozen=True)
class _Attributes:
    """The root group's attributes."""

    format: str
    format_version: int
    recipe: Recipe
    action_mean: list[float]
    action_std: list[float]
    versions: dict[str, str]
    parts: list[_Part]
    sha256: str
    lineage: list[OldRoot] | None = field(default=None, metadata=IF_SET)
    """One for each time it grew, oldest first."""

    def before(self, stage: int) -> "_Attributes":
        """The attributes that the dataset had before it grew for the time number `stage`, from 0 on."""
        assert self.lineage is not None, "it grew"
        recipe, old = self.recipe.before(stage), self.lineage[stage]
        return _Attributes(
            self.format,
            self.format_version,
            recipe,
            old.action_mean,
            old.action_std,
            old.versions,
            self.parts[: recipe.parts],
            old.sha256,
            self.lineage[:stage] or None,
        )


def hash_of(attributes: dict[str, Any]) -> str:
    """The identity of a dataset with these attributes: all but the hash itself."""
    return durable.sha256_json({key: value for key, value in attributes.items() if key != "sha256"})


def read_root(path: Path) -> _Attributes:
    """The attributes, if the dataset is complete and the root file is byte for byte as it was written."""
    file = path / layout.ROOT_FILE
    require_no_misnomer(path, "dataset", "-data")
    if not path.is_dir():
        raise not_a_dataset(path)
    if not file.exists():
        raise _incomplete(path)
    root = durable.read_json(file)
    if not isinstance(root, dict) or set(root) != {"zarr_format", "node_type", "attributes"}:
        raise DamagedError(f"{file}: not the root of a dataset")
    attributes = from_plain(_Attributes, root["attributes"], str(file))
    if (attributes.format, attributes.format_version) != (layout.FORMAT, layout.FORMAT_VERSION):
        found = f"{attributes.format} version {attributes.format_version}"
        raise DamagedError(f"{file}: expected {layout.FORMAT} version {layout.FORMAT_VERSION}, found {found}")
    as_written = json.dumps(layout.group_metadata(root["attributes"]), indent=2, ensure_ascii=False) + "\n"
    if hash_of(root["attributes"]) != attributes.sha256 or durable.read_text(file) != as_written:
        raise DamagedError(f"{file}: altered since it was written")
    _check_recipe(path, attributes)
    _check_lineage(file, attributes)
    return attributes


def _check_recipe(path: Path, attributes: _Attributes) -> None:
    recipe, file = attributes.recipe, path / layout.RECIPE_FILE
    _check_counts(path / layout.ROOT_FILE, recipe)
    if (recipe.parts, len(recipe.stages or ())) != (len(attributes.parts), len(attributes.lineage or ())):
        raise DamagedError(f"{path / layout.ROOT_FILE}: counts that cannot be: {recipe}")
    _check_sizes(path / layout.ROOT_FILE, attributes)
    roots = (attributes, *(attributes.lineage or ()))
    if {len(values) for root in roots for values in (root.action_mean, root.action_std)} != {recipe.world.action_dim}:
        raise DamagedError(f"{path / layout.ROOT_FILE}: action statistics of another dimension")
    if not file.is_file() or not _is_of(recipe, read_config(Recipe, file)):
        raise DamagedError(f"{file}: missing or not the recipe that {layout.ROOT_FILE} names")


def _check_counts(file: Path, recipe: Recipe) -> None:
    """DamagedError for a count below 1, or a dataset that shrank: how many parts there are could not be said."""
    positive = (recipe.episodes, recipe.episodes_per_part, recipe.frame_every, recipe.state_dim)
    least = min(*positive, recipe.world.image_size, recipe.world.action_dim)
    if min(least, *(stage.stop - stage.start for stage in recipe.stage_episodes)) < 1:
        raise DamagedError(f"{file}: counts that cannot be: {recipe}")


def _is_of(recipe: Recipe, begun: Recipe) -> bool:
    """Whether a dataset of `recipe` may have collection.json say `begun`: its own, or what it is growing to."""
    if begun == recipe or not begun.stages:
        return begun == recipe
    return begun.episodes > recipe.episodes and begun.before(len(begun.stages) - 1) == recipe


def _check_lineage(file: Path, attributes: _Attributes) -> None:
    """Every hash of the lineage is that of the dataset as it was: it can be computed from the root of today."""
    for stage in range(len(attributes.lineage or ())):
        was = attributes.before(stage)
        if hash_of(to_plain(was)) != was.sha256:
            raise DamagedError(f"{file}: lineage: {was.sha256[:12]} is not the hash of its first episodes")


def _check_sizes(where: Path, attributes: _Attributes) -> None:
    """DamagedError for a dataset whose tables or frames would not fit into the budget."""
    recipe = attributes.recipe
    steps = sum(part.steps for part in attributes.parts)
    states = 8 * recipe.state_dim * (steps + recipe.episodes)  # an episode has one more state than steps
    size = 8 * recipe.episodes + 4 * recipe.world.action_dim * steps + states
    budget.require(where, f"{recipe.episodes} episodes of {steps} steps", size)
    budget.require_frames(where, recipe.world.image_size)


def _incomplete(path: Path) -> DamagedError | UsageError:
    if not (path / layout.RECIPE_FILE).exists():
        lacking = f"it has neither {layout.ROOT_FILE} nor {layout.RECIPE_FILE}"
        return UsageError(f"{path}: not a dataset: {lacking}", remedy="make a dataset")
    recipe = read_config(Recipe, path / layout.RECIPE_FILE)
    _check_counts(path / layout.RECIPE_FILE, recipe)
    missing = recipe.parts - sum(1 for entry in path.glob("part-*") if entry.is_dir())
    message = f"{path}: incomplete, {missing} of {recipe.parts} parts are missing"
    if recipe.source.kind == "recorded":  # it does not say where the recordings lie
        return DamagedError(f"{message}; repeat the import, or the program, that wrote it")
    return DamagedError(message, remedy="finish", path=path)


def _check_entries(path: Path, recipe: Recipe) -> None:
    """Every entry of the directory is one that a dataset has, and none is a link."""
    expected = {layout.ROOT_FILE, layout.RECIPE_FILE, *(part_path(path, part).name for part in range(recipe.parts))}
    present = {entry.name for entry in path.iterdir()} - {durable.LOCK_FILE}
    for name in sorted(expected - present):
        raise DamagedError(f"{path / name}: missing")
    # A leftover is of a growth that goes on or was interrupted, and no part of anything.
    strangers = [n for n in sorted(present - expected - _growing(path, recipe)) if not durable.is_leftover(n)]
    if len(strangers) == 1:
        raise DamagedError(f"{path / strangers[0]}: does not belong to the dataset; move it elsewhere")
    if strangers:
        named = ", ".join(strangers[:MOST_NAMED]) + (", ..." if len(strangers) > MOST_NAMED else "")
        raise DamagedError(
            f"{path}: {len(strangers)} entries do not belong to the dataset ({named}); move them elsewhere"
        )
    for name in sorted(expected):
        if (path / name).is_symlink():
            raise DamagedError(f"{path / name}: is a link; a dataset never has one")


def _growing(path: Path, recipe: Recipe) -> set[str]:
    """Names of parts that the dataset is growing to and that are not its own yet."""
    begun = read_config(Recipe, path / layout.RECIPE_FILE)
    last = recipe.parts if begun == recipe else min(begun.parts, budget.MOST_PARTS)
    return {part_path(path, part).name for part in range(recipe.parts, last)}


def _check_part(directory: Path, entry: _Part, *, hashes: bool) -> None:
    manifest = directory / durable.MANIFEST
    if manifest.is_symlink() or not manifest.is_file():
        raise DamagedError(f"{manifest}: missing, or a link; a dataset never has one")
    if durable.sha256(manifest) != entry.manifest_sha256:
        raise DamagedError(f"{manifest}: altered since it was written")
    durable.verify_directory(directory, hashes=hashes)


def _read_lengths(path: Path, attributes: _Attributes) -> NDArray[np.int64]:
    recipe, lengths = attributes.recipe, []
    for part, entry in enumerate(attributes.parts):
        directory = part_path(path, part)
        found = read_table(directory / "lengths", (len(recipe.part_episodes(part)),), "int64")
        if found.min() < 1 or found.sum() != entry.steps:
            raise DamagedError(
                f"{directory / 'lengths'}: {found.sum()} steps, expected {entry.steps} and each at least 1"
            )
        lengths.append(found)
    return np.concatenate(lengths)
