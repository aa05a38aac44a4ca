"""Small Zarr arrays and arrays of one dimension; `matrix` has the large ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from figrl.errors import BadInputError
from figrl.store.files import atomic_write, delete, exists, put, read_json
from figrl.store.matrix import check_covers_chunks


@dataclass(frozen=True)
class ArraySpec:
    """Path, shape, chunks and type of a Zarr array to be created."""

    path: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Bytes of all its values."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def create_array(spec: ArraySpec) -> None:
    """Create an empty Zarr array, or keep an existing one of the same shape, chunks and type.

    Chunks are not compressed, because sketches and vectors do not compress. Chunks of zeros are
    written too, so a missing chunk is always an error.
    """
    if exists(spec.path / "zarr.json"):
        found = open_zarr(spec.path)
        wanted = (spec.shape, spec.chunks, np.dtype(spec.dtype))
        if (found.shape, found.chunks, found.dtype) == wanted:
            return
    delete(spec.path)
    store: dict[str, Buffer] = {}
    zarr.create_array(
        store=MemoryStore(store),
        shape=spec.shape,
        chunks=spec.chunks,
        dtype=np.dtype(spec.dtype),
        compressors=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    put(spec.path / "zarr.json", store["zarr.json"].to_bytes())


def open_zarr(path: Path) -> zarr.Array[Any]:
    """Open an array of `create_array` with zarr, for reading and for writing whole chunks."""
    array = zarr.open_array(store=str(path), mode="r+")
    return array.with_config({"write_empty_chunks": True, "order": "C"})


def write_rows(array: zarr.Array[Any], start: int, values: npt.NDArray[Any]) -> None:
    """Write rows that cover whole chunks."""
    corner = (start, 0)[: array.ndim]
    check_covers_chunks(corner, values.shape, array.chunks, array.shape)
    array[start : start + values.shape[0]] = values


def save_zarr(path: Path, values: npt.NDArray[np.float64]) -> None:
    """Write a small array as a Zarr array of a single chunk.

    Not with zarr, whose event loop and threads take 10 ms.
    """
    create_array(ArraySpec(path, values.shape, values.shape, "float64"))
    with atomic_write(_only_chunk(path, values.ndim)) as aside:
        np.ascontiguousarray(values, np.float64).tofile(aside)


def load_zarr(path: Path) -> npt.NDArray[np.float64]:
    """Read an array of `save_zarr`."""
    shape = read_json(path / "zarr.json")["shape"]
    remedy = "The run that it belongs to is damaged: delete its folder and run the same command"
    chunk = _only_chunk(path, len(shape))
    return _read_chunk(chunk, np.float64, math.prod(shape), f"{remedy} again.").reshape(shape)


def _only_chunk(path: Path, ndim: int) -> Path:
    return path.joinpath("c", *["0"] * ndim)


def read_range(
    path: Path, start: int, stop: int, *, chunk: int, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Read a range of a one-dimensional array of `create_array`.

    Not with zarr, which takes 10 ms where the file system takes 1 ms: each tile of the product
    reads two ranges.
    """
    remedy = "The graph is damaged: delete its folder and ingest it again."
    parts = []
    for first in range(start // chunk * chunk, stop, chunk):
        values = _read_chunk(path / "c" / str(first // chunk), dtype, chunk, remedy)
        parts.append(values[max(start - first, 0) : stop - first])
    return np.concatenate(parts)


def _read_chunk(path: Path, dtype: npt.DTypeLike, size: int, remedy: str) -> npt.NDArray[Any]:
    """Read a chunk of `size` values; a missing one has none."""
    values = np.fromfile(path, dtype) if exists(path) else np.empty(0, dtype)
    if values.size != size:
        raise BadInputError(f"{path} has {values.size} values where {size} belong. {remedy}")
    return values
