"""The only place that writes files: whole or absent, synced, hashed, and by one writer at a time.

Every file is written beside its place under a temporary name, synced, and moved over it; a directory is filled under
a temporary name and moved as one. A crash at any moment leaves the old state or the new one, and leftovers whose name
says so (`.tmp-...`), which the next writer removes.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

from saltwm.ground import strict_json
from saltwm.ground.errors import DamagedError, DiskError, LockedError, UsageError

T = TypeVar("T")

TMP_PREFIX = ".tmp-"
MANIFEST = "manifest.json"
_DISK_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}


def _before_step(step: str, path: Path) -> None:
    """Called before each durable step; the fault tests replace it to crash exactly there."""


# --- files ------------------------------------------------------------------------------------------------------


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by a file that holds `data`; readers see the old file or the new one, nothing between."""
    _replace(Path(path), lambda temporary: temporary.write_bytes(data), len(data))


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a UTF-8 file."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by strict JSON: no NaN, no infinity, nothing that is not plain data."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The bytes of such a file."""
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_config(path: Path, value: Any) -> None:
    """Replace `path` by a dataclass as strict JSON."""
    write_json(path, strict_json.to_plain(value))


def write_file(path: Path, save: Callable[[Path], object]) -> None:
    """Replace `path` by what `save(temporary)` writes: for libraries that want a file name (images, safetensors)."""
    _replace(Path(path), save, None)


def _replace(path: Path, save: Callable[[Path], object], size: int | None) -> None:
    _require_place(path)
    temporary = path.with_name(f"{TMP_PREFIX}{os.getpid()}-{path.name}")
    with _disk_errors(path, size), _removed_on_failure(temporary):
        _before_step("write", path)
        save(temporary)
        sync_file(temporary)
        _before_step("replace", path)
        os.replace(temporary, path)
        _sync_directory(path.parent)


def _require_place(path: Path) -> None:
    """UsageError unless there is a folder for a file at `path`, and no folder in its stead."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, expected a file")


def append_json_line(path: Path, value: Any) -> None:
    """Append one record to a JSON-lines file; a crash can cut only the last line, and readers say so."""
    line = json_line(value)
    with _disk_errors(Path(path), len(line)):
        _before_step("append", Path(path))
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)


def json_line(value: Any) -> str:
    """A record as one line of a JSON-lines file."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    """Strict JSON: duplicate keys, NaN and infinities are damage, and the error names the file."""
    text = read_text(path)
    try:
        return strict_json.parse(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not valid JSON: {error}") from error


def read_config(kind: type[T], path: Path) -> T:
    """The dataclass that `write_config` wrote; DamagedError names the file, the field and what was found."""
    return strict_json.from_plain(kind, read_json(path), str(path))


def read_text(path: Path) -> str:
    """The file's UTF-8 text."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path}: not a UTF-8 text file: {error}") from error


def read_bytes(path: Path) -> bytes:
    """The file's bytes; a missing file is a usage error."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path}: is a directory, expected a file") from error
    except PermissionError as error:
        raise UsageError(f"{path}: no permission to read it") from error


def read_json_lines(path: Path) -> list[Any]:
    """The records of a JSON-lines file; a half-written last line is left out, damage before it is an error."""
    lines = read_text(path).split("\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(strict_json.parse(line))
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"{path}: line {number}: not valid JSON: {error}") from error
    return records


# --- directories ------------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """A folder at `path`, with those above it; one that is there is left as it is."""
    with _disk_errors(path, None):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{path}: cannot be a folder: there is a file of that name, or above it") from error


def check_folder(path: Path) -> None:
    """UsageError if `make_folder` would find a file there: asked before long work whose results go to that folder."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"{path}: cannot be a folder: {there} is a file; choose another")


