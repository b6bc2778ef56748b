"""The field's own files: HDF5 with one row per frame, as stable-worldmodel writes and reads it.

A row holds a frame, the state at that moment and the action that leaves it; the action of an episode's last row leads
nowhere and is NaN. An episode of n rows becomes n frames, n states and n-1 actions, and NaN is gone.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.disk import dataset_writer as parts
from saltwm.disk import durable, layout
from saltwm.disk.claim import require_same
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import read_config
from saltwm.disk.layout import PART_STEPS, Episode, Imported, Recipe
from saltwm.envs import env_class
from saltwm.envs.base import StateColumn
from saltwm.ground import budget
from saltwm.ground.checks import at_least
from saltwm.ground.config import WorldSpec
from saltwm.ground.errors import DamagedError, DiskError, MismatchError, Stopped, UsageError
from saltwm.ground.progress import progress
from saltwm.ground.strict_json import to_plain
from saltwm.interop.archives import unpacked
from saltwm.interop.recordings import nothing_half_written
from saltwm.processes.stopping import stop_signal

BLOCK_ROWS = 100
"""Rows read or written at a time where the file does not say: the released files' chunk."""
MAX_CHUNK_BYTES = 256 * 2**20
STATE_COLUMN = "saltwm_state"
"""The whole state, in files that saltwm exported: benchmark columns hold only parts of it, some in single precision."""
ALIGNMENT_EPISODES = 50
ROW_BYTES = 64
"""Memory that comparing the index columns takes for each row."""
GOES_ON = (DiskError, Stopped, OSError, MemoryError)
"""Errors after which the parts that are complete stay, and the same command goes on."""


# --- import ---------------------------------------------------------------------------------------------------------


def import_hdf5(
    file: Path | str,
    env: str,
    out: Path | str,
    image_size: int | None = None,
    episodes: int | None = None,
) -> Dataset:
    """Turn a benchmark file (.h5, .h5.zst, .tar.zst) into a dataset at `out`, or go on with an interrupted import.

    Frames keep the file's size or are averaged down to `image_size`; `episodes` takes only the first ones.
    """
    file, out = Path(file), Path(out)
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    fields = {field.name: slice(field.start, field.stop) for field in env_class(env).state_fields}
    with nothing_half_written(out, "data import", kept=GOES_ON):
        with _unchanged(file) as sha256:
            old = None
            if (out / layout.ROOT_FILE).exists():
                old = _same_import(Dataset.open(out), file, sha256, env, image_size, episodes)
                image_size = old.world.image_size
            if old is not None and _is_all(old, episodes):
                return old
            with unpacked(file, out) as source, _opened(source) as h5:
                table = _Table(h5, str(file), env, fields)
                recipe = _recipe(table, file, sha256, env, image_size, episodes)
                if old is not None and _is_all(old, recipe.episodes):  # without `episodes` the file says how many
                    return old
                recipe = parts.start(out, recipe)
                _import_missing(table, recipe, out)
        parts.finish(out, recipe)
    return Dataset.open(out)


def _is_all(dataset: Dataset, episodes: int | None) -> bool:
    """Whether the dataset has this many episodes and is not on its way to more."""
    begun = read_config(Recipe, dataset.path / layout.RECIPE_FILE)
    return len(dataset) == episodes and parts.is_finished(dataset.path, begun)


@contextlib.contextmanager
def _unchanged(file: Path) -> Iterator[str]:
    """Yield the file's SHA-256; DamagedError if it is another file at the end of the block than at its start."""
    before = file.stat()
    yield durable.sha256(file)
    after = file.stat()
    if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
        raise DamagedError(f"{file}: changed while it was read; import it into another directory")


