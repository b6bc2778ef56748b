"""A folder of videos, or of folders with pictures, each with a CSV of the same name.

    FOLDER/take-1.mp4   FOLDER/take-1.csv        or  FOLDER/take-1/*.png   FOLDER/take-1.csv

The CSV has a header and a row per frame. Columns called action... make the action, columns called state... the state, a
column called time or timestamp is checked for gaps, others are left alone. The last row's action leads to no frame and
may be empty. Columns go by their names: those of the first take decide the order for all. Takes and pictures go by the
numbers in their names: frame_2 comes before frame_10.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm.disk import durable
from saltwm.envs.base import StateField
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, NonFiniteError, UsageError
from saltwm.interop.pictures import read_picture
from saltwm.interop.recordings import Recording, distinct_names, field_name
from saltwm.interop.video import read_video

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
PICTURES = (".png", ".jpg", ".jpeg")
CELL_BYTES = 64
"""Memory that a cell of a table takes, about."""
COUNTS = re.compile(r"([0-9]+)")
MEASURES = re.compile(r"([0-9]+(?:\.[0-9]+)?)")
"""What a number in a name may be: where 1.5 and 1.10 count, 1.10 comes last; where they are seconds, it comes first."""


@dataclass(frozen=True)
class Folder:
    """The takes of a folder, in the order of their names."""

    path: Path
    episodes: list[tuple[Path, Path]]
    """Frames and CSV of each."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """A field for each state column, named as it is: state_x has the name x."""
        names = _names(_read(self.episodes[0][1])[0], "state")
        if not names:
            return (StateField("step", 0, 1),)
        return tuple(StateField(field_name(name[5:].strip("_ .")) or "state", i, i + 1) for i, name in enumerate(names))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The action columns, named as they are: action_x has the name x."""
        names = _names(_read(self.episodes[0][1])[0], "action")
        return distinct_names(name[6:].strip("_ .") or "action" for name in names)

    def recordings(self) -> Iterator[Recording]:
        """The takes, one after another."""
        first, _ = _read(self.episodes[0][1])
        for frames, table in self.episodes:
            header, rows = _read(table)
            if not _names(header, "action"):
                raise DamagedError(f"{table}: has no column that begins with action; it has {', '.join(header)}")
            actions, states = (_places(table, header, _names(first, kind), kind) for kind in ("action", "state"))
            _check_time(table, header, rows)
            shown = read_video(frames) if frames.is_file() else _pictures(frames)
            state = _columns(table, header, rows, states) if states else None
            yield Recording(shown, _columns(table, header, rows[:-1], actions), state, str(table))


def open_folder(path: Path, camera: str | None = None) -> Folder:
    """The takes of a folder; UsageError if there are none, DamagedError if one has no CSV."""
    if camera is not None:
        raise UsageError(f"{path}: a folder of videos has one camera; leave `camera` out")
    takes = _in_order([entry for entry in path.iterdir() if _is_take(entry)])
    if not takes:
        raise UsageError(f"{path}: neither videos ({', '.join(VIDEOS)}) nor folders of pictures are there")
    tables = [take.with_suffix(".csv") if take.is_file() else take.parent / f"{take.name}.csv" for take in takes]
    for take, table in zip(takes, tables, strict=True):
        if not table.is_file():
            raise DamagedError(f"{take}: its actions are missing; expected them in {table.name}")
        durable.inside(path, take)
        durable.inside(path, table)
    return Folder(path, list(zip(takes, tables, strict=True)))


def _is_take(entry: Path) -> bool:
    if entry.is_dir():
        return any(file.suffix.lower() in PICTURES for file in entry.iterdir())
    return entry.is_file() and entry.suffix.lower() in VIDEOS


def _pictures(take: Path) -> Iterator[NDArray[np.uint8]]:
    for file in _in_order([file for file in take.iterdir() if file.suffix.lower() in PICTURES]):
        yield read_picture(str(file), durable.inside(take.parent, file))