@contextlib.contextmanager
def publish_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Fill the yielded temporary directory; on success it gets a manifest of hashes and becomes `path` in one move.

    With `replace` a directory at `path` makes room at the last moment and is removed after that: hold
    `only_replacer`, which brings it back if a kill came between.
    """
    path = Path(path)
    temporary = path.with_name(f"{TMP_PREFIX}{os.getpid()}-{path.name}")
    make_folder(path.parent)
    with _disk_errors(path, None), _removed_on_failure(temporary):
        shutil.rmtree(temporary, ignore_errors=True)
        make_folder(temporary)
        yield temporary
        write_json(temporary / MANIFEST, file_hashes(temporary))
        for file in temporary.rglob("*"):
            if file.is_file():
                sync_file(file)
            else:
                _sync_directory(file)
        _sync_directory(temporary)
        _before_step("publish", path)
        with _set_aside(path) if replace else contextlib.nullcontext():
            os.replace(temporary, path)
            _sync_directory(path.parent)


@contextlib.contextmanager
def _set_aside(path: Path) -> Iterator[None]:
    """A directory at `path` makes room for the one that is moved there inside; if none is, it comes back."""
    aside = _aside(path)
    if path.exists():
        path.rename(aside)
    try:
        _before_step("swap", path)
        yield
    finally:
        _bring_back(path)
    _before_step("remove", path)
    if aside.exists():
        shutil.rmtree(aside)


def _bring_back(path: Path) -> None:
    """What was set aside for a successor that never came."""
    if not path.exists() and _aside(path).exists():
        _aside(path).rename(path)


def _aside(path: Path) -> Path:
    return path.with_name(f"{TMP_PREFIX}old-{path.name}")


def discard_directory(path: Path) -> None:
    """Out of sight in one move, then gone: a crash between the two leaves only a leftover."""
    doomed = _aside(path)
    with _disk_errors(path, None):
        _before_step("hide", path)
        path.rename(doomed)
        _before_step("remove", path)
        shutil.rmtree(doomed)


def file_hashes(directory: Path) -> dict[str, dict[str, Any]]:
    """{relative path: {"bytes": size, "sha256": hex}} for every file below `directory` but its manifest."""
    files = sorted(file for file in directory.rglob("*") if file.is_file() and file != directory / MANIFEST)
    return {
        file.relative_to(directory).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files
    }


def verify_directory(directory: Path, *, hashes: bool = True, besides: Collection[str] = ()) -> None:
    """DamagedError unless the directory holds exactly the files of its manifest; `hashes=False` compares sizes only.

    Files called as in `besides` may be there too: nobody reads them but people.
    """
    directory = Path(directory)
    manifest = read_json(directory / MANIFEST)
    if not isinstance(manifest, dict):
        raise DamagedError(f"{directory / MANIFEST}: expected an object of files")
    present = {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}
    for name in sorted(set(manifest) - present):
        raise DamagedError(f"{directory / name}: missing, though {MANIFEST} lists it")
    for name in sorted(present - set(manifest) - {MANIFEST, *besides}):
        raise DamagedError(f"{directory / name}: not listed in {MANIFEST}")
    for name, entry in manifest.items():
        file = directory / name
        if not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
            raise DamagedError(f"{directory / MANIFEST}: {name}: expected bytes and sha256")
        if file.is_symlink():
            raise DamagedError(f"{file}: is a link; a published file is never one")
        if file.stat().st_size != entry["bytes"]:
            raise DamagedError(f"{file}: {file.stat().st_size} bytes, expected {entry['bytes']}: truncated or altered")
        if hashes and sha256(file) != entry["sha256"]:
            raise DamagedError(f"{file}: its SHA-256 is not the one in {MANIFEST}: altered since it was written")


def remove_leftovers(directory: Path) -> None:
    """Remove what crashed writers left half-written here; call it only under the directory's lock."""
    for leftover in Path(directory).glob(f"{TMP_PREFIX}*"):
        _remove(leftover)


def _remove_leftovers_of(path: Path) -> None:
    """Remove what crashed writers of this one directory left beside it, and nothing of its neighbours."""
    mine = re.compile(rf"{re.escape(TMP_PREFIX)}(\d+|old)-{re.escape(path.name)}")
    for neighbour in list(path.parent.iterdir()):
        if mine.fullmatch(neighbour.name):
            _remove(neighbour)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):  # not below a file, where nothing can be and unlink would object
        path.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hex digest of the file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex digest of a value's canonical JSON: what identifies task sets, datasets and configs."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _remove(temporary)
        raise


@contextlib.contextmanager
def _disk_errors(path: Path, size: int | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRNOS:
            raise
        wanted = "" if size is None else f" {size} bytes"
        raise DiskError(
            f"{path}: cannot write{wanted}: {os.strerror(error.errno or 0)}; what was saved is intact"
        ) from error


# --- one writer -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def only_writer(directory: Path, job: str) -> Iterator[None]:
    """Hold the directory's lock, or LockedError naming who does. The kernel frees it when the holder dies."""
    directory = Path(directory)
    make_folder(directory)
    with _locked(directory / ".lock", directory, job):
        remove_leftovers(directory)
        yield


@contextlib.contextmanager
def only_replacer(path: Path, job: str) -> Iterator[None]:
    """Hold the right to replace the directory `path`, or LockedError naming who does; its parent is anybody's.

    What a killed replacer set aside is brought back, what it left half-written is removed, and nothing but `path`
    itself stays behind.
    """
    path = Path(path)
    make_folder(path.parent)
    lock = path.with_name(f".{path.name}.lock")
    with _locked(lock, path, job):
        try:
            _bring_back(path)
            _remove_leftovers_of(path)
            yield
        finally:
            lock.unlink()


@contextlib.contextmanager
def _locked(lock: Path, what: Path, job: str) -> Iterator[None]:
    """Hold the lock on the file `lock`, which says for others who does and why."""
    with _disk_errors(lock, None):
        opened = open(lock, "a+", encoding="utf-8")  # noqa: SIM115
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise LockedError(f"{what}: in use by {holder}; wait for it or stop it") from error
        if not (lock.exists() and os.path.samestat(lock.stat(), os.fstat(file.fileno()))):
            # Its last holder removed the file after we opened it: what we locked is nobody's any more.
            raise LockedError(f"{what}: was in use a moment ago; repeat the command")
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = f"saltwm {job} (process {os.getpid()} on {socket.gethostname()}, since {started})"
        with _disk_errors(lock, len(holder)):
            file.truncate(0)
            os.write(file.fileno(), holder.encode())  # unbuffered: closing the file must not try, and fail, again
        yield
