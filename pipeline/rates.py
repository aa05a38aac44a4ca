"""How fast a machine is: rates that turn the counts of a plan into seconds.

`figrl bench rates` measures them on the machine it runs on and keeps them in the user's cache
folder; without that, those of a small two-core machine are used.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from threadpoolctl import threadpool_limits

from pipeline.arrays import ensure_zarr
from pipeline.direct import Bytes, aligned_empty, read_direct, write_direct
from pipeline.files import read_json, write_json
from pipeline.graph import read_edges
from pipeline.ingest.partition import write_edges
from pipeline.learn.kernels import accumulate
from pipeline.learn.projection import fill_projection
from pipeline.tiles import Floats, open_tiles

_OPERAND_BYTES = 2 << 30


@dataclass(frozen=True)
class Rates:
    """What one core, and one disk, does in a second.

    Attributes
    ----------
    regenerate : float
        Entries of R that a core makes.
    gather : float
        Bytes of operand rows that a core adds up along edges, while the others do too.
    rows : float
        Rows of the operand that a core finds, while the others do too.
    entries : float
        Entries of the stored graph that a core decodes.
    copy : float
        Bytes that a core writes to memory that is in use.
    touch : float
        Bytes that a core writes to memory that was never used before.
    gram, gram_entries : float
        Flops (n d^2) of the Gram matrix that a core does, and entries (n d) that it takes up, while
        the others do too.
    gemm : float
        Flops (2 n d k) of a dense product that a core does, while the others do too.
    chunks : float
        Zarr chunks that a core can take in hand, whatever their size.
    read, write : float
        Bytes that go from or to the disk past the cache, all cores together.
    task_seconds, stage_seconds : float
        What Dask and the files cost for a task, and for a stage, whatever they do and however many
        cores there are: one scheduler hands out all tasks.
    """

    regenerate: float = 1.2e9
    gather: float = 6e9
    rows: float = 5e7
    entries: float = 8e7
    copy: float = 4e9
    touch: float = 5e9
    gram: float = 9e10
    gram_entries: float = 5e8
    gemm: float = 6.5e10
    chunks: float = 700.0
    read: float = 1.8e9
    write: float = 1e9
    task_seconds: float = 0.0075
    stage_seconds: float = 0.1

    def core_seconds(self, work: dict[str, int]) -> float:
        """Seconds that one core takes for counts of work, by the name of their rate."""
        return sum(count / float(getattr(self, name)) for name, count in work.items())


def rates_path() -> Path:
    """Where the rates of this machine are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "figrl" / "rates.json"


def known_rates() -> tuple[Rates, bool]:
    """Rates of this machine, and whether they were measured."""
    try:
        kept = read_json(rates_path())
        return Rates(**{field.name: float(kept[field.name]) for field in fields(Rates)}), True
    except (OSError, ValueError, KeyError, TypeError):
        return Rates(), False


def measure_rates(folder: Path | None = None) -> Rates:
    """Measure this machine, in a few seconds, and keep what was found.

    Parameters
    ----------
    folder : Path, optional
        Where to write and read; by default the folder for temporary files.
    """
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory(dir=folder) as place:
        # First: what the others give back, a virtual machine would have at hand.
        touch = _touch()
        gather, rows = _gather()
        gram, gram_entries = _gram()
        write, read = _disk(Path(place))
        rates = Rates(
            regenerate=_regenerate(),
            gather=gather,
            rows=rows,
            entries=_entries(Path(place)),
            copy=_copy(),
            touch=touch,
            gram=gram,
            gram_entries=gram_entries,
            gemm=_gemm(),
            chunks=_chunks(Path(place)),
            read=read,
            write=write,
        )
    write_json(rates_path(), asdict(rates))
    return rates


def fastest(call: Callable[[], object], repeats: int = 3) -> float:
    """Least seconds of several calls; the first, which compiles, does not count."""
    call()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _regenerate() -> float:
    keys = np.arange(20_000, dtype=np.uint64)
    scale, out = np.ones(keys.size, np.float32), np.empty((keys.size, 256), np.float32)
    return out.size / fastest(
        lambda: fill_projection(keys, seed=0, first_column=0, scale=scale, out=out)
    )


