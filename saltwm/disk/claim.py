"""Whose folder it is: a job writes its record there first, and from then on only the same job goes on there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from saltwm.disk import durable
from saltwm.ground.errors import MismatchError
from saltwm.ground.identity import differences, filed, identity


def claim(file: Path, record: Any, read: Callable[[Path], Any], remedy: str | None = None) -> None:
    """Write `record` to `file`, or MismatchError if `read` finds another one there."""
    require_own(file, record, read, remedy)
    if not file.exists():
        durable.write_json(file, filed(record))


def require_own(file: Path, record: Any, read: Callable[[Path], Any], remedy: str | None = None) -> None:
    """MismatchError that names each differing field if `file` holds the record of another job; paths decide nothing."""
    if not file.exists():
        return
    different = differences(identity(record), identity(read(file)))
    if different:
        raise MismatchError(
            f"{file.parent}: belongs to another job ({'; '.join(different)}); "
            "repeat its options, or choose another folder",
            remedy=remedy,
        )
