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
from saltwm.ground.frames import Fit
from saltwm.interop.folders import open_folder
from saltwm.interop.lance_table import open_lance
from saltwm.interop.lerobot import open_lerobot
from saltwm.interop.minari_data import open_minari
from saltwm.interop.recordings import Recording, require_alike, write_dataset

Format = Literal["lerobot", "lance", "minari", "folder"]


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
        _pass_over(wanted, old, path)
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


def _pass_over(recordings: Iterator[Recording], old: Dataset, path: Path) -> None:
    """Pass over the episodes that the dataset has; MismatchError for one that is another now. No frame is decoded."""
    for index, recording in enumerate(itertools.islice(recordings, len(old))):
        pairs: dict[str, tuple[Any, Any]] = {"actions": (np.asarray(recording.actions, np.float32), old.actions(index))}
        if recording.states is not None:
            pairs["states"] = np.asarray(recording.states, np.float64), old.states(index)
        for what, (now, then) in pairs.items():
            if not np.array_equal(now, then):
                raise MismatchError(
                    f"{path}: episode {index}: its {what} are not those of episode {index} in {old.path}"
                )


def _slug(path: Path) -> str:
    """A name from the folder's: My Robot (2) becomes my-robot-2."""
    return "-".join(re.findall(r"[a-z0-9]+", path.stem.lower())) or "recorded"
