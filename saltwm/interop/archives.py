"""Unpack the compressed HDF5 files that the field publishes: `.h5.zst` and `.tar.zst`, streamed, in bounded memory."""

import contextlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import zstandard

from saltwm.disk import durable
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError

_SUFFIXES = (".h5", ".hdf5")
_BLOCK = 4 * 2**20
_PIECE = 4 * 2**10
"""Compressed bytes unpacked at once: at the format's best, 128 kB for every 4 bytes, they become 128 MB."""


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


class _Bounded:
    """Writes up to `most` bytes to a file; DamagedError beyond that, which names the archive."""

    def __init__(self, out: IO[bytes], most: int, archive: Path) -> None:
        self._out, self._left, self._most, self._archive = out, most, most, archive

    def write(self, data: bytes) -> int:
        """Write all of it, or nothing."""
        self._left -= len(data)
        if self._left < 0:
            raise DamagedError(
                f"{self._archive}: unpacks to more than {self._most / 2**30:.3g} GB, "
                f"{self._most // max(1, self._archive.stat().st_size)} times its size; "
                f"if it is really that large, set {budget.VARIABLE}"
            )
        return self._out.write(data)


def _unpack(file: Path, target: Path, is_tar: bool) -> None:
    try:
        with open(file, "rb", buffering=_BLOCK) as packed, open(target, "wb") as out:
            bounded = _Bounded(out, budget.unpacked_bytes(file.stat().st_size), file)
            decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
            if is_tar:
                _copy_from_tar(decompressor.stream_reader(packed, read_across_frames=True), bounded, file)
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


def _copy_from_tar(stream: IO[bytes], out: _Bounded, file: Path) -> None:
    """Copy the archive's first HDF5 file; no name in the archive is ever used as a path."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise DamagedError(f"{file}: holds {member.name!r}, a path that leaves the archive")
            if member.isreg() and path.suffix in _SUFFIXES:
                content = archive.extractfile(member)
                assert content is not None, "a regular file has content"
                shutil.copyfileobj(content, out, _BLOCK)
                return
    raise DamagedError(f"{file}: holds no .h5 file")