def _recipe(table: "_Table", file: Path, sha256: str, env: str, image_size: int | None, episodes: int | None) -> Recipe:
    found = table.image_size
    size = found if image_size is None else image_size
    if not 1 <= size <= found:
        raise UsageError(f"{file}: frames of {found} pixels cannot become {size}")
    count = len(table.lengths)
    if episodes is not None and not 1 <= episodes <= count:
        raise UsageError(f"{file}: has {count} episodes, {episodes} were asked for")
    longest = int(table.lengths.max())
    budget.require(file, f"an episode of {longest} frames of {size} pixels", longest * 3 * size**2)
    return Recipe(
        world=WorldSpec(env, table.action_dim, size, "full", "imported"),
        variant="paper",
        state_dim=env_class(env).state_dim,
        episodes=episodes or count,
        frame_every=1,
        episodes_per_part=max(1, int(PART_STEPS // table.lengths.mean())),
        source=Imported(
            file=file.name,
            bytes=file.stat().st_size,
            zero_state_fields=", ".join(table.unknown_fields),
            sha256=sha256,
        ),
    )


def _same_import(
    dataset: Dataset, file: Path, sha256: str, env: str, image_size: int | None, episodes: int | None
) -> Dataset:
    """A finished import, if it is the one asked for or can grow to it."""
    recipe = dataset.recipe
    found = recipe.source
    require_same(dataset.path, {"source": Imported.kind}, {"source": found.kind})
    assert isinstance(found, Imported)
    world = dataclasses.replace(
        recipe.world, environment=env, image_size=recipe.world.image_size if image_size is None else image_size
    )
    # A dataset that does not know its file's hash is compared without it.
    source = dataclasses.replace(found, file=file.name, bytes=file.stat().st_size, sha256=found.sha256 and sha256)
    asked = dataclasses.replace(recipe, world=world, source=source)
    if (episodes or len(dataset)) < len(dataset):
        had = f"has {len(dataset)} episodes and cannot have {episodes}"
        raise MismatchError(f"{dataset.path}: {had}: a dataset only grows")
    require_same(dataset.path, to_plain(asked), to_plain(recipe))
    return dataset


def _import_missing(table: "_Table", recipe: Recipe, out: Path) -> None:
    """Write the missing parts one after another, so that the file is read from front to back."""
    todo = parts.missing_parts(out, recipe)
    done = recipe.episodes - sum(len(recipe.part_episodes(part)) for part in todo)
    with stop_signal() as stopped_by, progress(f"import {recipe.world.environment}", recipe.episodes, done) as advance:

        def stored(part: int) -> Iterator[Episode]:
            for index in recipe.part_episodes(part):
                if stopped_by():
                    message = f"{out}: stopped; what is complete is kept, the same command goes on"
                    raise Stopped(message, stopped_by())
                yield table.episode(index, recipe.world.image_size)
                advance()

        for part in todo:
            parts.write_part(out, recipe, part, stored(part))


class _Table:
    """The rows of a benchmark file, checked: counts agree, episodes are contiguous, actions leave their rows."""

    def __init__(self, h5: Any, where: str, env: str, fields: dict[str, slice]) -> None:
        self._h5, self._where, self._fields = h5, where, fields
        self._state_dim = env_class(env).state_dim
        pixels, actions = self._column("pixels"), self._column("action")
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] != pixels.shape[2] or pixels.shape[3] != 3:
            raise DamagedError(f"{where}: pixels: expected uint8 [rows, H, H, 3], found {pixels.dtype} {pixels.shape}")
        if actions.dtype.kind != "f" or actions.shape != (len(pixels), env_class(env).action_dim):
            expected = [len(pixels), env_class(env).action_dim]
            raise DamagedError(f"{where}: action: expected floats {expected}, found {actions.dtype} {actions.shape}")
        budget.require_frames(where, int(pixels.shape[1]))
        budget.require(where, f"{len(pixels)} rows", ROW_BYTES * len(pixels))
        self.image_size, self.action_dim = int(pixels.shape[1]), int(actions.shape[1])
        block = min(len(pixels), _block_rows(pixels))
        budget.require(where, f"a block of {block} frames of {self.image_size} pixels", block * 3 * self.image_size**2)
        self._pixels, self._actions = _Rows(pixels), actions
        self._states = self._state_columns(env, len(pixels))
        self.lengths, self._first = self._index(len(pixels))
        self._check_alignment(env)

    @property
    def unknown_fields(self) -> list[str]:
        """State fields that the file does not hold."""
        known = np.zeros(self._state_dim, bool)
        for _, place in self._states:
            known[place] = True
        return [name for name, place in self._fields.items() if not known[place].all()]

    def episode(self, index: int, image_size: int) -> Episode:
        """Episode `index` with its frames averaged down to `image_size`."""
        first, rows = int(self._first[index]), int(self.lengths[index])
        frames = np.empty((rows, image_size, image_size, 3), np.uint8)
        filled = 0
        for piece in self._pixels.pieces(first, first + rows):
            frames[filled : filled + len(piece)] = _resized(piece, image_size)
            filled += len(piece)
        actions = self._actions[first : first + rows - 1].astype(np.float32)
        return Episode(frames, actions, self._state_rows(first, first + rows))

    def _column(self, name: str) -> Any:
        """A dataset that lies in this very file."""
        link = self._h5.get(name, getlink=True)
        if link is None:
            raise DamagedError(f"{self._where}: has no column {name!r}; it has {', '.join(sorted(self._h5))}")
        column = self._h5[name] if isinstance(link, h5py.HardLink) else None
        if not isinstance(column, h5py.Dataset) or column.is_virtual or column.external:
            raise DamagedError(f"{self._where}: column {name!r} is not stored in the file itself")
        if column.chunks and np.prod(column.chunks) * column.dtype.itemsize > MAX_CHUNK_BYTES:
            raise DamagedError(f"{self._where}: column {name!r} has chunks of {column.chunks}, too large to read")
        if column.size and column.id.get_storage_size() == 0:
            raise DamagedError(f"{self._where}: column {name!r} declares {column.shape} and stores none of it")
        return column

    def _state_columns(self, env: str, rows: int) -> list[tuple[Any, slice]]:
        if STATE_COLUMN in self._h5:
            found = [(self._column(STATE_COLUMN), slice(0, self._state_dim))]
        elif not env_class(env).columns:
            raise DamagedError(
                f"{self._where}: has no column {STATE_COLUMN!r}, which files exported by saltwm have, and for {env} no "
                "other column is known; name them in the class's `columns`"
            )
        else:
            found = [(self._first_of(c.names), self._place(c)) for c in env_class(env).columns]
        for column, place in found:
            if column.dtype.kind != "f" or column.shape != (rows, place.stop - place.start):
                expected = [rows, place.stop - place.start]
                raise DamagedError(
                    f"{self._where}: {column.name[1:]}: expected floats {expected}, found {column.dtype} {column.shape}"
                )
        return found

    def _first_of(self, names: tuple[str, ...]) -> Any:
        for name in names:
            if name in self._h5:
                return self._column(name)
        expected = " or ".join(map(repr, names))
        raise DamagedError(f"{self._where}: has no column {expected}; it has {', '.join(sorted(self._h5))}")

    def _place(self, column: StateColumn) -> slice:
        return slice(self._fields[column.fields[0]].start, self._fields[column.fields[-1]].stop)

    def _state_rows(self, first: int, last: int) -> NDArray[np.float64]:
        states = np.zeros((last - first, self._state_dim))
        for column, place in self._states:
            states[:, place] = column[first:last]
        return states

    def _index(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of each episode and where they begin, after comparing every column that says so."""
        lengths, first = (self._per_episode(name, rows) for name in ("ep_len", "ep_offset"))
        if not len(lengths) or lengths.shape != first.shape or lengths.min() < 2 or lengths.max() > rows:
            raise DamagedError(
                f"{self._where}: ep_len and ep_offset: expected one entry of at least 2 rows per episode, and of at "
                f"most the file's {rows}"
            )
        longest, width = int(lengths.max()), self._state_dim + self.action_dim
        budget.require(self._where, f"an episode of {longest} rows of {width} numbers", 8 * longest * width)
        expected = layout.offsets(lengths)
        if not np.array_equal(first, expected[:-1]) or expected[-1] != rows:
            raise DamagedError(
                f"{self._where}: {rows} rows, but ep_len sums to {expected[-1]} and ep_offset is "
                f"{'its running sum' if np.array_equal(first, expected[:-1]) else 'not its running sum'}"
            )
        within = np.arange(rows) - np.repeat(first, lengths)
        for name in ("ep_idx", "episode_idx"):
            if name in self._h5:
                numbers = self._numbers(name, rows)
                if not np.array_equal(numbers, np.repeat(numbers[first], lengths)):
                    raise DamagedError(f"{self._where}: {name} changes inside an episode of ep_len rows")
        if "step_idx" in self._h5 and not np.array_equal(self._numbers("step_idx", rows), within):
            raise DamagedError(f"{self._where}: step_idx does not count from 0 in each episode")
        return lengths, first

    def _per_episode(self, name: str, rows: int) -> NDArray[np.int64]:
        """Integers [episodes]. Rejects a column that is longer than the number of rows before it is read."""
        column = self._column(name)
        if column.dtype.kind not in "iu" or column.ndim != 1 or len(column) > rows:
            raise DamagedError(
                f"{self._where}: {name}: expected a whole number per episode, found {column.dtype} {column.shape}"
            )
        return np.asarray(column[:].astype(np.int64))

    def _numbers(self, name: str, rows: int) -> NDArray[Any]:
        column = self._column(name)
        if column.shape not in {(rows,), (rows, 1)}:
            raise DamagedError(f"{self._where}: {name}: expected {rows} entries, found shape {column.shape}")
        return np.asarray(column[:]).reshape(rows)

    def _check_alignment(self, env: str) -> None:
        """MismatchError unless action[t] goes with the movement from row t to t+1 rather than with its neighbours'."""
        moved = env_class(env).moved_by_action
        if not moved:
            return
        place = self._fields[moved]
        scores = {offset: _correlation(self._movements(place, offset)) for offset in (-1, 0, 1)}
        if any(not np.isfinite(score) for score in scores.values()):
            return  # too little movement to tell
        if max(scores, key=lambda offset: scores[offset]) != 0:
            found = ", ".join(f"{score:.2f} at offset {offset:+d}" for offset, score in scores.items())
            raise MismatchError(
                f"{self._where}: actions are not beside their frames: action[t] must lead from row t to t+1, but its "
                f"correlation with the movement of {moved} is {found}"
            )

    def _movements(self, place: slice, offset: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Actions [N, A] and movements [N, A] that lie `offset` rows later, over the first episodes."""
        actions, movements = [], []
        for first, rows in zip(self._first[:ALIGNMENT_EPISODES], self.lengths[:ALIGNMENT_EPISODES], strict=True):
            if rows < 4:
                continue
            moved = np.diff(self._state_rows(int(first), int(first + rows))[:, place], axis=0)
            taken = self._actions[first : first + rows - 1]
            actions.append(taken[1:-1])
            movements.append(moved[1 + offset : len(moved) - 1 + offset])
        empty = np.zeros((0, place.stop - place.start))
        return np.concatenate([*actions, empty]), np.concatenate([*movements, empty])


def _correlation(pairs: tuple[NDArray[Any], NDArray[Any]]) -> float:
    """Mean over dimensions of the correlation of two [N, A]; NaN where nothing varies."""
    one, two = (values - values.mean(axis=0) if len(values) else values for values in pairs)
    scale = np.sqrt((one**2).sum(axis=0) * (two**2).sum(axis=0))
    return float(np.mean((one * two).sum(axis=0) / scale)) if len(one) >= 20 and (scale > 0).all() else float("nan")


class _Rows:
    """Rows of a chunked column read front to back: each chunk is read and decompressed once."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._size = _block_rows(column)
        self._number = -1
        self._block = np.empty(0, np.uint8)

    def pieces(self, first: int, last: int) -> Iterator[NDArray[np.uint8]]:
        """Rows first .. last-1, those of a block at a time."""
        while first < last:
            number, begin = divmod(first, self._size)
            if number != self._number:
                self._number, self._block = number, self._column[number * self._size : (number + 1) * self._size]
            piece = self._block[begin : begin + last - first]
            yield piece
            first += len(piece)


def _block_rows(column: Any) -> int:
    return int(column.chunks[0]) if column.chunks and column.chunks[0] > 1 else BLOCK_ROWS


def _resized(frames: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Frames averaged over the area of each new pixel: [N, H, H, 3] -> [N, size, size, 3]."""
    if frames.shape[1] == size:
        return frames
    smaller = [Image.fromarray(frame).resize((size, size), Image.Resampling.BOX) for frame in frames]
    return np.stack([np.asarray(image) for image in smaller])


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The HDF5 file; what h5py cannot read is damage."""
    try:
        with h5py.File(file, "r") as h5:
            yield h5
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # h5py has no kind of its own for damage
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if "memory allocation failed" in str(error):  # HDF5's own words
            raise MemoryError(f"{file}: {error}") from error
        raise DamagedError(f"{file}: not a readable HDF5 file: {error}") from error


# --- export ---------------------------------------------------------------------------------------------------------


def export_hdf5(dataset: Dataset, file: Path | str, chunk_rows: int = BLOCK_ROWS) -> None:
    """Write the dataset as a file that stable-worldmodel reads, and that imports back without loss.

    `chunk_rows` frames make one Blosc-LZ4 chunk, as in the released files; 1 gives that library's present layout,
    which is not compressed.
    """
    env = dataset.world.environment
    if dataset.recipe.source.kind == "recorded":
        raise UsageError(
            f"{dataset.path}: was written from recordings, which cannot be exported: the format's columns are those of "
            "a simulated environment; read it with zarr or saltwm.Dataset, as docs/data.md shows"
        )
    if dataset.frame_every != 1:
        raise UsageError(
            f"{dataset.path}: holds every {dataset.frame_every}th frame; the format needs one per step: "
            "collect with a `frame_every` of 1"
        )
    at_least("chunk_rows", chunk_rows)
    fields = {field.name: slice(field.start, field.stop) for field in env_class(env).state_fields}
    columns = {
        name: (slice(fields[column.fields[0]].start, fields[column.fields[-1]].stop), column.dtype)
        for column in env_class(env).columns
        for name in column.names
    }
    columns[STATE_COLUMN] = (slice(0, dataset.state_dim), "float64")
    durable.write_file(Path(file), lambda temporary: _write(dataset, temporary, columns, chunk_rows))


def _write(dataset: Dataset, file: Path, columns: dict[str, tuple[slice, str]], chunk_rows: int) -> None:
    lengths = dataset.lengths + 1
    first = layout.offsets(lengths)
    size = dataset.world.image_size
    lz4 = hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
    packed = dict(lz4) if chunk_rows > 1 else {}
    rows = int(first[-1])
    with h5py.File(file, "w", libver="latest") as h5:

        def create(name: str, shape: tuple[int, ...], dtype: Any, chunk: int = 1000, **filters: Any) -> Any:
            chunks = (max(1, min(chunk, rows)), *shape[1:])
            return h5.create_dataset(name, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]), **filters)

        h5.create_dataset("ep_len", data=lengths.astype(np.int32), maxshape=(None,))
        h5.create_dataset("ep_offset", data=first[:-1], maxshape=(None,))
        create("ep_idx", (rows,), np.int32)[:] = np.repeat(np.arange(len(dataset)), lengths)
        create("step_idx", (rows,), np.int64)[:] = np.arange(rows) - np.repeat(first[:-1], lengths)
        actions = create("action", (rows, dataset.world.action_dim), np.float32)
        states = {
            name: create(name, (rows, place.stop - place.start), dtype) for name, (place, dtype) in columns.items()
        }
        pixels = create("pixels", (rows, size, size, 3), np.uint8, chunk_rows, **packed)
        with progress(f"export {dataset.world.environment}", len(dataset)) as advance:
            _write_tables(dataset, first, actions, {states[name]: place for name, (place, _) in columns.items()})
            _write_pixels(dataset, first, pixels, max(chunk_rows, BLOCK_ROWS // chunk_rows * chunk_rows), advance)


def _write_tables(dataset: Dataset, first: NDArray[np.int64], actions: Any, states: dict[Any, slice]) -> None:
    for episode in range(len(dataset)):
        rows = slice(int(first[episode]), int(first[episode + 1]))
        actions[rows] = np.concatenate([dataset.actions(episode), np.full((1, actions.shape[1]), np.nan, np.float32)])
        for column, place in states.items():
            column[rows] = dataset.states(episode)[:, place]


def _write_pixels(
    dataset: Dataset, first: NDArray[np.int64], pixels: Any, block: int, advance: Callable[..., None]
) -> None:
    """Whole chunks at a time, so that none is compressed twice."""
    done = 0
    for begin in range(0, len(pixels), block):
        rows = np.arange(begin, min(begin + block, len(pixels)))
        episodes = np.searchsorted(first, rows, side="right") - 1
        pixels[begin : begin + len(rows)] = dataset.read_frames(episodes, rows - first[episodes])
        finished = int(np.searchsorted(first, begin + len(rows), side="right")) - 1
        advance(finished - done)
        done = finished
