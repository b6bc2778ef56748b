"""A Lance table as stable-worldmodel writes it: a row per frame, pictures as JPEG or PNG, rows of an episode together.

Columns: episode_idx, step_idx, action, pixels (or pixels_VIEW), and any others that hold numbers. The last action of an
episode leads to no frame and is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import StateField
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.ground.extras import needs
from saltwm.interop.pictures import read_picture
from saltwm.interop.recordings import NUMBER_BYTES, Recording, choose_camera, numbers, require_inside

STATE_COLUMNS = ("state", "proprio", "observation_state")
"""The first of these that is there is the state."""
ROWS_AT_ONCE = 64
SMALLEST_NUMBER = 2
"""Bytes of a number in the table, at least."""


@dataclass(frozen=True)
class LanceTable:
    """An opened table."""

    path: Path
    table: Any
    camera: str
    state: str | None
    first: NDArray[np.int64]
    """[E + 1], first row of each episode, and the number of rows"""

    @property
    def episodes(self) -> range:
        """Numbers of the episodes."""
        return range(len(self.first) - 1)

    @property
    def fields(self) -> tuple[StateField, ...]:
        """One field for the state column."""
        width = int(getattr(self.table.schema.field(self.state).type, "list_size", 1)) if self.state else 1
        return (StateField(self.state or "step", 0, width),)

    @property
    def action_names(self) -> tuple[str, ...]:
        """None: the format has no place for them."""
        return ()

    def recordings(self) -> Iterator[Recording]:
        """The episodes, one after another."""
        for episode in self.episodes:
            start, stop = int(self.first[episode]), int(self.first[episode + 1])
            where = f"{self.path}: episode {episode}"
            actions = self._numbers(where, "action", start, stop)
            states = self._numbers(where, self.state, start, stop) if self.state else None
            yield Recording(self._frames(where, start, stop), actions[:-1], states, str(self.path))

    def _numbers(self, where: str, name: str, start: int, stop: int) -> NDArray[np.float64]:
        """A column of an episode, a few rows at a time: how much a row holds is known when it is read."""
        values: list[Any] = []
        size = 0
        for first in range(start, stop, ROWS_AT_ONCE):
            rows = self.table.to_table(columns=[name], offset=first, limit=min(ROWS_AT_ONCE, stop - first))
            size += NUMBER_BYTES * rows.nbytes // SMALLEST_NUMBER
            budget.require(where, f"{name} of {first + len(rows) - start} rows", size)
            values += rows[name].to_pylist()
        found = numbers(where, name, values)
        return found[:, None] if found.ndim == 1 else found

    def _frames(self, where: str, start: int, stop: int) -> Iterator[NDArray[np.uint8]]:
        """The pictures of an episode, a few read at a time: one may be repeated over many rows of a small file."""
        for first in range(start, stop, ROWS_AT_ONCE):
            rows = self.table.to_table(columns=[self.camera], offset=first, limit=min(ROWS_AT_ONCE, stop - first))
            for step, value in enumerate(rows[self.camera].to_pylist(), first - start):
                yield read_picture(f"{where}, step {step}", value)


def open_lance(path: Path, camera: str | None = None) -> LanceTable:
    """The table at PATH, or the only table in the folder PATH."""
    with needs("lance", "a Lance table"):
        import lance
    inside = sorted(path.glob("*.lance"))
    place = path if path.suffix == ".lance" else inside[0] if len(inside) == 1 else None
    if place is None or not place.is_dir():
        raise UsageError(f"{path}: expected a folder NAME.lance or one that holds a single one, found {len(inside)}")
    require_inside(path, place)
    try:
        table = lance.dataset(str(place))
    except (ValueError, OSError) as error:
        raise DamagedError(f"{place}: not a readable Lance table ({str(error).splitlines()[0][:200]})") from error
    names = table.schema.names
    lacking = [name for name in ("episode_idx", "action") if name not in names]
    if lacking:
        raise DamagedError(f"{place}: has no column {lacking[0]!r}; it has {', '.join(names)}")
    for name in {"episode_idx", "step_idx"} & set(names):
        if not (kind := str(table.schema.field(name).type)).startswith(("int", "uint")):
            raise DamagedError(f"{place}: {name}: expected whole numbers, found {kind}")
    cameras = [name for name in names if name == "pixels" or name.startswith("pixels_")]
    state = next((name for name in STATE_COLUMNS if name in names), None)
    for name in ("action", *([state] if state else [])):
        _require_fixed_size(place, name, table.schema.field(name).type)
    return LanceTable(place, table, choose_camera(place, cameras, camera), state, _first_rows(place, table))


def _first_rows(place: Path, table: Any) -> NDArray[np.int64]:
    """Where episodes begin; DamagedError if rows of one are apart or out of order."""
    columns = ["episode_idx", *(["step_idx"] if "step_idx" in table.schema.names else [])]
    budget.require(place, f"{table.count_rows()} rows", NUMBER_BYTES * len(columns) * table.count_rows())
    rows = table.to_table(columns=columns)
    numbers = np.asarray(rows["episode_idx"])
    if not len(numbers):
        raise DamagedError(f"{place}: the table is empty")
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    if len(np.unique(numbers[starts])) != len(starts):
        raise DamagedError(f"{place}: episode_idx: the rows of an episode do not stand together")
    first = np.append(starts, len(numbers)).astype(np.int64)
    if "step_idx" in columns:
        within = np.arange(len(numbers)) - np.repeat(first[:-1], np.diff(first))
        wrong = np.flatnonzero(np.asarray(rows["step_idx"]) != within)
        if len(wrong):
            episode, step = int(numbers[wrong[0]]), int(within[wrong[0]])
            raise DamagedError(f"{place}: episode {episode}: step_idx: expected {step}, found a gap or another order")
    return first


def _require_fixed_size(place: Path, name: str, kind: Any) -> None:
    """UsageError for lists of any length: how much a row holds would be known only once it is read."""
    if hasattr(kind, "value_type") and not hasattr(kind, "list_size"):
        wanted = f"pyarrow.list_({kind.value_type}(), N)"
        raise UsageError(f"{place}: {name}: expected lists of one size, {wanted}, found {kind}; write the table so")
