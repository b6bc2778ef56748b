"""Recordings without a simulator as a dataset: frames and actions are enough, the state may be missing.

Every importer of this room makes `Recording`s, one episode after another, and hands them to `write_dataset`, which
programs of users call as well. Nothing half-written stays: a recording that is refused leaves no folder behind.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saltwm.disk import dataset_writer as parts
from saltwm.disk import durable, layout
from saltwm.disk.claim import claim, require_same, require_unused
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import read_config
from saltwm.disk.layout import PART_STEPS, Episode, Recipe, Recorded
from saltwm.envs.base import StateField, spell_fields
from saltwm.ground import budget
from saltwm.ground.checks import at_least
from saltwm.ground.config import WorldSpec
from saltwm.ground.errors import DamagedError, LockedError, MismatchError, NonFiniteError, ShapeError, UsageError
from saltwm.ground.frames import Fit, square
from saltwm.ground.progress import progress
from saltwm.ground.strict_json import to_plain

NUMBER_BYTES = 40
"""Memory that a number takes on its way from a table to an array, about."""
PART_BYTES = 256 * 2**20
"""A part is held in memory before it is written: about this many bytes of frames at most."""


@dataclass(frozen=True)
class Recording:
    """One episode as it was recorded: T actions, each leading from one frame to the next."""

    frames: Iterable[Any]
    """T + 1 frames, uint8 [H, W, 3] each, of any size"""
    actions: Any
    """[T, A]"""
    states: Any = None
    """[T + 1, S], or nothing"""
    where: str = ""
    """File that it comes from, for messages."""


def write_dataset(
    path: Path | str,
    episodes: Iterable[Recording | Mapping[str, Any]],
    *,
    name: str,
    fields: tuple[StateField, ...] = (),
    image_size: int = 64,
    fit: Fit = "pad",
    frame_every: int = 1,
    held_out: bool = False,
    action_names: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
    total: int | None = None,
    append: bool = False,
) -> Dataset:
    """Write recorded episodes as a dataset called `name`; docs/data.md has an example.

    An episode is a Recording or a dict with frames, actions and, if there are any, states. `fields` names the numbers
    of a state and their units, `action_names` those of an action. Oblong frames get black bars, or as `fit` says. With
    `append` the episodes are added to the dataset at `path`, which must agree in all of this; its lineage keeps the
    hash that it had.
    """
    path = Path(path)
    _check_name(name)
    spell_fields(fields)  # which refuses what could not be read again
    named = _spell_names(action_names)
    for what, value in (("image_size", image_size), ("frame_every", frame_every)):
        at_least(what, value)
    writer = _Writer(path, name, fields, image_size, fit, frame_every, named=len(action_names))
    split: Literal["held-out", "training"] = "held-out" if held_out else "training"
    recorded = Recorded(state_fields="", split=split, fit=fit, action_names=named, **dict(source or {}))
    if append:
        return _add_episodes(path, writer, episodes, recorded, total)
    with nothing_half_written(path, "write_dataset"), _nothing_waits(path):
        # A recipe without a root is of a writer that was killed while its parts got their places.
        require_unused(path, None if (path / layout.ROOT_FILE).exists() else layout.RECIPE_FILE)
        _take_all(writer, episodes, f"write {name}", total)
        recipe = writer.finish(recorded)
        claim(path / layout.RECIPE_FILE, recipe, partial(read_config, Recipe))
        writer.publish(recipe)
    return Dataset.open(path)


def _add_episodes(
    path: Path,
    writer: "_Writer",
    episodes: Iterable[Recording | Mapping[str, Any]],
    recorded: Recorded,
    total: int | None,
) -> Dataset:
    """Add episodes to the dataset; it stays what it was until the last of them is written."""
    old = Dataset.open(path, verify="sizes")
    with durable.only_writer(path, "write_dataset"), _nothing_waits(path):
        writer.begin_to_add(old, recorded)
        _take_all(writer, episodes, f"add to {path.name}", total)
        recipe = writer.finish(recorded)
        begun = read_config(Recipe, path / layout.RECIPE_FILE)
        if begun not in (old.recipe, recipe):
            last = (getattr(begun.source, "added", None) or ("",))[-1]
            way = f"is on its way to {begun.episodes} episodes with those of {last!r}"
            raise MismatchError(f"{path}: {way}, found {recipe.episodes} with {recorded.file!r}; finish that first")
        durable.write_config(path / layout.RECIPE_FILE, recipe)
        writer.publish(recipe)
    return Dataset.open(path)


@contextlib.contextmanager
def _nothing_waits(path: Path) -> Iterator[None]:
    """However it ends, no part is left waiting for its place; hold the lock."""
    try:
        yield
    finally:
        durable.remove_leftovers(path)


def _take_all(
    writer: "_Writer", episodes: Iterable[Recording | Mapping[str, Any]], what: str, total: int | None
) -> None:
    with progress(what, total or 0) as advance:
        for episode in episodes:
            writer.add(episode if isinstance(episode, Recording) else _from_mapping(episode))
            advance()


class _Writer:
    """Episodes become parts as they come, which wait for their places: how many there are is known at the end."""

    def __init__(
        self,
        path: Path,
        name: str,
        fields: tuple[StateField, ...],
        image_size: int,
        fit: Fit,
        frame_every: int,
        *,
        named: int,
    ) -> None:
        """`named` is how many numbers of an action have a name: all or none."""
        self._path, self._name, self._fields = path, name, fields
        self._place = durable.temporary_beside(path / "waiting")
        self._size, self._fit, self._every, self._named = image_size, fit, frame_every, named
        self._waiting: list[Episode] = []
        self._written = 0
        self._recipe: Recipe | None = None
        self._old: Dataset | None = None

    def begin_to_add(self, old: Dataset, recorded: Recorded) -> None:
        """Belong to a dataset that is there, or MismatchError that names what differs."""
        require_alike(old, self._name, self._fields, self._size, self._every, recorded)
        self._old, self._recipe = old, old.recipe

    def add(self, recording: Recording) -> None:
        """Check an episode and write the part that it completes."""
        index = self._written + len(self._waiting)
        where = recording.where or str(self._path)
        episode = _checked(where, index, recording, self._size, self._fit, self._every)
        if self._recipe is None:
            self._recipe = self._begun(episode, where)
        layout.check_episode(where, index, episode, self._recipe)
        if self._named not in (0, episode.actions.shape[1]):
            raise MismatchError(f"{where}: action: expected {self._named} numbers, found {episode.actions.shape[1]}")
        if self._old is not None and (twin := _twin(self._old, episode)) is not None:
            there = f"is episode {twin} of {self._old.path} already"
            raise UsageError(f"{where}: episode {index}: {there}; leave it out, or choose another folder")
        self._waiting.append(episode)
        if len(self._waiting) == self._recipe.episodes_per_part:
            self._flush()

    def finish(self, recorded: Recorded) -> Recipe:
        """Write what is left; the recipe of all."""
        if self._recipe is None or not (self._written or self._waiting):
            raise UsageError(f"{self._path}: no episode was given")
        if self._waiting:
            self._flush()
        return self._planned(self._written, replace(recorded, state_fields=spell_fields(self._fields)))

    def publish(self, recipe: Recipe) -> None:
        """The parts get their places and become a dataset, or one that has grown."""
        for part in range(self._old.recipe.parts if self._old else 0, recipe.parts):
            waiting, place = layout.part_path(self._place, part), layout.part_path(self._path, part)
            if _is_same_part(waiting, place):  # it got there before a kill
                continue
            if os.path.lexists(place):  # a killed writer left it, of other episodes; no root names it
                durable.move_directory(place, durable.temporary_beside(waiting))
            durable.move_directory(waiting, place)
        parts.finish(self._path, recipe)

    def _begun(self, episode: Episode, where: str) -> Recipe:
        """What the first episode decides: sizes, and how many episodes make a part."""
        steps, state_dim = len(episode.actions), episode.states.shape[1]
        if not self._fields:
            self._fields = (StateField("state", 0, state_dim),)
        if self._fields[-1].stop != state_dim:
            raise MismatchError(f"{where}: state: expected {self._fields[-1].stop} numbers, found {state_dim}")
        most = min(PART_STEPS // steps, PART_BYTES // max(1, episode.frames.nbytes))
        world = WorldSpec(self._name, episode.actions.shape[1], self._size, "full", "recorded")
        return Recipe(world, "clean", state_dim, 1, self._every, max(1, most), Recorded(state_fields=""))

    def _planned(self, episodes: int, source: Recorded) -> Recipe:
        begun = self._recipe
        assert begun is not None, "an episode was added"
        if self._old is not None:
            return begun.grown(begun.episodes + episodes, source.file)
        return Recipe(
            begun.world, begun.variant, begun.state_dim, episodes, self._every, begun.episodes_per_part, source
        )

    def _flush(self) -> None:
        recipe = self._planned(self._written + len(self._waiting), Recorded(state_fields=""))
        durable.make_folder(self._place)
        parts.write_part(self._place, recipe, recipe.parts - 1, self._waiting)
        self._written += len(self._waiting)
        self._waiting = []


def require_alike(
    old: Dataset, name: str, fields: tuple[StateField, ...], image_size: int, frame_every: int, recorded: Recorded
) -> None:
    """MismatchError that names each option in which other episodes would not be like those of the dataset."""
    recipe, source = old.recipe, old.recipe.source
    options = ("kind", "state_fields", "split", "fit", "action_names")
    found = {option: getattr(source, option, None) for option in options}
    asked = {
        "kind": recorded.kind,
        "state_fields": spell_fields(fields) if fields else found["state_fields"],
        "split": recorded.split,
        "fit": found["fit"] and recorded.fit,  # a dataset that does not know its own is compared without it
        "action_names": found["action_names"] and (recorded.action_names or found["action_names"]),
    }
    world = replace(recipe.world, environment=name, image_size=image_size)
    require_same(
        old.path,
        {"world": to_plain(world), "frame_every": frame_every, "source": asked},
        {"world": to_plain(recipe.world), "frame_every": recipe.frame_every, "source": found},
    )


def _is_same_part(one: Path, other: Path) -> bool:
    """Whether two parts hold the same bytes: their manifests have the hashes of all files."""
    manifests = [part / durable.MANIFEST for part in (one, other)]
    return not other.is_symlink() and manifests[1].is_file() and len({*map(durable.sha256, manifests)}) == 1


def _twin(dataset: Dataset, episode: Episode) -> int | None:
    """The episode of the dataset that is this very one: the same actions, states and first and last frames."""
    steps = len(episode.actions)
    ends = [0, (steps // dataset.recipe.frame_every) * dataset.recipe.frame_every]
    for index in np.flatnonzero(dataset.lengths == steps):
        if np.array_equal(dataset.actions(int(index)), episode.actions) and np.array_equal(
            dataset.states(int(index)), episode.states
        ):
            frames = dataset.read_frames(np.full(2, index), np.array(ends))
            if np.array_equal(frames, episode.frames[[0, -1]]):
                return int(index)
    return None


def _checked(where: str, index: int, recording: Recording, size: int, fit: Fit, every: int) -> Episode:
    """The episode with square frames; an error names file, episode, step and field."""
    name = f"{where}: episode {index}"
    given = _array(name, "action", recording.actions)
    if given.ndim != 2 or not len(given):
        raise ShapeError(f"{name}: action: expected [T, A] with at least one step, found {list(given.shape)}")
    layout.check_finite(name, "action", given)
    actions = _in_single_precision(name, given)
    kept = len(actions) // every + 1
    budget.require(name, f"{kept} frames of {size} pixels", kept * 3 * size**2)
    frames: list[Any] = []
    count = 0
    for count, frame in enumerate(itertools.islice(recording.frames, len(actions) + 2), start=1):
        if (count - 1) % every == 0 and len(frames) < kept:
            frames.append(square(f"{name}, step {count - 1}", frame, size, fit))
    if count != len(actions) + 1:
        found = "more" if count > len(actions) + 1 else count
        raise ShapeError(f"{name}: frame: expected {len(actions) + 1}, one more than actions, found {found}")
    if recording.states is None:  # a clock: so that a state is never a marker
        states = np.arange(count, dtype=np.float64)[:, None]
    else:
        states = _array(name, "state", recording.states)
        if states.ndim != 2 or len(states) != count:
            raise ShapeError(f"{name}: state: expected [{count}, S], one per frame, found {list(states.shape)}")
        layout.check_finite(name, "state", states)
    return Episode(np.stack(frames), actions, states)


def _array(name: str, what: str, values: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(values, np.float64)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"{name}: {what}: expected as many numbers in every row ({error})") from error


def _in_single_precision(name: str, actions: NDArray[np.float64]) -> NDArray[np.float32]:
    """Actions as a dataset keeps them; NonFiniteError for one that would become infinite."""
    with np.errstate(over="ignore"):
        single = actions.astype(np.float32)
    large = np.argwhere(~np.isfinite(single))
    if len(large):
        step, dimension = large[0]
        found = f"{actions[step, dimension]:g} in dimension {dimension}"
        raise NonFiniteError(f"{name}, step {step}: action is {found}, too large for float32; give it in other units")
    return single


def numbers(where: str, name: str, values: list[Any]) -> NDArray[np.float64]:
    """A column of a table [rows] or [rows, columns]; DamagedError for an empty row, or rows of different sizes."""
    if any(value is None for value in values):
        raise DamagedError(f"{where}: {name}: row {values.index(None)} is empty")
    try:
        return np.asarray(values, np.float64)
    except (ValueError, TypeError) as error:
        raise DamagedError(f"{where}: {name}: expected as many numbers in every row ({error})") from error


def require_inside(root: Path, folder: Path) -> None:
    """DamagedError for a link from `folder`, or at it, out of `root`: for libraries that open whatever lies there."""
    for entry in (folder, *folder.rglob("*")):
        durable.inside(root, entry)


def field_name(text: str) -> str:
    """A state field's name from somebody else's, without spaces and commas: a dataset keeps all names in one line."""
    return re.sub(r"[\s,]", "_", text)


def distinct_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Names of actions from somebody else's; none unless each number has one of its own."""
    names = tuple(field_name(text) for text in texts)
    return names if all(names) and len(set(names)) == len(names) else ()


