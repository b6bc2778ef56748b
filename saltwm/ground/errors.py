"""What can go wrong, as a person meets it: one line that says where, what was expected and what to do.

The exit codes are a promise to scripts; see docs/promises.md.
"""

import re
from pathlib import Path


class SaltError(Exception):
    """An error that a user can act on; the command line prints its message without a traceback.

    A message names an option by its field in backquotes, such as `frame_every`; the command line shows it as a flag.
    `remedy` says in a word what would help, such as `finish` or `make a dataset`, at `path`: the command line has the
    command for it.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None, path: Path | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.path = path


class UsageError(SaltError):
    """The request itself cannot be carried out: an unknown name, a missing path, options that contradict."""

    exit_code = 2


class MismatchError(SaltError):
    """Two things that must belong together do not: a checkpoint and an environment, two task sets."""

    exit_code = 3


class ShapeError(MismatchError):
    """An array has another shape or dtype than the function's contract says."""


class NonFiniteError(SaltError):
    """A NaN or an infinity where a number must be."""

    exit_code = 4


class LockedError(SaltError):
    """Another process is writing here."""

    exit_code = 5


class DamagedError(SaltError):
    """A file is truncated, altered, incomplete or not of its kind."""

    exit_code = 6


class DiskError(SaltError):
    """The disk is full or refuses the write; what was saved before is intact."""

    exit_code = 7


class OutOfMemory(SaltError):
    """The system did not give the memory that was asked for; what was saved before is intact."""


class Stopped(SaltError):
    """Stopped by a signal after saving; the same command goes on from here."""

    def __init__(self, message: str, signal_number: int = 2) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


def not_a_run(path: Path) -> UsageError:
    """There is no run.json at `path`: what is there instead, and what to do about it."""
    if not path.exists():
        return UsageError(f"{path}: no training run is there", remedy="train", path=path)
    if (path / "zarr.json").exists():
        return UsageError(f"{path}: a dataset, not a training run", remedy="look at the data", path=path)
    if (path / "checkpoint.json").exists():
        return UsageError(f"{path}: a checkpoint, not a training run", remedy="look at the model", path=path)
    inside = sorted(child for name in ("run.json", "checkpoint.json") for child in path.glob(f"*/{name}"))
    hint = f"; {inside[0].parent} is one" if inside else ""
    return UsageError(f"{path}: not a training run or checkpoint (no run.json){hint}")


BENCHMARK_FILES = (".h5", ".hdf5", ".h5.zst", ".hdf5.zst", ".tar.zst")
"""Endings of the public benchmark's files."""
_VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".csv", ".parquet")
"""Endings of files that recordings have in their folder."""


def not_a_dataset(path: Path) -> UsageError:
    """There is no folder at `path`: what is there instead, and what to do about it."""
    if not path.exists():
        return UsageError(f"{path}: no such dataset", remedy="collect", path=path)
    if path.name.lower().endswith(BENCHMARK_FILES):
        return UsageError(f"{path}: a file, not a dataset folder", remedy="import", path=path)
    if path.name.lower().endswith(_VIDEOS):
        return UsageError(f"{path}: a file, not a dataset folder", remedy="import its folder", path=path.parent)
    return UsageError(f"{path}: a file, not a dataset folder")


def out_of_memory(error: MemoryError | RuntimeError) -> OutOfMemory | None:
    """The error in one line, if it is a lack of memory: Python, NumPy and torch each say so in their own way."""
    text = " ".join(str(error).split())
    if not isinstance(error, MemoryError) and "allocate memory" not in text and "out of memory" not in text.lower():
        return None
    size = re.search(r"allocate (\d[\d.]* ?[A-Za-z]+)", text)
    asked = f" of {size[1]}" if size else ""
    return OutOfMemory(
        f"out of memory: a request{asked} was refused; ask for less at once (`workers`, `batch_size`, a planner's "
        "candidates); nothing that was saved is lost"
    )
