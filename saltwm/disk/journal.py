"""A run's journal: what was measured at which step, how fast that went, and when the latents count as collapsing.

RUN/metrics.jsonl    what was measured at which step; no clock in it, so repeating a run repeats its bytes
RUN/timing.jsonl     how fast that went, on how many processes; each session starts with a row at 0 s
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saltwm.disk import durable
from saltwm.ground.errors import DamagedError

Row = dict[str, Any]
Tracker = Callable[[int, dict[str, float]], None]
"""Receives (step, values)."""

METRICS_FILE = "metrics.jsonl"
TIMING_FILE = "timing.jsonl"
FILES = (METRICS_FILE, TIMING_FILE)
_NEEDED = {
    METRICS_FILE: ("step", "effective_rank", "latent_std"),
    TIMING_FILE: ("step", "processes", "seconds", "frames_per_second", "waited_fraction", "seconds_left"),
}
COLLAPSE_RANK = 3.0
"""Below this effective rank the latents no longer tell states apart, and the run says so."""
COLLAPSE_STD = 0.1
"""Below this mean spread, which SIGReg holds near 1, they shrink to a point, whatever their rank."""


# --- reading ---------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a journal's file, none before the first; DamagedError for one that lacks what its readers need."""
    rows = durable.read_json_lines(path) if path.exists() else []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not all(type(value) in (int, float) for value in row.values()):
            raise DamagedError(f"{path}: line {number}: expected an object of numbers, found {row!r:.80}")
        if missing := [name for name in _NEEDED[path.name] if name not in row]:
            raise DamagedError(f"{path}: line {number}: {missing[0]} is missing")
        if type(row["step"]) is not int:
            raise DamagedError(f"{path}: line {number}: expected an integer step, found {row['step']!r:.80}")
    return rows


def sickness(row: Row) -> str | None:
    """What is wrong with the latents after a measurement, in a few words; None if nothing is."""
    rank, spread = row["effective_rank"], row["latent_std"]
    if row["step"] > 1 and (rank < COLLAPSE_RANK or spread < COLLAPSE_STD):
        return f"the latents use {rank:.1f} dimensions with a spread of {spread:.2f}; they are collapsing"
    return None


def total_seconds(run: Path) -> float | None:
    """Total training time: the sum over sessions in timing.jsonl; a killed session counts to its last row."""
    rows = read_rows(run / TIMING_FILE)
    if not rows:
        return None
    last_of_session = [row for row, after in itertools.pairwise(rows) if after["seconds"] < row["seconds"]]
    return float(sum(row["seconds"] for row in (*last_of_session, rows[-1])))


# --- writing ---------------------------------------------------------------------------------------------------------


class Journal:
    """Written by one process, and cut back to the checkpoint that a resumed run starts from."""

    def __init__(self, run: Path, done: int, processes: int, trackers: Sequence[Tracker] = ()) -> None:
        self._metrics, self._timing = run / METRICS_FILE, run / TIMING_FILE
        _keep_rows(self._metrics, lambda row: row["step"] <= done)
        before = _keep_rows(self._timing, lambda row: True)
        self.processes_before: int | None = before[-1]["processes"] if before else None
        """Processes of the session before this one."""
        self._processes = processes
        self._trackers = trackers

    def started(self, step: int) -> None:
        """Append where this session starts; its clock starts at 0, which tells sessions apart."""
        standing = dict.fromkeys(("seconds", "frames_per_second", "waited_fraction", "seconds_left"), 0.0)
        durable.append_json_line(self._timing, {"step": step, "processes": self._processes, **standing})

    def measured(self, step: int, metrics: dict[str, float]) -> None:
        """Append a measurement."""
        durable.append_json_line(self._metrics, {"step": step, **metrics})
        for track in self._trackers:
            track(step, metrics)

    def timed(self, step: int, speed: dict[str, float]) -> None:
        """Append how fast it goes."""
        durable.append_json_line(self._timing, {"step": step, "processes": self._processes, **speed})
        for track in self._trackers:
            track(step, speed)

    def sync(self) -> None:
        """Wait until the curves are on the disk: a checkpoint must not outlive the measurements that led to it."""
        if self._metrics.exists():
            durable.sync_file(self._metrics)


def _keep_rows(path: Path, wanted: Callable[[Row], bool]) -> list[Row]:
    """Rewrite a JSON-lines file without a half-written last line and without rows that are not wanted."""
    rows = [row for row in read_rows(path) if wanted(row)]
    durable.write_text(path, "".join(durable.json_line(row) for row in rows))
    return rows
