"""Small Zarr arrays and arrays of one dimension; `matrix` has the large ones.

Chunks are read and written without zarr, whose event loop and threads take 10 ms where the file
system takes 1 ms, and which takes a missing chunk for zeros. On disk they are Zarr arrays like any
other, with the checksum codec.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from figrl.store.checksums import (
    CHUNK_CRC_BYTES,
    WrongContentError,
    check_chunk,
    chunk_crc,
    damage_reported,
    sealed_json,
)
from figrl.store.files import delete, exists, get, put
from figrl.store.ids import group_places
from figrl.store.matrix import check_covers_chunks, check_size, read_metadata


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
    put(spec.path / "zarr.json", _metadata(spec))


def _metadata(spec: ArraySpec) -> bytes:
    store: dict[str, Buffer] = {}
    array = zarr.create_array(
        store=MemoryStore(store),
        shape=spec.shape,
        chunks=spec.chunks,
        dtype=np.dtype(spec.dtype),
        compressors=Crc32cCodec(),
        fill_value=0,
    )
    return sealed_json(dict(array.metadata.to_dict()), inside="attributes")


def _boxed(part: Any, size: int) -> tuple[tuple[int, int], Any]:
    """Ends of the range around an index along one axis, and what to take of that range."""
    if isinstance(part, slice):
        every = range(size)[part]
        if not every:
            return (0, 0), slice(None)
        low, high = min(every[0], every[-1]), max(every[0], every[-1])
        return (low, high + 1), slice(None, None, every.step)
    if np.ndim(part) == 0:
        number = range(size)[operator.index(part)]
        return (number, number + 1), 0
    places = np.arange(size)[np.asarray(part)]
    low = int(places.min(initial=size - 1)) if places.size else 0
    return (low, int(places.max(initial=low - 1)) + 1), places - low


@dataclass(frozen=True)
class StoredArray:
    """A Zarr array of any shape, whose parts are read when they are asked for."""

    path: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        """What NumPy would give, without new axes: the box around it is read."""
        given = list(key) if isinstance(key, tuple) else [key]
        if not any(part is Ellipsis for part in given):
            given.append(Ellipsis)
        gap = next(place for place, part in enumerate(given) if part is Ellipsis)
        given[gap : gap + 1] = [slice(None)] * (self.ndim - len(given) + 1)
        boxed = [_boxed(part, size) for part, size in zip(given, self.shape, strict=True)]
        box = self._read([ends for ends, _ in boxed])
        return np.asarray(box[tuple(within for _, within in boxed)])

    def _read(self, ranges: list[tuple[int, int]]) -> npt.NDArray[Any]:
        out = np.empty([max(stop - start, 0) for start, stop in ranges], self.dtype)
        for place in self._places(ranges):
            corner = [number * size for number, size in zip(place, self.chunks, strict=True)]
            source, target = [], []
            for (start, stop), first, size in zip(ranges, corner, self.chunks, strict=True):
                low, high = max(start, first), min(stop, first + size)
                source.append(slice(low - first, high - first))
                target.append(slice(low - start, high - start))
            out[tuple(target)] = self._chunk(place)[tuple(source)]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[...], dtype)

    def _places(self, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
        """Numbers of the chunks that a box overlaps."""
        return product(
            *(
                range(start // size, -(-stop // size)) if start < stop else range(0)
                for (start, stop), size in zip(ranges, self.chunks, strict=True)
            )
        )

    def places(self) -> Iterator[tuple[int, ...]]:
        """Numbers of all chunks."""
        return self._places([(0, size) for size in self.shape])

    def chunk_path(self, place: tuple[int, ...]) -> Path:
        """File of a chunk."""
        return self.path.joinpath("c", *map(str, place))

    def _chunk(self, place: tuple[int, ...]) -> npt.NDArray[Any]:
        values = _read_chunk(self.chunk_path(place), self.dtype, math.prod(self.chunks))
        return values.reshape(self.chunks)

    def get_orthogonal_selection(self, rows: tuple[npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        """Some values of an array of one dimension, in any order; a chunk is read once."""
        out, chunk = np.empty(rows[0].size, self.dtype), self.chunks[0]
        for number, places in group_places(rows[0] // chunk):
            out[places] = self._chunk((number,))[rows[0][places] - number * chunk]
        return out

    def check(self) -> Iterator[tuple[Path, Exception]]:
        """Files that are damaged, and why; reads all chunks, one at a time."""
        size = math.prod(self.chunks)
        for place in self.places():
            path = self.chunk_path(place)
            try:
                _read_chunk(path, self.dtype, size)
            except Exception as error:
                yield path, error


def open_zarr(path: Path) -> StoredArray:
    """Open an array of `create_array`."""
    metadata = read_metadata(path)
    with damage_reported(path / "zarr.json"):
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        dtype = np.dtype(metadata["data_type"])
        return StoredArray(path, tuple(metadata["shape"]), tuple(chunks), dtype)


def write_rows(array: StoredArray, start: int, values: npt.NDArray[Any]) -> None:
    """Write rows that cover whole chunks."""
    corner = (start, *[0] * (array.ndim - 1))
    check_covers_chunks(corner, values.shape, array.chunks, array.shape)
    height = array.chunks[0]
    for begin in range(0, values.shape[0], height):
        rows = values[begin : begin + height]
        for others in product(*(range(-(-n // c)) for n, c in _pairs(array))):
            columns = (
                slice(i * c, (i + 1) * c) for i, (_, c) in zip(others, _pairs(array), strict=True)
            )
            part = rows[(slice(None), *columns)]
            chunk = np.zeros(array.chunks, array.dtype)
            chunk[tuple(slice(0, size) for size in part.shape)] = part
            _write_chunk(array.chunk_path(((start + begin) // height, *others)), chunk)


def _pairs(array: StoredArray) -> list[tuple[int, int]]:
    return list(zip(array.shape[1:], array.chunks[1:], strict=True))


def save_zarr(path: Path, values: npt.NDArray[np.float64]) -> None:
    """Write a small array as a Zarr array of a single chunk."""
    create_array(ArraySpec(path, values.shape, values.shape, "float64"))
    _write_chunk(open_zarr(path).chunk_path((0,) * values.ndim), values.astype(np.float64))


def load_zarr(path: Path) -> npt.NDArray[np.float64]:
    """Read an array of `save_zarr`."""
    return open_zarr(path)[...]


def read_range(
    path: Path, start: int, stop: int, *, chunk: int, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Read a range of a one-dimensional array of `create_array`."""
    return StoredArray(path, (stop,), (chunk,), np.dtype(dtype))[start:stop]


def _write_chunk(path: Path, chunk: npt.NDArray[Any]) -> None:
    content = np.ascontiguousarray(chunk)
    put(path, content.tobytes() + chunk_crc(content))


def _read_chunk(path: Path, dtype: npt.DTypeLike, size: int) -> npt.NDArray[Any]:
    """Read a chunk of `size` values."""
    with damage_reported(path):
        content = get(path)
        check_size(len(content), size * np.dtype(dtype).itemsize + CHUNK_CRC_BYTES)
        if not content:
            raise WrongContentError("is empty")
        values = np.frombuffer(content[:-CHUNK_CRC_BYTES], np.uint8)
        check_chunk(values, content[-CHUNK_CRC_BYTES:])
    return values.view(dtype)
