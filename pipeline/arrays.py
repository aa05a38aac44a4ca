"""Zarr arrays of a store: made once, written in whole chunks."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from pipeline.errors import BadInputError
from pipeline.files import read_json, remove, written_aside
from pipeline.tiles import check_covers_chunks


def ensure_zarr(
    path: Path, *, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: npt.DTypeLike
) -> None:
    """Create an empty Zarr array, or keep the one that is there if it is the same.

    Chunks are stored as they are: sketches and vectors are noise to a compressor. Chunks of
    zeros are written too, so that a chunk that is missing is always an error of ours.
    """
    if (path / "zarr.json").exists():
        found = open_zarr(path)
        if (found.shape, found.chunks, found.dtype) == (shape, chunks, np.dtype(dtype)):
            return
    remove(path)
    with written_aside(path) as aside:
        aside.mkdir()
        (aside / "zarr.json").write_bytes(_metadata(shape, chunks, np.dtype(dtype).str))


@lru_cache(maxsize=32)
def _metadata(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str) -> bytes:
    """Metadata as zarr itself writes them; a run makes dozens of arrays of the same kind."""
    store: dict[str, Buffer] = {}
    zarr.create_array(
        store=MemoryStore(store),
        shape=shape,
        chunks=chunks,
        dtype=np.dtype(dtype),
        compressors=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    return store["zarr.json"].to_bytes()


def open_zarr(path: Path) -> zarr.Array[Any]:
    """Open a Zarr array of `ensure_zarr` for reading and for writing whole chunks."""
    array = zarr.open_array(store=str(path), mode="r+")
    return array.with_config({"write_empty_chunks": True, "order": "C"})


def save_zarr(path: Path, values: npt.NDArray[np.float64]) -> None:
    """Write a small array as a Zarr array of a single chunk.

    Zarr itself takes ten milliseconds, for its event loop and its threads.
    """
    ensure_zarr(path, shape=values.shape, chunks=values.shape, dtype=np.float64)
    with written_aside(path / "c" / "/".join(["0"] * values.ndim)) as aside:
        np.ascontiguousarray(values, np.float64).tofile(aside)


def load_zarr(path: Path) -> npt.NDArray[np.float64]:
    """Read an array of `save_zarr`."""
    shape = read_json(path / "zarr.json")["shape"]
    chunk = path / "c" / "/".join(["0"] * len(shape))
    values = np.fromfile(chunk, np.float64) if chunk.exists() else np.empty(0)
    if values.size != math.prod(shape):
        raise BadInputError(
            f"{path} has {values.size} values where {math.prod(shape)} belong. The run that it "
            "belongs to is damaged: delete its folder and run the same command again."
        )
    return values.reshape(shape)


def write_rows(array: zarr.Array[Any], start: int, values: npt.NDArray[Any]) -> None:
    """Write rows that cover whole chunks."""
    corner = (start, 0)[: array.ndim]
    check_covers_chunks(corner, values.shape, array.chunks, array.shape)
    array[start : start + values.shape[0]] = values


def read_stretch(
    path: Path, start: int, stop: int, *, chunk: int, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Read a stretch of a one-dimensional array of `ensure_zarr` from its files.

    Its chunks are plain numbers. Tiles of the product read two such stretches each, and zarr takes
    ten milliseconds for what a file system does in one.
    """
    parts = []
    for number in range(start // chunk, -(-stop // chunk)):
        values = np.fromfile(path / "c" / str(number), dtype)
        if values.size != chunk:
            raise BadInputError(
                f"{path / 'c' / str(number)} has {values.size} values where {chunk} belong. The "
                "graph is damaged: delete its folder and ingest it again."
            )
        first = number * chunk
        parts.append(values[max(start - first, 0) : stop - first])
    return np.concatenate(parts)
