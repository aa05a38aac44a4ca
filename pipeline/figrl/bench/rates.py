"""Measures the rates of this machine, from which `figrl plan` predicts seconds, and its limits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from threadpoolctl import threadpool_limits

from figrl.bench.harness import fastest
from figrl.engine.rates import Rates, rates_path
from figrl.learn.kernels import accumulate
from figrl.learn.projection import fill_projection
from figrl.store.arrays import ArraySpec, create_array
from figrl.store.files import write_json
from figrl.store.graph import read_edges, write_edges
from figrl.store.matrix import Bytes, aligned_empty, open_matrix, read_direct, write_direct

_OPERAND_BYTES = 2 << 30
_ORDER = 2048
_BLOCK_BYTES = 128 << 20


def measure_rates(folder: Path | None = None) -> Rates:
    """Measure this machine, in a few seconds, and store the rates in the user's cache.

    The disk is that of `folder`, or of temporary files.
    """
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory(dir=folder) as place:
        # First: a virtual machine would reuse the memory that the others free.
        touch = _touch()
        rates = Rates(
            **_gather(),
            **_gram(),
            **_disk(Path(place)),
            regenerate=_regenerate(),
            entries=_entries(Path(place)),
            copy=_copy(),
            touch=touch,
            gemm=_gemm(),
            chunks=_chunks(Path(place)),
        )
    write_json(rates_path(), asdict(rates))
    return rates


def _regenerate() -> float:
    keys = np.arange(20_000, dtype=np.uint64)
    scale, out = np.ones(keys.size, np.float32), np.empty((keys.size, 256), np.float32)
    fill = partial(fill_projection, keys, seed=0, first_column=0, scale=scale, out=out)
    return out.size / fastest(fill)


def _gather() -> dict[str, float]:
    """Random rows of an operand, on all cores: bytes and rows per second of each core.

    The operand is as large as that of a large graph, for its size in pages slows down every access.
    """
    rng = np.random.default_rng(0)
    memory = np.ones(min(_OPERAND_BYTES, MEMORY_LIMIT // 8) // 4, np.float32)
    rows = np.repeat(np.arange(20_000), 16)

    def seconds(width: int) -> float:
        operand = memory[: memory.size // width * width].reshape(-1, width)
        columns = [rng.integers(0, len(operand), rows.size) for _ in range(CPU_COUNT)]
        outs = [np.zeros((20_000, width), np.float32) for _ in range(CPU_COUNT)]
        return _on_all_cores(lambda i: accumulate(rows, columns[i], None, operand, outs[i]))

    narrow, wide = seconds(16), seconds(128)
    per_byte = max(wide - narrow, 1e-9) / (rows.size * 4 * (128 - 16))
    per_row = max(narrow / rows.size - 16 * 4 * per_byte, 1e-10)
    return {"gather": 1 / per_byte, "rows": 1 / per_row}


def _on_all_cores(call: Callable[[int], object]) -> float:
    """Seconds of a call on all cores at once, each with its number."""
    with ThreadPoolExecutor(CPU_COUNT) as threads:
        return fastest(lambda: list(threads.map(call, range(CPU_COUNT))))


def _entries(folder: Path) -> float:
    count = 1 << 20
    columns = np.sort(np.random.default_rng(0).integers(0, 1 << 24, count).reshape(-1, 16), axis=1)
    table = pa.table({"row": np.repeat(np.arange(count // 16), 16), "column": columns.reshape(-1)})
    write_edges(folder / "edges.parquet", [table], table.schema)
    return count / fastest(lambda: list(read_edges(folder / "edges.parquet")))


def _copy() -> float:
    block = np.ones(24 << 20, np.float32)
    return block.nbytes / fastest(lambda: block.__imul__(np.float32(1)))


def _touch() -> float:
    """The slower of two: a virtual machine may reuse freed memory for the first."""
    kept, seconds = [], []
    for _ in range(2):
        started = time.perf_counter()
        kept.append(np.full(1 << 29, 1, np.uint8))
        seconds.append(time.perf_counter() - started)
    return kept[0].nbytes / max(seconds)


def _gram() -> dict[str, float]:
    """Flops and entries per second, from two widths, on all cores: few columns are slow in BLAS."""

    def seconds_per_entry(width: int) -> float:
        height = (12 << 20) // (4 * width)
        blocks = [np.ones((height, width), np.float32) for _ in range(CPU_COUNT)]
        outs = [np.empty((width, width), np.float32) for _ in range(CPU_COUNT)]
        square = _on_all_cores(lambda i: np.matmul(blocks[i].T, blocks[i], out=outs[i]))
        return square / (height * width)

    narrow, wide = seconds_per_entry(192), seconds_per_entry(1024)
    per_flop = max(wide - narrow, 1e-13) / (1024 - 192)
    per_entry = max(narrow - 192 * per_flop, 1e-11)
    return {"gram": 1 / per_flop, "gram_entries": 1 / per_entry}


def _gemm() -> float:
    blocks = [np.ones((8192, 512), np.float32) for _ in range(CPU_COUNT)]
    project = np.ones((512, 128), np.float32)
    outs = [np.empty((8192, 128), np.float32) for _ in range(CPU_COUNT)]
    seconds = _on_all_cores(lambda i: np.matmul(blocks[i], project, out=outs[i]))
    return 2 * 8192 * 512 * 128 / seconds


def _chunks(folder: Path) -> float:
    """Chunks per second, so small that their bytes hardly count."""
    count = 64
    create_array(ArraySpec(folder / "chunks", (count, 1024), (1, 1024)))
    stored, row = open_matrix(folder / "chunks"), np.ones((1, 1024), np.float32)

    def write() -> None:
        for number in range(count):
            stored.write((number, 0), row)

    return count / fastest(write)


def _disk(folder: Path) -> dict[str, float]:
    """Two files at a time, as threads do; each once, so that no cache answers."""
    blocks = [aligned_empty(16 << 20) for _ in range(2)]
    for block in blocks:
        block[:] = 1
    paths = [folder / f"block-{number}" for number in range(64)]

    def rate(transfer: Callable[[Path, Bytes], object]) -> float:
        def half(turn: int) -> None:
            for path in paths[turn::2]:
                transfer(path, blocks[turn])

        started = time.perf_counter()
        list(threads.map(half, range(2)))
        return len(paths) * blocks[0].nbytes / (time.perf_counter() - started)

    with ThreadPoolExecutor(2) as threads:
        return {"write": rate(write_direct), "read": rate(read_direct)}


def hardware_limits() -> dict[str, float]:
    """Flops of a dense product in BLAS, and bytes copied in memory, per second on all cores."""
    left, right = (np.ones((_ORDER, _ORDER), np.float32) for _ in range(2))
    out = np.empty_like(left)
    with threadpool_limits(limits=CPU_COUNT):
        product = fastest(lambda: np.matmul(left, right, out=out), 5)
    blocks = [np.ones((2, _BLOCK_BYTES), np.uint8) for _ in range(CPU_COUNT)]
    copy = _on_all_cores(lambda core: np.copyto(*blocks[core]))
    # Every byte of a copy is read once and written once.
    moved = 2 * CPU_COUNT * _BLOCK_BYTES
    return {"sgemm_flops": 2 * _ORDER**3 / product, "memory_bytes": moved / copy}
