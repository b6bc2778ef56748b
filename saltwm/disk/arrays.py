"""Zarr v3 arrays through TensorStore: created from metadata, opened only if the metadata is what we expect."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore
from numpy.typing import NDArray

from saltwm.disk import durable, layout
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, ShapeError

# Writers run one to a core, and the directory's publisher syncs, so TensorStore need not.
_WRITE_CONTEXT = tensorstore.Context(
    {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}, "file_io_sync": False}
)


def read_context() -> Any:
    """A cache for one reader's shard indices; not shared, so that a file replaced between two readers is seen."""
    return tensorstore.Context({"cache_pool": {"total_bytes_limit": 64 * 2**20}})


def create_array(path: Path, metadata: dict[str, Any]) -> Any:
    """A new TensorStore at `path`; chunks of zeros are written too, so that a missing chunk is always damage."""
    spec = {**_spec(path), "metadata": metadata, "store_data_equal_to_fill_value": True}
    return tensorstore.open(spec, context=_WRITE_CONTEXT, create=True).result()


def open_array(path: Path, metadata: dict[str, Any], context: Any) -> Any:
    """The TensorStore at `path`, whose metadata must be exactly `metadata`: a file never decides its own shape."""
    found = durable.read_json(path / "zarr.json")
    if found != metadata:
        keys = [key for key in metadata if not isinstance(found, dict) or found.get(key) != metadata[key]]
        place = f"{path / 'zarr.json'}: {', '.join(keys) or 'unknown keys'}"
        raise ShapeError(f"{place}: expected {_pick(metadata, keys)}, found {_pick(found, keys)}")
    spec = {**_spec(path), "recheck_cached_data": False, "fill_missing_data_reads": False}
    try:
        return tensorstore.open(spec, context=context, open=True, read=True).result()
    except ValueError as error:
        raise DamagedError(f"{path}: cannot be opened ({first_line(error)})") from error


def write_table(path: Path, values: NDArray[Any]) -> None:
    """Write a whole array as one chunk."""
    create_array(path, layout.table_metadata(values.shape, values.dtype.name)).write(values).result()


def read_table(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Read a whole array, which must have this shape and dtype."""
    budget.require(path, f"an array of shape {list(shape)}", math.prod(shape) * np.dtype(dtype).itemsize)
    try:
        return np.asarray(open_array(path, layout.table_metadata(shape, dtype), read_context()).read().result())
    except ValueError as error:
        raise DamagedError(f"{path}: cannot be read ({first_line(error)})") from error


def write_npy(path: Path, values: NDArray[Any]) -> None:
    """Replace `path` by a .npy file of the array."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:  # a name would be given the ending .npy
            np.save(file, values, allow_pickle=False)

    durable.write_file(path, save)


def first_line(error: Exception) -> str:
    """What TensorStore says, without the lines about its own source."""
    return str(error).splitlines()[0][:200]


def _spec(path: Path) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{Path(path).resolve()}/"}}


def _pick(metadata: Any, keys: list[str]) -> Any:
    return {key: metadata.get(key) for key in keys} if isinstance(metadata, dict) else metadata
