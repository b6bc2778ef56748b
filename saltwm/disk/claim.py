"""Whose folder it is: a job writes its record there first, and from then on only the same job goes on there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from saltwm.disk import durable
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.identity import filed, identity
from saltwm.ground.strict_json import differences


def claim(file: Path, record: Any, read: Callable[[Path], Any], remedy: str | None = None) -> None:
    """Write `record` to `file`, or MismatchError if `read` finds another one there."""
    require_own(file, record, read, remedy)
    if not file.exists():
        durable.write_json(file, filed(record))


def require_own(file: Path, record: Any, read: Callable[[Path], Any], remedy: str | None = None) -> None:
    """MismatchError if `file` holds the record of another job; paths decide nothing."""
    if file.exists():
        require_same(file.parent, identity(record), identity(read(file)), remedy)


def is_own(file: Path, record: Any, read: Callable[[Path], Any]) -> bool:
    """Whether `file` holds this very record."""
    return file.is_file() and not differences(identity(record), identity(read(file)))


def require_same(folder: Path, expected: Any, found: Any, remedy: str | None = None) -> None:
    """MismatchError that names each field in which the identity found in `folder` is not the expected one."""
    if different := differences(expected, found):
        raise MismatchError(
            f"{folder}: belongs to another job ({'; '.join(different)}); repeat its options, or choose another folder",
            remedy=remedy,
        )


def require_unused(folder: Path, own: str | None = None) -> None:
    """UsageError if the folder holds anything, but not the file `own` that a job of this kind leaves."""
    durable.check_folder(folder)
    strangers = sorted(e.name for e in folder.iterdir() if e.name != durable.LOCK_FILE) if folder.exists() else []
    if strangers and own not in strangers:
        raise UsageError(f"{folder}: not empty (it holds {strangers[0]}); choose another folder")


def require_outside_datasets(path: Path, remedy: str) -> None:
    """UsageError for a place in a dataset: what is written there would make it one that nothing opens any more."""
    from saltwm.disk.layout import RECIPE_FILE

    place = path.resolve()
    around = next((folder for folder in (place, *place.parents) if (folder / RECIPE_FILE).is_file()), None)
    if around is not None:
        what = "a dataset" if around == place else f"lies in the dataset {around.name}"
        raise UsageError(f"{path}: {what}", remedy=remedy)
