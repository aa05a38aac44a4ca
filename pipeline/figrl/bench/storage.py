"""Storage: codecs and encodings of the store against others, and large matrices against zarr.

Matrices are accessed as by the stages, on all cores, with their kernels:

    sketch    sparse products, written a tile at a time while the next one is computed
    operand   a slice of columns of all rows, read into one array
    factor    chunks of rows, read ahead, and their Gram matrix
    vectors   chunks of rows, read ahead, times a matrix, written behind

The large matrix is treated as larger than memory: what a stage wrote is flushed, which counts as
its time, and evicted from the page cache before the next stage reads it.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.core.buffer.cpu import NDBuffer

from figrl.bench.harness import fastest, scratch
from figrl.bench.results import Comparison, Score
from figrl.engine.worker import worker_state
from figrl.learn.kernels import accumulate
from figrl.learn.projection import fill_projection
from figrl.learn.rows import chunks_of_rows
from figrl.store.arrays import ArraySpec, create_array
from figrl.store.checksums import insert_checksum
from figrl.store.files import size_bytes
from figrl.store.graph import read_edges, write_edges
from figrl.store.matrix import Floats, StoredMatrix, aligned_empty, open_matrix
from figrl.store.overlap import WriteBehind
from figrl.study.process import measure_in_process
from figrl.units import human_bytes

_ROWS, _COLUMNS, _CHUNK_ROWS = 32_768, 1000, 4096
_ENTRIES = 1 << 22
_CODECS = {"zarr plain": None, "zarr lz4": BloscCodec(cname="lz4"), "zarr zstd": ZstdCodec(level=1)}

_MATRICES = ((1 << 18, 256), (1 << 14, _COLUMNS))
"""Rows, and columns of a slice, of a matrix larger than the page cache and of a small one."""

_DIM, _DEGREE, _BLOCKS, _ROUNDS = 100, 7, 4, 3
_ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
_PIPELINES: dict[str, dict[str, Any]] = {
    "zarr": {},
    "zarrs": _ZARRS,
    "zarrs with O_DIRECT": {**_ZARRS, "codec_pipeline.direct_io": True},
}
"""Ways to use a matrix through zarr, and its configuration for each."""


def bench_storage() -> list[Comparison | Score]:
    """Compare a sketch in Zarr, edges in Parquet, and large matrices by the stages."""
    found: list[Comparison | Score] = []
    for measure, ours, others in (
        (sketch, "plain", tuple(_CODECS)),
        (edges, "differences", ("plain", "plain zstd", "dictionary snappy", "differences zstd")),
    ):
        what = f"storage: {measure.__name__} written and read, {ours}"
        first = measure_in_process(measure, how=ours)
        for how in others:
            other = measure_in_process(measure, how=how)
            size = other.result["bytes"] / first.result["bytes"]
            name, both = f"{how} ({size:.2f} x the bytes)", (first, other)
            found.append(Comparison.of(what, name, both, wanted=1, memory=False))
    return found + bench_matrix()


def sketch(how: str) -> dict[str, Any]:
    """Write and read part of a sketch, chunk by chunk."""
    block = aligned_empty(4 * _CHUNK_ROWS * _COLUMNS).view(np.float32)
    block = block.reshape(_CHUNK_ROWS, _COLUMNS)
    keys, scale = np.arange(_CHUNK_ROWS, dtype=np.uint64), np.ones(_CHUNK_ROWS, np.float32)
    fill_projection(keys, seed=0, first_column=0, scale=scale, out=block)
    with scratch() as folder:
        spec = ArraySpec(Path(folder) / "sketch", (_ROWS, _COLUMNS), block.shape)
        if how == "plain":
            create_array(spec)
            matrix = open_matrix(spec.path)
        else:
            sizes: dict[str, Any] = {"shape": spec.shape, "chunks": spec.chunks}
            zarr.create_array(spec.path, **sizes, dtype=np.float32, compressors=_CODECS[how])
            matrix = _ZarrMatrix(spec.path, **sizes)

        def write_and_read() -> None:
            for transfer in (matrix.write, matrix.read):
                for start in range(0, _ROWS, _CHUNK_ROWS):
                    transfer((start, 0), block)

        return {"seconds": fastest(write_and_read), "bytes": size_bytes(spec.path)}


def edges(how: str) -> dict[str, Any]:
    """Write and read entries sorted by row, then column."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 1 << 24, _ENTRIES).reshape(-1, 16), axis=1).reshape(-1)
    table = pa.table({"row": np.repeat(np.arange(_ENTRIES // 16), 16), "column": columns})
    encoding, _, compression = how.partition(" ")
    packed = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
    options = {"use_dictionary": encoding == "dictionary", "compression": compression or "none"}
    options["column_encoding"] = packed if encoding == "differences" else None
    with scratch() as folder:
        path = Path(folder) / "edges.parquet"

        def write_and_read() -> None:
            if how == "differences":
                write_edges(path, [table], table.schema)
            else:
                pq.write_table(table, path, **options)
                insert_checksum(path)
            for _ in read_edges(path):
                pass

        return {"seconds": fastest(write_and_read), "bytes": path.stat().st_size}


class _ZarrMatrix(StoredMatrix):
    """A matrix that is read and written with zarr, and never memory-mapped."""

    is_cached = False

    @cached_property
    def _array(self) -> zarr.Array[Any]:
        array = zarr.open_array(store=str(self.path), mode="r+")
        return array.with_config({"write_empty_chunks": True, "order": "C"})

    def write(self, corner: tuple[int, int], values: Floats) -> None:
        self._array[_tile(corner, values)] = values

    def read(self, corner: tuple[int, int], out: Floats) -> Floats:
        self._array.get_basic_selection(_tile(corner, out), out=NDBuffer.from_numpy_array(out))
        return out


def _tile(corner: tuple[int, int], values: Floats) -> tuple[slice, slice]:
    (row, column), (rows, columns) = corner, values.shape
    return slice(row, row + rows), slice(column, column + columns)


class _CachedMatrix(StoredMatrix):
    """A `StoredMatrix` that always goes through the page cache."""

    is_cached = True


_KINDS = {"StoredMatrix": StoredMatrix, "page cache": _CachedMatrix}
"""Matrices that are used without zarr."""


def bench_matrix(matrices: Sequence[tuple[int, int]] = _MATRICES) -> list[Comparison | Score]:
    """Compare medians of several rounds, in which the variants alternate."""
    found: list[Comparison | Score] = []
    pipelines = [how for how in _PIPELINES if how == "zarr" or importlib.util.find_spec("zarrs")]
    for rows, width in matrices:
        runs: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
        for _, (how, height) in product(range(_ROUNDS), variants(rows, width, pipelines)):
            sizes = {"rows": rows, "width": width, "height": height}
            runs[how, height].append(measure_in_process(stages, how=how, **sizes).result)
        (_, ours), *others = ((variant, _medians(run)) for variant, run in runs.items())
        for stage, ((how, height), theirs) in product(ours, others):
            what = f"storage: matrix of {human_bytes(4 * rows * _COLUMNS)}, {stage}, StoredMatrix"
            other = f"{how}, chunks of {human_bytes(4 * height * width)}"
            found.append(Comparison(what, other, ours[stage], theirs[stage], wanted=1))
    if len(pipelines) < len(_PIPELINES):
        found.append(Score("storage", "zarrs", skipped="zarrs is not installed"))
    return found


def variants(rows: int, width: int, pipelines: Sequence[str]) -> Iterator[tuple[str, int]]:
    """How a matrix is used, and rows of a chunk: ours first, then chunks of 4 MB and more."""
    # A small matrix goes through the page cache anyway.
    yield from ((how, _CHUNK_ROWS) for how in list(_KINDS)[: 1 if width == _COLUMNS else None])
    for how, height in product(pipelines, (1024, 4096, 16_384, 65_536)):
        if 4 * height * width >= 4_000_000 and height <= rows // _BLOCKS:
            yield how, height


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {stage: statistics.median(one[stage] for one in rounds) for stage in rounds[0]}


def stages(how: str, rows: int, width: int, height: int) -> dict[str, float]:
    """Seconds of each stage, with slices of `width` columns in chunks of `height` rows."""
    with (
        zarr.config.set(_PIPELINES.get(how, {})),
        threadpool_limits(limits=1),
        scratch() as folder,
        ThreadPoolExecutor(CPU_COUNT) as threads,
    ):
        create_array(ArraySpec(Path(folder) / "sketch", (rows, _COLUMNS), (height, width)))
        create_array(ArraySpec(Path(folder) / "vectors", (rows, _DIM), (height, _DIM)))
        run = _Stages(Path(folder), _KINDS.get(how, _ZarrMatrix))
        # Small stages are short: the first round, which starts threads, would count for much.
        return _medians([run.time_all(threads) for _ in range(5 if run.is_cached else 1)])


class _Stages:
    """The stages on matrices of one kind; a block is known by its first row."""

    def __init__(self, folder: Path, kind: type[StoredMatrix]) -> None:
        self.folder, self.kind = folder, kind
        stored = open_matrix(folder / "sketch")
        (self.rows, _), (self.height, width) = stored.shape, stored.chunks
        self.is_cached, self.block_rows = stored.is_cached, self.rows // _BLOCKS
        rng = np.random.default_rng(0)
        memory = rng.standard_normal(self.rows * width, np.float32)
        self.operands: dict[int, Floats] = {}
        for first in range(0, _COLUMNS, width):
            columns = min(width, _COLUMNS - first)
            self.operands[first] = memory[: self.rows * columns].reshape(-1, columns)
        self.neighbours = rng.integers(0, self.rows, self.rows * _DEGREE)
        self.project = rng.standard_normal((_COLUMNS, _DIM), np.float32)
        # Compiles the kernel.
        accumulate(self.neighbours[:0], self.neighbours[:0], None, self.project, self.project)

    def time_all(self, threads: ThreadPoolExecutor) -> dict[str, float]:
        """Seconds of each stage, of all, and of the processor."""
        before, seconds = time.process_time(), {}
        for stage in (self.sketch, self.operand, self.factor, self.vectors):
            started = time.perf_counter()
            for first in self.operands if stage in (self.sketch, self.operand) else [0]:
                list(threads.map(partial(stage, first), range(0, self.rows, self.block_rows)))
            self._for_each_file(os.fsync)
            seconds[stage.__name__] = time.perf_counter() - started
            self._for_each_file(lambda file: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED))
        processor = time.process_time() - before
        return {**seconds, "all": sum(seconds.values()), "processor time": processor}

    def _for_each_file(self, act: Callable[[int], None]) -> None:
        for path in () if self.is_cached else self.folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    act(file.fileno())

    def _open(self, name: str) -> StoredMatrix:
        stored = open_matrix(self.folder / name)
        return self.kind(stored.path, stored.shape, stored.chunks)

    def _chunks(self, start: int) -> Iterator[Floats]:
        return chunks_of_rows(self._open("sketch"), start, start + self.block_rows, self.height)

    def _write(self, name: str, first: int, start: int, fill: Callable[[int, Floats], Any]) -> None:
        """Write a block, a chunk at a time while ``fill(begin, out)`` computes the next one."""
        out = self._open(name)
        width = min(out.chunks[1], out.shape[1] - first)
        buffers = worker_state().buffer_pair("out", (self.height, width))
        with WriteBehind() as write:
            for turn, begin in enumerate(range(start, start + self.block_rows, self.height)):
                fill(begin, buffers[turn % 2])
                write(out.write, (begin, first), buffers[turn % 2])

    def sketch(self, first: int, start: int) -> None:
        def fill(begin: int, out: Floats) -> None:
            out[:] = 0
            rows = np.repeat(np.arange(begin, begin + len(out)), _DEGREE)
            neighbours = self.neighbours[begin * _DEGREE :][: rows.size]
            accumulate(rows, neighbours, None, self.operands[first], out, first_row=begin)

        self._write("sketch", first, start, fill)

    def operand(self, first: int, start: int) -> None:
        rows = self.operands[first][start : start + self.block_rows]
        self._open("sketch").read((start, first), rows)

    def factor(self, _: int, start: int) -> None:
        gram, square = np.zeros((_COLUMNS, _COLUMNS)), np.empty((_COLUMNS, _COLUMNS), np.float32)
        for chunk in self._chunks(start):
            for piece in range(0, len(chunk), _CHUNK_ROWS):
                rows = chunk[piece : piece + _CHUNK_ROWS]
                gram += np.matmul(rows.T, rows, out=square)

    def vectors(self, _: int, start: int) -> None:
        chunks, matmul = self._chunks(start), np.matmul
        self._write("vectors", 0, start, lambda _, out: matmul(next(chunks), self.project, out=out))
