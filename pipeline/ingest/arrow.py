"""Ids as Arrow arrays: int64 or large_string, on disk as files that can be memory-mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.files import written_aside
from pipeline.ingest.kernels import hash_strings, search_strings
from pipeline.mixing import mix_all

IdKind = Literal["int", "string"]

_TYPES: dict[IdKind, pa.DataType] = {"int": pa.int64(), "string": pa.large_string()}


def id_type(kind: IdKind) -> pa.DataType:
    """Arrow type in which ids of a kind are kept."""
    return _TYPES[kind]


def parquet_id_type(kind: IdKind) -> pa.DataType:
    """Arrow type in which ids are handed out: what other readers of Parquet expect."""
    return pa.int64() if kind == "int" else pa.string()


def string_buffers(
    strings: pa.LargeStringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes and offsets of an array without nulls; nothing is copied."""
    _, offsets, data = strings.buffers()
    if len(strings) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    begins = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    if data is None or data.size == 0:
        return np.empty(0, np.uint8), begins
    return np.frombuffer(data, np.uint8), begins


def strings_from_buffers(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> pa.LargeStringArray:
    """Make an Arrow array of bytes and offsets; nothing is copied."""
    return pa.LargeStringArray.from_buffers(
        offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data)
    )


def sorted_ids(ids: pa.Array) -> pa.Array:
    """Sort ids: integers by value, strings by their UTF-8 bytes."""
    return ids.take(pc.array_sort_indices(ids))


def search_sorted(hay: pa.Array, needles: pa.Array) -> npt.NDArray[np.int64]:
    """Place of each needle in the hay, both sorted and without repeats.

    Returns ``i`` where ``hay[i]`` is the needle, ``-1 - i`` where it is missing and would
    stand at ``i``.
    """
    if pa.types.is_int64(hay.type):
        values, wanted = hay.to_numpy(), needles.to_numpy()
        places = np.searchsorted(values, wanted).astype(np.int64)
        if values.size == 0:
            return np.full(wanted.size, -1, np.int64)
        found = values[np.minimum(places, values.size - 1)] == wanted
        there: npt.NDArray[np.int64] = np.where(found & (places < values.size), places, -1 - places)
        return there
    found_at: npt.NDArray[np.int64] = search_strings(*string_buffers(hay), *string_buffers(needles))
    return found_at


def cut_points(ids: pa.Array, bounds: pa.Array) -> npt.NDArray[np.int64]:
    """Where sorted ids are cut by sorted bounds: the first id that is not below each bound."""
    places = search_sorted(ids, bounds)
    return np.where(places < 0, -1 - places, places)


def node_keys(ids: pa.Array) -> npt.NDArray[np.uint64]:
    """64-bit key of each id, from the id alone."""
    if pa.types.is_int64(ids.type):
        return mix_all(ids.to_numpy().view(np.uint64))
    return hash_strings(*string_buffers(ids))


def write_ids(path: Path, columns: dict[str, pa.Array]) -> int:
    """Write columns as an Arrow file that `map_ids` can map; return its size."""
    batch = pa.record_batch(columns)
    with (
        written_aside(path) as aside,
        pa.OSFile(str(aside), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    return path.stat().st_size


def map_ids(path: Path, column: str = "id") -> pa.Array:
    """Map a column of an Arrow file into memory; pages are read when they are touched."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0).column(column)


def to_numpy(array: Any) -> npt.NDArray[Any]:
    """Arrow to NumPy, whether a copy is needed or not."""
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
