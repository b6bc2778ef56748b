"""A folder of videos, or of folders with pictures, each with a CSV of the same name.

    FOLDER/take-1.mp4   FOLDER/take-1.csv        or  FOLDER/take-1/*.png   FOLDER/take-1.csv

The CSV has a header and a row per frame. Columns called action... make the action, columns called state... the state, a
column called time or timestamp is checked for gaps, others are left alone. The last row's action leads to no frame and
may be empty.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saltwm.disk import durable
from saltwm.envs.base import StateField
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.interop.pictures import read_picture
from saltwm.interop.recordings import Recording
from saltwm.interop.video import read_video

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
PICTURES = (".png", ".jpg", ".jpeg")
CELL_BYTES = 64
"""Memory that a cell of a table takes, about."""


@dataclass(frozen=True)
class Folder:
    """The takes of a folder, in the order of their names."""

    path: Path
    episodes: list[tuple[Path, Path]]
    """Frames and CSV of each."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """A field for each state column, named as it is: state_x has the name x."""
        names = [name for name in _read(self.episodes[0][1])[0] if name.startswith("state")]
        if not names:
            return (StateField("step", 0, 1),)
        return tuple(StateField(name[5:].strip("_ .") or "state", i, i + 1) for i, name in enumerate(names))

    def recordings(self) -> Iterator[Recording]:
        """The takes, one after another."""
        for frames, table in self.episodes:
            header, rows = _read(table)
            actions = _columns(table, header, rows[:-1], "action")
            if actions is None:
                raise DamagedError(f"{table}: has no column that begins with action; it has {', '.join(header)}")
            _check_time(table, header, rows)
            shown = read_video(frames) if frames.is_file() else _pictures(frames)
            yield Recording(shown, actions, _columns(table, header, rows, "state"), str(table))


def open_folder(path: Path, camera: str | None = None) -> Folder:
    """The takes of a folder; UsageError if there are none, DamagedError if one has no CSV."""
    if camera is not None:
        raise UsageError(f"{path}: a folder of videos has one camera; leave `camera` out")
    takes = sorted(
        entry
        for entry in path.iterdir()
        if (entry.is_file() and entry.suffix.lower() in VIDEOS)
        or (entry.is_dir() and any(file.suffix.lower() in PICTURES for file in entry.iterdir()))
    )
    if not takes:
        raise UsageError(f"{path}: neither videos ({', '.join(VIDEOS)}) nor folders of pictures are there")
    tables = [take.with_suffix(".csv") if take.is_file() else take.parent / f"{take.name}.csv" for take in takes]
    for take, table in zip(takes, tables, strict=True):
        if not table.is_file():
            raise DamagedError(f"{take}: its actions are missing; expected them in {table.name}")
    return Folder(path, list(zip(takes, tables, strict=True)))


def _pictures(take: Path) -> Iterator[NDArray[np.uint8]]:
    for file in sorted(file for file in take.iterdir() if file.suffix.lower() in PICTURES):
        yield read_picture(str(file), file)


def _read(table: Path) -> tuple[list[str], list[list[str]]]:
    budget.require(table, "its rows", CELL_BYTES * table.stat().st_size // 2)  # a cell takes two bytes at least
    with io.TextIOWrapper(durable.open_input(table), encoding="utf-8", newline="") as file:
        try:
            header, *rows = [row for row in csv.reader(file) if row]
        except (ValueError, csv.Error, UnicodeDecodeError) as error:
            raise DamagedError(f"{table}: not a CSV with a header ({error})") from error
    if len(rows) < 2:
        raise DamagedError(f"{table}: expected a row per frame, at least two, found {len(rows)}")
    return [name.strip() for name in header], rows


def _columns(table: Path, header: list[str], rows: list[list[str]], kind: str) -> NDArray[np.float64] | None:
    """Columns whose name begins with `kind`, as numbers [rows, columns]; None if there are none."""
    places = [place for place, name in enumerate(header) if name.lower().startswith(kind)]
    values = np.empty((len(rows), len(places)))
    for line, row in enumerate(rows):
        for column, place in enumerate(places):
            try:
                values[line, column] = float(row[place])
            except (ValueError, IndexError) as error:
                found = row[place] if place < len(row) else ""
                raise DamagedError(f"{table}: row {line + 2}: {header[place]} is {found!r}, not a number") from error
    return values if places else None


def _check_time(table: Path, header: list[str], rows: list[list[str]]) -> None:
    times = [place for place, name in enumerate(header) if name.lower() in {"time", "timestamp"}]
    if not times:
        return
    seconds = _columns(table, ["time" if i == times[0] else "" for i in range(len(header))], rows, "time")
    assert seconds is not None
    steps = np.diff(seconds[:, 0])
    usual = float(np.median(steps))
    off = np.abs(steps - usual) > 0.5 * usual
    if usual <= 0 or off.any():
        line = int(np.argmax(off))
        raise DamagedError(
            f"{table}: row {line + 2}: {steps[line]:.3f} s to the next row, usually {usual:.3f}: frames are missing or "
            "the rate varies; cut the take there"
        )
