"""What may be shown: checkpoints, results and datasets in the folders that were given, each under a name of its own.

The page names things by these names and never by a path, and nothing is read that a link leads to outside.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saltwm.ground.errors import DamagedError, UsageError

Kind = Literal["model", "results", "dataset"]
MARKS: dict[str, Kind] = {
    "checkpoint.json": "model",
    "run.json": "model",
    "zarr.json": "dataset",
    "evaluations": "results",
}
"""The entry that tells what a folder is."""
MOST_PLACES = 200
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that show them to this machine alone."""
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that listen at every address of this machine; nobody calls it by them."""


@dataclass(frozen=True)
class Place:
    """A folder that may be shown."""

    name: str
    """What the page calls it."""
    kind: Kind
    path: str


def find_places(given: Iterable[Path]) -> list[Place]:
    """Every checkpoint, results folder and dataset among the given folders, or one level inside them."""
    found: dict[Path, Kind] = {}
    for path in given:
        if not path.is_dir():
            raise UsageError(f"{path}: no such folder; give checkpoints, results or datasets to explore")
        here = dict(_recognised(path))
        if not here:
            raise UsageError(
                f"{path}: neither a checkpoint, a results folder nor a dataset, and none is in it", remedy="reproduce"
            )
        found |= here
    if len(found) > MOST_PLACES:
        raise UsageError(f"{len(found)} folders to explore, at most {MOST_PLACES} are shown; give fewer")
    return _named(found)


def _recognised(path: Path) -> Iterator[tuple[Path, Kind]]:
    """The folder itself, or what is inside it; a link to another place is not followed."""
    kind = _kind(path)
    if kind is not None:
        yield path, kind
        return
    for child in sorted(path.iterdir()):
        kind = _kind(child) if child.is_dir() and not child.is_symlink() else None
        if kind is not None:
            yield child, kind


def _kind(path: Path) -> Kind | None:
    return next((kind for mark, kind in MARKS.items() if (path / mark).exists()), None)


def _named(found: dict[Path, Kind]) -> list[Place]:
    """Folder names, with the parent's where two are alike, with a number where that does not help either."""
    places: dict[str, Place] = {}
    for path, kind in found.items():
        whole = path.resolve()
        candidates = [whole.name, f"{whole.parent.name}/{whole.name}"]
        candidates += [f"{whole.name} ({number})" for number in range(2, len(found) + 2)]
        name = next(name for name in candidates if name not in places)
        places[name] = Place(name, kind, str(whole))
    return list(places.values())


def inside(root: Path, relative: str) -> Path:
    """A file under `root`; DamagedError if its name or a link would lead elsewhere."""
    path = root / relative
    try:
        real = path.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise DamagedError(f"{root}: it names {relative!r:.80}, which is not there") from error
    if not real.is_relative_to(root.resolve()):
        raise DamagedError(f"{root}: {relative!r:.80} leads outside of it; nothing outside is read")
    return real


def require_no_links(folder: Path) -> None:
    """DamagedError for the first link in a checkpoint or dataset: a published folder never has one."""
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(where, name)):
                raise DamagedError(f"{Path(where) / name}: is a link; nothing that links lead to is read")