def _spell_names(names: Sequence[str]) -> str | None:
    """Names in one line, as a dataset keeps them; UsageError for those that could not be told apart again."""
    wrong = [name for name in names if not re.fullmatch(r"[^\s,]+", name)]
    if wrong:
        raise UsageError(f"action name {wrong[0]!r}: expected a name without spaces and commas")
    if len(set(names)) < len(names):
        raise UsageError(f"action names: expected different ones, found {', '.join(names)}")
    return ", ".join(names) or None


def choose_camera(path: Path, cameras: list[str], camera: str | None) -> str:
    """The camera that was named, or the only one; UsageError says which there are."""
    if camera is None and len(cameras) != 1:
        named = ", ".join(cameras) or "no picture among what was observed"
        raise UsageError(
            f"{path}: has {len(cameras)} cameras ({named})" + ("; name one with `camera`" if cameras else "")
        )
    chosen = cameras[0] if camera is None else camera
    if chosen not in cameras:
        raise UsageError(f"{path}: no camera {chosen!r}; it has {', '.join(cameras) or 'none'}")
    return chosen


def _from_mapping(episode: Mapping[str, Any]) -> Recording:
    known = {"frames", "actions", "states", "where"}
    if not isinstance(episode, Mapping) or not {"frames", "actions"} <= set(episode) <= known:
        found = sorted(map(str, episode)) if isinstance(episode, Mapping) else type(episode).__name__
        raise UsageError(f"an episode is a dict with frames, actions and perhaps states; found {found}")
    return Recording(**episode)


def _check_name(name: str) -> None:
    from saltwm.envs import ENVIRONMENTS

    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise UsageError(f"name {name!r}: expected lower-case words joined by hyphens, such as my-robot")
    if name in ENVIRONMENTS:
        raise UsageError(f"name {name!r}: is that of a simulated environment; recordings need a name of their own")


@contextlib.contextmanager
def nothing_half_written(path: Path, job: str, kept: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Hold the folder's lock; on any error, remove the folder if it was not there before.

    `kept` are errors after which one goes on there.
    """
    new = not path.exists()
    with durable.only_writer(path, job):
        # Another writer may have made the folder since, and may even be done: it is new if nothing else is there.
        new = new and [entry.name for entry in path.iterdir()] == [durable.LOCK_FILE]
        try:
            yield
        except LockedError:  # the folder is somebody else's by now
            raise
        except kept:
            raise
        except (Exception, KeyboardInterrupt, SystemExit):
            if new and path.exists():
                durable.discard_directory(path)
            raise