def _in_order(entries: list[Path]) -> list[Path]:
    """By name, numbers in it by their value; DamagedError where names leave the order open, as 1 beside 01 does."""
    counted = sorted(entries, key=lambda entry: _parts(entry, COUNTS))
    measured = sorted(counted, key=lambda entry: _parts(entry, MEASURES))
    doubts = [pair for pair in itertools.pairwise(counted) if _parts(pair[0], COUNTS) == _parts(pair[1], COUNTS)]
    doubts += [pair for pair in zip(counted, measured, strict=True) if pair[0] != pair[1]]
    if doubts:
        one, other = doubts[0]
        wanted = "expected numbers of as many digits in every name, such as 001, 002, 003"
        raise DamagedError(f"{one}: may come before or after {other.name}; {wanted}")
    return counted


def _parts(entry: Path, number: re.Pattern[str]) -> list[Any]:
    """A name in parts, text and number in turn, without the ending of a file."""
    parts = number.split(entry.name if entry.is_dir() else entry.stem)
    return [Decimal(part) if at % 2 else part for at, part in enumerate(parts)]


def _read(table: Path) -> tuple[list[str], list[list[str]]]:
    budget.require(table, "its rows", CELL_BYTES * table.stat().st_size // 2)  # a cell takes two bytes at least
    with io.TextIOWrapper(durable.open_input(table), encoding="utf-8-sig", newline="") as file:
        try:
            header, *rows = [row for row in csv.reader(file) if row]
        except (ValueError, csv.Error, UnicodeDecodeError) as error:
            raise DamagedError(f"{table}: not a CSV with a header ({error})") from error
    if len(rows) < 2:
        raise DamagedError(f"{table}: expected a row per frame, at least two, found {len(rows)}")
    return [name.strip() for name in header], rows


def _names(header: list[str], kind: str) -> list[str]:
    return [name for name in header if name.lower().startswith(kind)]


def _places(table: Path, header: list[str], wanted: list[str], kind: str) -> list[int]:
    """Where the table has the columns that the first take has of this kind, in that order."""
    lower = [name.lower() for name in header]
    found = _names(lower, kind)
    if sorted(found) != sorted(name.lower() for name in wanted):
        columns = [", ".join(names) or f"no {kind}" for names in (wanted, _names(header, kind))]
        raise DamagedError(f"{table}: columns: expected {columns[0]} as in the first take, found {columns[1]}")
    if twice := [name for at, name in enumerate(found) if name in found[:at]]:
        raise DamagedError(f"{table}: two columns are called {twice[0]}; give each a name of its own")
    return [lower.index(name.lower()) for name in wanted]


def _columns(table: Path, header: list[str], rows: list[list[str]], places: list[int]) -> NDArray[np.float64]:
    """The columns at these places as numbers [rows, columns]."""
    values = np.empty((len(rows), len(places)))
    for line, row in enumerate(rows):
        for column, place in enumerate(places):
            try:
                values[line, column] = float(row[place])
            except (ValueError, IndexError) as error:
                found = row[place] if place < len(row) else ""
                raise DamagedError(f"{table}: row {line + 2}: {header[place]} is {found!r}, not a number") from error
    return values


def _check_time(table: Path, header: list[str], rows: list[list[str]]) -> None:
    times = [place for place, name in enumerate(header) if name.lower() in {"time", "timestamp"}]
    if not times:
        return
    seconds = _columns(table, header, rows, times[:1])[:, 0]
    unknown = np.flatnonzero(~np.isfinite(seconds))
    if len(unknown):  # no gap would be found: NaN is not larger than anything
        found = f"{header[times[0]]} is {seconds[unknown[0]]}"
        raise NonFiniteError(f"{table}: row {unknown[0] + 2}: {found}; give every row its time")
    steps = np.diff(seconds)
    usual = float(np.median(steps))
    off = np.abs(steps - usual) > 0.5 * usual
    if usual <= 0 or off.any():
        line = int(np.argmax(off))
        raise DamagedError(
            f"{table}: row {line + 2}: {steps[line]:.3f} s to the next row, usually {usual:.3f}: frames are missing or "
            "the rate varies; cut the take there"
        )
