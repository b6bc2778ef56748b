"""Recordings of other people's formats: which format a path is in, and its episodes as a dataset."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from saltwm.disk.claim import require_same
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import ROOT_FILE, Recorded
from saltwm.envs.base import StateField
from saltwm.ground.checks import at_least
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.frames import Fit, square
from saltwm.ground.progress import progress
from saltwm.interop.folders import open_folder
from saltwm.interop.lance_table import open_lance
from saltwm.interop.lerobot import open_lerobot
from saltwm.interop.minari_data import open_minari
from saltwm.interop.recordings import Recording, require_alike, write_dataset

Format = Literal["lerobot", "lance", "minari", "folder"]
DECODERS_DIFFER = 16
"""Levels of 255 by which two decoders may differ on a picture: those of another version or machine round otherwise."""


class Source(Protocol):
    """Episodes in some format, opened and looked at."""

    @property
    def episodes(self) -> Any:
        """As long as there are episodes."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """What the numbers of a state are called."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the numbers of an action are called; none where the format does not say."""

    def recordings(self) -> Iterator[Recording]:
        """The episodes, one after another."""


OPEN: dict[Format, Callable[[Path, str | None], Source]] = {
    "lerobot": open_lerobot,
    "lance": open_lance,
    "minari": open_minari,
    "folder": open_folder,
}


def format_of(path: Path) -> Format:
    """What a path looks like; UsageError unless it is a folder."""
    if not path.is_dir():
        raise UsageError(f"{path}: expected a benchmark file (.h5, .h5.zst, .tar.zst) or a folder of recordings")
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    if path.suffix == ".lance" or any(path.glob("*.lance")):
        return "lance"
    return "minari" if any(path.glob("**/main_data.hdf5")) else "folder"


def import_recordings(
    path: Path,
    out: Path,
    *,
    name: str | None = None,
    kind: Format | None = None,
    camera: str | None = None,
    image_size: int = 64,
    fit: Fit = "pad",
    episodes: int | None = None,
    frame_every: int = 1,
    append: bool = False,
) -> Dataset:
    """Write the episodes of a folder as a dataset; nothing stays of one that is refused.

    A dataset that came from this folder takes the episodes that it lacks; with `append` it takes those of any folder.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    at_least("episodes", episodes)
    kind = kind or format_of(path)
    source = OPEN[kind](path, camera)
    count = len(source.episodes)
    if episodes is not None and episodes > count:
        raise UsageError(f"{path}: has {count} episodes, {episodes} were asked for")
    wanted: Iterator[Recording] = itertools.islice(source.recordings(), episodes)
    if not append and (out / ROOT_FILE).exists():
        old = _same_source(out, kind, path, camera)
        like = Recorded(state_fields="", fit=fit)
        require_alike(old, name or _slug(path), source.fields, image_size, frame_every, like)
        if (episodes or count) < len(old):
            had = f"has {len(old)} episodes and cannot have {episodes or count}"
            raise MismatchError(f"{out}: {had}: a dataset only grows")
        _pass_over(wanted, old, path, fit)
        if (episodes or count) == len(old):
            return old
        append = True
    return write_dataset(
        out,
        wanted,
        append=append,
        name=name or _slug(path),
        fields=source.fields,
        action_names=source.action_names,
        image_size=image_size,
        fit=fit,
        frame_every=frame_every,
        source={"format": kind, "file": path.name, "camera": camera or ""},
        total=episodes or count,
    )


def _same_source(out: Path, kind: Format, path: Path, camera: str | None) -> Dataset:
    """The dataset at `out`; MismatchError unless all of it came from this folder."""
    old = Dataset.open(out)
    source = old.recipe.source
    files = {getattr(source, "file", ""), *(getattr(source, "added", None) or ())}
    asked = {"format": kind, "file": path.name, "camera": camera or ""}
    found = {name: getattr(source, name, "") for name in asked} | {"file": ", ".join(sorted(files))}
    require_same(out, asked, found, remedy="append")
    return old


def _pass_over(recordings: Iterator[Recording], old: Dataset, path: Path, fit: Fit) -> None:
    """Pass over the episodes that the dataset has; MismatchError for one that is another now.

    Compared are actions, states and the first frame: the others are not decoded again.
    """
    with progress(f"compare with {old.path.name}", len(old)) as advance:
        for index, recording in enumerate(itertools.islice(recordings, len(old))):
            where = f"{path}: episode {index}"
            if (other := _difference(where, recording, old, index, fit)) is not None:
                raise MismatchError(f"{where}: its {other} of episode {index} in {old.path}")
            advance()


def _difference(where: str, recording: Recording, old: Dataset, index: int, fit: Fit) -> str | None:
    """What of a recording is not as episode `index` has it, in words; None if nothing is."""
    with np.errstate(over="ignore"):
        actions = np.asarray(recording.actions, np.float32)
    if not np.array_equal(actions, old.actions(index)):
        return "actions are not those"
    if recording.states is not None and not np.array_equal(np.asarray(recording.states, np.float64), old.states(index)):
        return "states are not those"
    size, shown = old.world.image_size, itertools.islice(recording.frames, 1)
    first = [square(f"{where}, step 0", frame, size, fit).astype(int) for frame in shown]
    then = old.read_frames(np.array([index]), np.array([0]))
    is_same = bool(first) and np.abs(first - then).max() <= DECODERS_DIFFER
    return None if is_same else "first frame is not that"


def _slug(path: Path) -> str:
    """A name from the folder's: My Robot (2) becomes my-robot-2."""
    return "-".join(re.findall(r"[a-z0-9]+", path.stem.lower())) or "recorded"
