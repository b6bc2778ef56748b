"""Unpack the compressed HDF5 files that the field publishes: `.h5.zst` and `.tar.zst`, streamed, in bounded memory."""

import contextlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

import zstandard

from saltwm.disk import durable
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError

_SUFFIXES = (".h5", ".hdf5")
_BLOCK = 4 * 2**20
_PIECE = 4 * 2**10
"""Compressed bytes unpacked at once: at the format's best, 128 kB for every 4 bytes, they become 128 MB."""
MOST_HEADER_BYTES = 4 * 2**20
"""Bytes of a tar archive that are no file's content: enough for thousands of members."""


@contextlib.contextmanager
def unpacked(file: Path, beside: Path) -> Iterator[Path]:
    """Yield an HDF5 file: `file` itself, or its content unpacked beside `beside` for the time of the block.

    An interrupted import unpacks again: nothing that lies there is trusted to be the content of `file`.
    """
    if file.suffix in _SUFFIXES:
        yield file
        return
    name = file.name.lower()
    if not name.endswith((".tar.zst", *(f"{suffix}.zst" for suffix in _SUFFIXES))):
        raise UsageError(f"{file}: expected a file ending in .h5, .hdf5, .h5.zst or .tar.zst")
    durable.remove_leftovers_of(beside)
    with durable.scratch_file(beside) as target:
        _unpack(file, target, name.endswith(".tar.zst"))
        yield target


class _Limit:
    """Bytes that an archive may unpack to; DamagedError beyond that, which names the archive."""

    def __init__(self, archive: Path) -> None:
        self._archive, self._most = archive, budget.unpacked_bytes(archive.stat().st_size)
        self._left = self._most

    def take(self, size: int) -> None:
        """Count these bytes as well."""
        self._left -= size
        if self._left < 0:
            raise DamagedError(
                f"{self._archive}: unpacks to more than {self._most / 2**30:.3g} GB, "
                f"{self._most // max(1, self._archive.stat().st_size)} times its size; "
                f"if it is really that large, set {budget.VARIABLE}"
            )


class _Bounded:
    """Writes to a file, up to the limit."""

    def __init__(self, out: IO[bytes], limit: _Limit) -> None:
        self._out, self._limit = out, limit

    def write(self, data: bytes) -> int:
        """Write all of it, or nothing."""
        self._limit.take(len(data))
        return self._out.write(data)


class _TarStream:
    """Reads a tar archive up to the limit: content that was announced, and few bytes beside it.

    tarfile holds a header whole, however long it says it is, and keeps those of every member that it passes.
    """

    def __init__(self, stream: IO[bytes], archive: Path) -> None:
        self._stream, self._archive, self._limit = stream, archive, _Limit(archive)
        self._expected = MOST_HEADER_BYTES

    def read(self, size: int) -> bytes:
        """The next bytes, `size` at most."""
        data = self._stream.read(size)
        self._limit.take(len(data))
        self._expected -= len(data)
        if self._expected < 0:
            most = f"{MOST_HEADER_BYTES // 2**20} MB"
            raise DamagedError(f"{self._archive}: its headers take more than {most}; pack the .h5 file alone")
        return data

    def announce(self, size: int) -> None:
        """The content of a member comes next."""
        self._expected += max(0, size)


def _unpack(file: Path, target: Path, is_tar: bool) -> None:
    try:
        with open(file, "rb", buffering=_BLOCK) as packed, open(target, "wb") as out:
            bounded = _Bounded(out, _Limit(file))
            decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
            if is_tar:
                stream = _TarStream(decompressor.stream_reader(packed, read_across_frames=True), file)
                _copy_from_tar(stream, bounded, file)
            else:
                _copy_frames(decompressor, packed, bounded)
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise DamagedError(f"{file}: cannot be unpacked: {error}") from error


def _copy_frames(decompressor: zstandard.ZstdDecompressor, packed: IO[bytes], out: _Bounded) -> None:
    """Copy what all frames hold; EOFError if the last is cut short, which a `stream_reader` takes for its end."""
    frame = decompressor.decompressobj()
    while piece := packed.read(_PIECE):
        while piece:
            if frame.eof:
                frame = decompressor.decompressobj()
            out.write(frame.decompress(piece))
            piece = frame.unused_data
    if not frame.eof:
        raise EOFError("it ends inside a frame; fetch it again")


def _copy_from_tar(stream: _TarStream, out: _Bounded, file: Path) -> None:
    """Copy the archive's first HDF5 file; no name in the archive is ever used as a path."""
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive:  # which reads, and nothing else
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise DamagedError(f"{file}: holds {member.name!r}, a path that leaves the archive")
            wanted = member.isreg() and path.suffix in _SUFFIXES
            if wanted or (member.isreg() and not member.issparse()):  # holes are in its size, not in the archive
                stream.announce(member.size)
            if wanted:
                content = archive.extractfile(member)
                assert content is not None, "a regular file has content"
                shutil.copyfileobj(content, out, _BLOCK)
                return
    raise DamagedError(f"{file}: holds no .h5 file")