def _gather() -> tuple[float, float]:
    """Rows from all over an operand, on all cores: bytes and rows of each.

    The operand is as large as that of a large graph: the more pages it has, the longer the
    processor takes to find one.
    """
    rng = np.random.default_rng(0)
    memory = np.ones(min(_OPERAND_BYTES, MEMORY_LIMIT // 8) // 4, np.float32)
    rows = np.repeat(np.arange(20_000), 16)
    seconds = {}
    with ThreadPoolExecutor(CPU_COUNT) as threads:
        for width in (16, 128):
            operand = memory[: memory.size // width * width].reshape(-1, width)
            columns = [rng.integers(0, len(operand), rows.size) for _ in range(CPU_COUNT)]
            outs = [np.zeros((20_000, width), np.float32) for _ in range(CPU_COUNT)]

            def add(
                core: int,
                operand: Floats = operand,
                columns: list[npt.NDArray[np.int64]] = columns,
                outs: list[Floats] = outs,
            ) -> None:
                accumulate(rows, columns[core], None, operand, outs[core])

            seconds[width] = fastest(partial(_on_all_cores, threads, add))
    per_byte = max(seconds[128] - seconds[16], 1e-9) / (rows.size * 4 * (128 - 16))
    per_row = max(seconds[16] / rows.size - 16 * 4 * per_byte, 1e-10)
    return 1 / per_byte, 1 / per_row


def _on_all_cores(threads: ThreadPoolExecutor, call: Callable[[int], None]) -> None:
    list(threads.map(call, range(CPU_COUNT)))


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
    """The slower of two: a virtual machine may have the first at hand, as freed just before."""
    kept, seconds = [], []
    for _ in range(2):
        started = time.perf_counter()
        kept.append(np.full(1 << 29, 1, np.uint8))
        seconds.append(time.perf_counter() - started)
    return kept[0].nbytes / max(seconds)


def _gram() -> tuple[float, float]:
    """Flops and entries, from two widths, on all cores: BLAS is slow with few columns."""
    seconds = {}
    with ThreadPoolExecutor(CPU_COUNT) as threads:
        for width in (192, 1024):
            height = (12 << 20) // (4 * width)
            blocks = [np.ones((height, width), np.float32) for _ in range(CPU_COUNT)]
            outs = [np.empty((width, width), np.float32) for _ in range(CPU_COUNT)]

            def square(core: int, blocks: list[Floats] = blocks, outs: list[Floats] = outs) -> None:
                np.matmul(blocks[core].T, blocks[core], out=outs[core])

            seconds[width] = fastest(partial(_on_all_cores, threads, square)) / (height * width)
    per_flop = max(seconds[1024] - seconds[192], 1e-13) / (1024 - 192)
    per_entry = max(seconds[192] - 192 * per_flop, 1e-11)
    return 1 / per_flop, 1 / per_entry


def _gemm() -> float:
    blocks = [np.ones((8192, 512), np.float32) for _ in range(CPU_COUNT)]
    project = np.ones((512, 128), np.float32)
    outs = [np.empty((8192, 128), np.float32) for _ in range(CPU_COUNT)]
    with ThreadPoolExecutor(CPU_COUNT) as threads:

        def multiply(core: int) -> None:
            np.matmul(blocks[core], project, out=outs[core])

        return 2 * 8192 * 512 * 128 / fastest(partial(_on_all_cores, threads, multiply))


def _chunks(folder: Path) -> float:
    """Small chunks, so that nearly all of the time is not for their bytes."""
    count = 64
    ensure_zarr(folder / "chunks", shape=(count, 1024), chunks=(1, 1024), dtype=np.float32)
    tiles, row = open_tiles(folder / "chunks"), np.ones((1, 1024), np.float32)

    def write() -> None:
        for number in range(count):
            tiles.write((number, 0), row)

    return count / fastest(write)


def _disk(folder: Path) -> tuple[float, float]:
    """Two files at a time, as threads do, and once: a disk is slower than what caches it."""
    blocks = [aligned_empty(16 << 20) for _ in range(2)]
    for block in blocks:
        block[:] = 1
    paths = [folder / f"block-{number}" for number in range(64)]
    seconds = []
    with ThreadPoolExecutor(2) as threads:
        for transfer in (write_direct, read_direct):

            def half(turn: int, transfer: Callable[[Path, Bytes], None] = transfer) -> None:
                for path in paths[turn::2]:
                    transfer(path, blocks[turn])

            started = time.perf_counter()
            list(threads.map(half, range(2)))
            seconds.append(time.perf_counter() - started)
    write, read = (len(paths) * blocks[0].nbytes / taken for taken in seconds)
    return write, read
