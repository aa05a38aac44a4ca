"""Storage: codecs and encodings that the store does not use, against those that it does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

from pipeline.arrays import ensure_zarr
from pipeline.direct import aligned_empty
from pipeline.files import size_bytes
from pipeline.graph import read_edges
from pipeline.ingest.partition import write_edges
from pipeline.learn.projection import fill_projection
from pipeline.rates import fastest
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import run_apart
from pipeline.tiles import open_tiles

_ROWS, _COLUMNS, _CHUNK_ROWS = 32_768, 1000, 4096
_ENTRIES = 1 << 22


def bench_storage() -> list[Line]:
    """Compare, each for what it keeps: a sketch in Zarr, edges in Parquet."""
    lines = []
    for kind, ours, others in (
        ("sketch", "plain", ("zarr plain", "zarr lz4", "zarr zstd")),
        ("edges", "differences", ("plain", "plain zstd", "dictionary snappy", "differences zstd")),
    ):
        first = run_apart(f"{__name__}:{kind}", how=ours)
        for how in others:
            other = run_apart(f"{__name__}:{kind}", how=how)
            size = other.result["bytes"] / first.result["bytes"]
            what = f"storage: {kind} written and read, {ours}"
            lines.append(
                Line(what, f"{how} ({size:.2f} x the bytes)", first.seconds, other.seconds, 1)
            )
    return lines


def sketch(how: str) -> dict[str, Any]:
    """Write and read a part of a sketch, a chunk at a time."""
    block = aligned_empty(4 * _CHUNK_ROWS * _COLUMNS).view(np.float32)
    block = block.reshape(_CHUNK_ROWS, _COLUMNS)
    keys, scale = np.arange(_CHUNK_ROWS, dtype=np.uint64), np.ones(_CHUNK_ROWS, np.float32)
    fill_projection(keys, seed=0, first_column=0, scale=scale, out=block)
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        path = Path(folder) / "sketch"
        write_and_read = _plain(path, block) if how == "plain" else _by_zarr(path, block, how)
        return {"seconds": fastest(write_and_read), "bytes": size_bytes(path)}


def _plain(path: Path, block: Any) -> Callable[[], None]:
    ensure_zarr(path, shape=(_ROWS, _COLUMNS), chunks=block.shape, dtype=np.float32)

    def write_and_read() -> None:
        tiles = open_tiles(path)
        for start in range(0, _ROWS, _CHUNK_ROWS):
            tiles.write((start, 0), block)
        for start in range(0, _ROWS, _CHUNK_ROWS):
            tiles.read((start, 0), block)

    return write_and_read


def _by_zarr(path: Path, block: Any, how: str) -> Callable[[], None]:
    codecs = {
        "zarr plain": None,
        "zarr lz4": BloscCodec(cname="lz4"),
        "zarr zstd": ZstdCodec(level=1),
    }
    array = zarr.create_array(
        store=str(path),
        shape=(_ROWS, _COLUMNS),
        chunks=block.shape,
        dtype=np.float32,
        compressors=codecs[how],
    )

    def write_and_read() -> None:
        for start in range(0, _ROWS, _CHUNK_ROWS):
            array[start : start + _CHUNK_ROWS] = block
        for start in range(0, _ROWS, _CHUNK_ROWS):
            block[:] = array[start : start + _CHUNK_ROWS]

    return write_and_read


def edges(how: str) -> dict[str, Any]:
    """Write and read entries that are sorted by row then column."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 1 << 24, _ENTRIES).reshape(-1, 16), axis=1).reshape(-1)
    table = pa.table({"row": np.repeat(np.arange(_ENTRIES // 16), 16), "column": columns})
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        path = Path(folder) / "edges.parquet"

        def write_and_read() -> None:
            if how == "differences":
                write_edges(path, [table], table.schema)
            else:
                _write_otherwise(path, table, how)
            for _ in read_edges(path):
                pass

        return {"seconds": fastest(write_and_read), "bytes": path.stat().st_size}


def _write_otherwise(path: Path, table: pa.Table, how: str) -> None:
    encoding, _, compression = how.partition(" ")
    differences = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
    pq.write_table(
        table,
        path,
        use_dictionary=encoding == "dictionary",
        column_encoding=differences if encoding == "differences" else None,
        compression=compression or "none",
    )
