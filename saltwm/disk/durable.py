"""The only place that writes files: whole or absent, synced, hashed, and by one writer at a time.

Every file is written beside its place under a temporary name, synced, and moved over it; a directory is filled under
a temporary name and moved as one. A crash at any moment leaves the old state or the new one, and leftovers whose name
says so (`.tmp-saltwm-...`), which the next writer removes.

Nothing that lies in a folder leads a writer out of it: temporary names cannot be guessed, locks and journals are opened
only if they are regular files with one name, and below the folder that a writer holds no link is followed.
"""

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeVar

from saltwm.ground import budget, strict_json
from saltwm.ground.errors import DamagedError, DiskError, LockedError, UsageError

T = TypeVar("T")

TMP_PREFIX = ".tmp-saltwm-"
_MADE_HERE = re.compile(rf"{re.escape(TMP_PREFIX)}(old|[0-9a-f]{{16}})-(?P<name>.+)", re.DOTALL)
MANIFEST = "manifest.json"
LOCK_FILE = ".lock"
_NOT_OWN = "a link, a pipe, a folder or a file with a second name, so nothing is written there; remove it"
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
    _require_held(path)
    temporary = temporary_beside(path)
    with _disk_errors(path, size), _removed_on_failure(temporary):
        _before_step("write", path)
        save(temporary)
        sync_file(temporary)
        _before_step("replace", path)
        os.replace(temporary, path)
        _sync_directory(path.parent)


def temporary_beside(path: Path) -> Path:
    """A new name in the same folder, which nobody can have guessed and laid a link at."""
    return path.with_name(f"{TMP_PREFIX}{secrets.token_hex(8)}-{path.name}")


def _require_place(path: Path) -> None:
    """UsageError unless there is a folder for a file at `path`, and no folder in its stead."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, expected a file")


def append_json_line(path: Path, value: Any) -> None:
    """Append one record to a JSON-lines file; a crash can cut only the last line, and readers say so."""
    line = json_line(value).encode()
    _require_held(Path(path))
    with _disk_errors(Path(path), len(line)):
        _before_step("append", Path(path))
        with open_log(Path(path)) as file:
            file.write(line)


def open_log(path: Path) -> IO[bytes]:
    """The file at `path`, made if need be, to append to; DamagedError for a link, a pipe or a second name."""
    return os.fdopen(_open_own(path, os.O_WRONLY | os.O_APPEND), "ab")


def _open_own(path: Path, flags: int) -> int:
    """Descriptor of the regular file at `path`, made if need be; DamagedError for a link, a pipe or a second name."""
    try:
        # Not blocking: opening a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise DamagedError(f"{path}: {_NOT_OWN}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise DamagedError(f"{path}: {_NOT_OWN}")
    return descriptor


@contextlib.contextmanager
def scratch_file(beside: Path) -> Iterator[Path]:
    """The name of a file beside `beside` that is gone after the block; `remove_leftovers_of` finds it after a kill."""
    temporary = temporary_beside(beside)
    with _disk_errors(temporary, None):
        try:
            yield temporary
        finally:
            _remove(temporary)


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
    """The file's bytes; a missing file is a usage error, one that is larger than the budget is damage."""
    try:
        with open_input(path) as file:
            budget.require(path, "the file", os.fstat(file.fileno()).st_size)
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path}: is a directory, expected a file") from error
    except PermissionError as error:
        raise UsageError(f"{path}: no permission to read it") from error


def open_input(path: Path) -> BufferedReader:
    """The regular file at `path`, to be read; DamagedError for a pipe or a device, which may never end."""
    try:
        # Not blocking: opening a pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise DamagedError(f"{path}: is a socket, expected a file") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise DamagedError(f"{path}: is a pipe or a device, expected a file")


def inside(root: Path, path: Path) -> Path:
    """`path` itself, which lies below `root`; DamagedError if a link or its name leads elsewhere, or nowhere."""
    try:
        real = path.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise DamagedError(f"{path}: leads to nothing; put the file itself there") from error
    if not real.is_relative_to(root.resolve()):
        raise DamagedError(f"{path}: leads out of {root}, and nothing outside is read; put the file itself there")
    return path


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
    _require_held(path / "...")
    with _disk_errors(path, None):
        new = list(itertools.takewhile(lambda place: not place.exists(), (path, *path.parents)))
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{path}: cannot be a folder: there is a file of that name, or above it") from error
        # The name of a folder is an entry of the one above it, which a power cut may forget.
        for folder in (*new, *(top.parent for top in new[-1:])):
            _sync_directory(folder)


def check_folder(path: Path) -> None:
    """Fail early: UsageError if the path or a parent is a file, before long work whose results go there."""
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
    temporary = temporary_beside(path)
    make_folder(path.parent)
    with _disk_errors(path, None), _removed_on_failure(temporary):
        temporary.mkdir()
        yield temporary
        _require_held(path)
        write_json(temporary / MANIFEST, file_hashes(temporary))
        for file in temporary.rglob("*"):
            if file.is_file():
                sync_file(file)
            else:
                _sync_directory(file)
        _sync_directory(temporary)
        _before_step("publish", path)
        _require_held(path)
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
    if not os.path.lexists(path) and _aside(path).is_dir() and not _aside(path).is_symlink():
        _aside(path).rename(path)


