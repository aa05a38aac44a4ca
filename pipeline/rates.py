"""How fast a machine is: rates that turn the counts of a plan into seconds.

`figrl bench rates` measures them on the machine it runs on and keeps them in the user's cache
folder; without that, those of a small two-core machine are used.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import scipy.linalg.blas
from threadpoolctl import threadpool_limits

from pipeline.files import read_json, write_json
from pipeline.learn.kernels import accumulate
from pipeline.learn.projection import fill_projection


@dataclass(frozen=True)
class Rates:
    """What one core, and one disk, does in a second.

    Attributes
    ----------
    regenerate : float
        Entries of R that a core makes.
    gather : float
        Bytes of operand rows that a core adds up along edges.
    gram : float
        Flops (n d^2) of the Gram matrix that a core does.
    gemm : float
        Flops (2 n d k) of a dense product that a core does.
    read, write : float
        Bytes that go from or to the disk, all cores together.
    task_seconds : float
        What Dask and the files of a task cost, whatever the task does.
    """

    regenerate: float = 8e8
    gather: float = 5e9
    gram: float = 6e10
    gemm: float = 8e10
    read: float = 1.5e9
    write: float = 6e8
    task_seconds: float = 0.01


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
    with threadpool_limits(limits=1):
        write, read = _disk(folder)
        rates = Rates(
            regenerate=_regenerate(),
            gather=_gather(),
            gram=_gram(),
            gemm=_gemm(),
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


def _gather() -> float:
    """Rows from all over an operand that no cache holds."""
    rng = np.random.default_rng(0)
    operand = np.ones((300_000, 128), np.float32)
    rows = np.repeat(np.arange(40_000), 16)
    columns = rng.integers(0, operand.shape[0], rows.size)
    out = np.zeros((40_000, 128), np.float32)
    seconds = fastest(lambda: accumulate(rows, columns, None, operand, out))
    return rows.size * operand.shape[1] * 4 / seconds


def _gram() -> float:
    block = np.ones((8192, 512), np.float32)
    return 8192 * 512**2 / fastest(lambda: scipy.linalg.blas.ssyrk(1.0, block.T))


def _gemm() -> float:
    block, project = np.ones((8192, 512), np.float32), np.ones((512, 128), np.float32)
    return 2 * 8192 * 512 * 128 / fastest(lambda: block @ project)


def _disk(folder: Path | None) -> tuple[float, float]:
    block = np.random.default_rng(0).integers(0, 255, 16 << 20, np.uint8)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "block"
        write = fastest(lambda: block.tofile(path))
        read = fastest(lambda: np.fromfile(path, np.uint8))
    return block.nbytes / write, block.nbytes / read
