"""What the machine itself can do: the limits that stages are held against."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from pipeline.rates import fastest

_ORDER = 2048
_BLOCK_BYTES = 128 << 20


def limits() -> dict[str, Any]:
    """Flops of BLAS's own dense product, and bytes that memory moves, in a second, on all cores."""
    return {"sgemm_flops": _sgemm(), "memory_bytes": _bandwidth()}


def _sgemm() -> float:
    left, right = (np.ones((_ORDER, _ORDER), np.float32) for _ in range(2))
    out = np.empty_like(left)
    with threadpool_limits(limits=CPU_COUNT):
        return 2 * _ORDER**3 / fastest(lambda: np.matmul(left, right, out=out), 5)


def _bandwidth() -> float:
    """A copy, every byte of which is read once and written once."""
    blocks = [np.ones((2, _BLOCK_BYTES), np.uint8) for _ in range(CPU_COUNT)]
    with ThreadPoolExecutor(CPU_COUNT) as threads:
        seconds = fastest(lambda: list(threads.map(lambda pair: np.copyto(*pair), blocks)), 5)
    return 2 * CPU_COUNT * _BLOCK_BYTES / seconds
