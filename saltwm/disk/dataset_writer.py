"""Writing a dataset: parts that are whole or absent, then the root that makes them a dataset."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm.disk import durable, layout
from saltwm.disk.arrays import create_array, read_table, write_table
from saltwm.disk.claim import claim, require_unused
from saltwm.disk.dataset import OldRoot, hash_of, read_root
from saltwm.disk.durable import read_config
from saltwm.disk.layout import Episode, Recipe, part_path
from saltwm.ground import budget
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.identity import filed, identity
from saltwm.ground.strict_json import to_plain

_PACKAGES = ("saltwm", "numpy", "tensorstore", "gymnasium", "pymunk", "mujoco", "dm_control", "ogbench")


def start(path: Path, recipe: Recipe) -> Recipe:
    """Write the recipe, or check that it is the one begun here; MismatchError names each differing field.

    A finished dataset that differs by having fewer episodes begins to grow. The recipe to go on with: it knows when the
    dataset grew.
    """
    file = path / layout.RECIPE_FILE
    require_unused(path, file.name)
    found = read_config(Recipe, file) if file.exists() else recipe
    if identity(replace(found, episodes=recipe.episodes, stages=None)) == identity(recipe):
        if found.episodes == recipe.episodes:
            recipe = found
        elif recipe.episodes > found.episodes and is_finished(path, found):
            recipe = found.grown(recipe.episodes)
            durable.write_json(file, filed(recipe))
        else:
            raise _cannot_become(path, found, recipe.episodes)
    claim(file, recipe, partial(read_config, Recipe))
    return recipe


def _cannot_become(path: Path, found: Recipe, episodes: int) -> MismatchError:
    if episodes < found.episodes and is_finished(path, found):
        return MismatchError(f"{path}: has {found.episodes} episodes and cannot have {episodes}: a dataset only grows")
    wanted = f"finish it with `episodes` {found.episodes} first, then it can grow"
    return MismatchError(f"{path}: is on its way to {found.episodes} episodes, found `episodes` {episodes}; {wanted}")


def is_finished(path: Path, recipe: Recipe) -> bool:
    """Whether the dataset has all that its recipe names."""
    return (path / layout.ROOT_FILE).exists() and read_root(path).recipe == recipe


def missing_parts(path: Path, recipe: Recipe) -> list[int]:
    """Parts that are still to be written."""
    if recipe.parts > budget.MOST_PARTS:
        raise UsageError(f"{path}: {recipe.parts} parts; expected at most {budget.MOST_PARTS}, with more episodes each")
    return [part for part in range(recipe.parts) if not part_path(path, part).is_dir()]


def write_part(path: Path, recipe: Recipe, part: int, episodes: Iterable[Episode]) -> None:
    """Write one part from its episodes in order; each is checked at the door. Whole or absent."""
    indices = recipe.part_episodes(part)
    actions: list[NDArray[np.float32]] = []
    states: list[NDArray[np.float64]] = []
    with durable.publish_directory(part_path(path, part)) as directory, _system_errors():
        frames = _FrameWriter(directory / "frames", recipe)
        for index, episode in zip(indices, episodes, strict=True):
            layout.check_episode(str(path), index, episode, recipe)
            frames.append(episode.frames)
            actions.append(episode.actions)
            states.append(episode.states)
        frames.finish()
        write_table(directory / "actions", np.concatenate(actions))
        write_table(directory / "states", np.concatenate(states))
        write_table(directory / "lengths", np.array([len(a) for a in actions], np.int64))
        durable.write_json(directory / layout.ROOT_FILE, layout.group_metadata({}))


def finish(path: Path, recipe: Recipe) -> None:
    """Write the root group once every part is there; from then on the directory is a dataset, or one that has grown."""
    old = read_root(path) if recipe.stages else None
    parts, actions = to_plain(old.parts) if old else [], []
    for part in range(recipe.parts):
        directory = part_path(path, part)
        lengths = read_table(directory / "lengths", (len(recipe.part_episodes(part)),), "int64")
        steps = int(lengths.sum())
        actions.append(read_table(directory / "actions", (steps, recipe.world.action_dim), "float32"))
        if part >= len(parts):
            parts.append({"steps": steps, "manifest_sha256": durable.sha256(directory / durable.MANIFEST)})
    every_action = np.concatenate(actions).astype(np.float64)
    attributes: dict[str, Any] = {
        "format": layout.FORMAT,
        "format_version": layout.FORMAT_VERSION,
        "recipe": to_plain(recipe),
        "action_mean": every_action.mean(axis=0).tolist(),
        "action_std": every_action.std(axis=0).tolist(),
        "versions": _package_versions(),
        "parts": parts,
    }
    if old:
        before = OldRoot(old.action_mean, old.action_std, old.versions, old.sha256)
        attributes["lineage"] = to_plain([*(old.lineage or []), before])
    attributes["sha256"] = hash_of(attributes)
    durable.write_json(path / layout.ROOT_FILE, layout.group_metadata(attributes))


def _package_versions() -> dict[str, str]:
    """Versions of the packages that make or store episodes, where installed."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# --- frames ---------------------------------------------------------------------------------------------------------


class _FrameWriter:
    """Frames go to disk a whole shard at a time; their number is known only at the end."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        size = recipe.world.image_size
        most = 2**40  # a bound to write under; `finish` shrinks the array to what came
        metadata = layout.frames_metadata(most, size)
        self._store = create_array(path, metadata)
        shard = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        self._buffer = np.empty(shard, np.uint8)
        self._filled = 0
        self._written = 0

    def append(self, frames: NDArray[np.uint8]) -> None:
        """Add frames [N, H, W, 3]."""
        while len(frames):
            taken = frames[: len(self._buffer) - self._filled]
            self._buffer[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            frames = frames[len(taken) :]
            if self._filled == len(self._buffer):
                self._flush()

    def finish(self) -> None:
        """Write the last, shorter shard."""
        total = self._written + self._filled
        # Shrunk first, so that the rest covers its shard and is written without reading it back.
        self._store = self._store.resize(exclusive_max=[total, None, None, None], resize_metadata_only=True).result()
        if self._filled:
            self._flush()

    def _flush(self) -> None:
        end = self._written + self._filled
        self._store[self._written : end].write(self._buffer[: self._filled]).result()
        self._written, self._filled = end, 0


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """TensorStore reports a full disk as a ValueError; the durable layer wants the system's own error."""
    try:
        yield
    except ValueError as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), str(error)) from error