def _aside(path: Path) -> Path:
    return path.with_name(f"{TMP_PREFIX}old-{path.name}")


def move_directory(source: Path, path: Path) -> None:
    """A published directory gets its place beside others, in one move."""
    _require_held(path)
    with _disk_errors(path, None):
        _before_step("move", path)
        os.replace(source, path)
        _sync_directory(path.parent)


def discard_directory(path: Path) -> None:
    """Out of sight in one move, then gone: a crash between the two leaves only a leftover."""
    doomed = temporary_beside(path)
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

    Files and folders that match a pattern of `besides` may be there too; they do not belong to it.
    """
    directory = Path(directory)
    manifest = read_json(directory / MANIFEST)
    if not isinstance(manifest, dict):
        raise DamagedError(f"{directory / MANIFEST}: expected an object of files")
    present = {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}
    for name in sorted(set(manifest) - present):
        raise DamagedError(f"{directory / name}: missing, though {MANIFEST} lists it")
    for name in sorted(present - set(manifest) - {MANIFEST}):
        if any(fnmatch.fnmatchcase(name.partition("/")[0], pattern) for pattern in besides):
            continue
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
    for entry in list(Path(directory).glob(f"{TMP_PREFIX}*")):
        if is_leftover(entry.name):
            _remove(entry)


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is half-written: at work, or left by a writer that crashed."""
    return _MADE_HERE.fullmatch(name) is not None


def remove_leftovers_of(path: Path) -> None:
    """Remove what crashed writers of `path` left beside it, and nothing of its neighbours; hold its lock."""
    for neighbour in list(path.parent.iterdir()):
        made = _MADE_HERE.fullmatch(neighbour.name)
        if made and made["name"] == path.name:
            _remove(neighbour)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):  # not below a file, where nothing can be and unlink would object
        path.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hex digest of the file."""
    with open_input(path) as file:
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


@dataclass(frozen=True)
class _Held:
    """A lock of this process: what it guards, and the file or folder whose identity proves that it still does."""

    folder: Path
    proof: Path
    is_folder: bool
    """Whether everything below `folder` is guarded, or only `folder` itself."""
    identity: os.stat_result


_held: list[_Held] = []


def _require_held(path: Path) -> None:
    """LockedError if the lock over `path` was removed or replaced; DamagedError for a link between the two."""
    path = Path(os.path.abspath(path))
    for held in _held:
        if not (path == held.folder or (held.is_folder and path.is_relative_to(held.folder))):
            continue
        if not _is_same(held.proof, held.identity):
            raise LockedError(f"{held.proof}: removed or replaced by somebody else; stopped before the next save")
        between = max(0, len(path.parts) - len(held.folder.parts) - 1)
        for place in path.parents[:between]:
            if place.is_symlink():
                raise DamagedError(f"{place}: {_NOT_OWN}")


def _is_same(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), found)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def only_writer(directory: Path, job: str) -> Iterator[None]:
    """Hold the directory's lock, or LockedError naming who does. The kernel frees it when the holder dies.

    The directory itself is locked too, so that who removes `.lock` lets nobody in.
    """
    directory = Path(directory)
    make_folder(directory)
    with _locked(directory / LOCK_FILE, directory, job) as lock, _folder_locked(directory) as folder:
        proof = (directory, folder) if folder is not None else (directory / LOCK_FILE, lock)
        with _holding(_Held(Path(os.path.abspath(directory)), proof[0], True, os.fstat(proof[1]))):
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
    place = path.with_name(f".{path.name}.lock")
    with _locked(place, path, job) as lock, _holding(_Held(Path(os.path.abspath(path)), place, False, os.fstat(lock))):
        try:
            _bring_back(path)
            remove_leftovers_of(path)
            yield
        finally:
            if _is_same(place, os.fstat(lock)):
                place.unlink()


@contextlib.contextmanager
def _holding(held: _Held) -> Iterator[None]:
    _held.append(held)
    try:
        yield
    finally:
        _held.remove(held)


@contextlib.contextmanager
def _folder_locked(folder: Path) -> Iterator[int | None]:
    """Hold a lock on the folder itself; None where the file system locks no folders, as some networks' do not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LockedError(f"{folder}: in use by a process whose .lock was removed; wait for it or stop it") from error
    except OSError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(lock: Path, what: Path, job: str) -> Iterator[int]:
    """Hold the lock on the file `lock`, which names for others who does and why; yields its descriptor."""
    with _disk_errors(lock, None):
        opened = _open_own(lock, os.O_RDWR)
    with os.fdopen(opened, "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = file.read(400).decode(errors="replace").strip() or "another process"
            raise LockedError(f"{what}: in use by {holder}; wait for it or stop it") from error
        if not _is_same(lock, os.fstat(file.fileno())):
            # Its last holder removed the file after we opened it: what we locked is nobody's any more.
            raise LockedError(f"{what}: was in use a moment ago; repeat the command")
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = f"saltwm {job} (process {os.getpid()} on {socket.gethostname()}, since {started})"
        with _disk_errors(lock, len(holder)):
            file.truncate(0)
            file.write(holder.encode())
        yield file.fileno()
