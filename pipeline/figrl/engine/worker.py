"""All that a worker process keeps between blocks: the one module with state.

Buffers are used again, because writing to fresh memory is several times slower than writing to
memory that was used before. BLAS has one thread. Blocks at work are counted, so that a job that is
started again can wait for those that a killed one left behind.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import distributed
import numpy as np
import psutil
import pyarrow as pa
from threadpoolctl import threadpool_limits

from figrl.engine.buffers import Kept, SharedMatrices, SharedOperand
from figrl.errors import FigrlError
from figrl.store.matrix import Floats, aligned_empty

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")

_VERDICTS = 1000
"""Jobs of which a process remembers whether it is fit for them."""


class WorkerState:
    """State of one worker process.

    The threads share `operand` in a product; a chain of products goes back and forth between some
    `matrices`; `kept` holds blocks of the graph from slice to slice.
    """

    def __init__(self) -> None:
        self.operand = SharedOperand()
        self.matrices = SharedMatrices()
        self.kept = Kept()
        self._buffers: dict[tuple[int, str], Floats] = {}
        self._opened: dict[Hashable, Any] = {}
        self.at_work: dict[int, tuple[str, Path | None]] = {}
        self.abandoned: set[str] = set()
        self.verdicts: dict[str, bool] = {}
        self._limited_blas: set[str] = set()

    @contextmanager
    def block(self, key: str, mark: Path | None, attempt: str) -> Iterator[None]:
        """Count a block as being at work in this thread; refuse one of an abandoned attempt."""
        self.limit_blas_threads()
        self.at_work[threading.get_ident()] = (attempt, mark)
        try:
            if attempt in self.abandoned:
                raise FigrlError(f"Block {key} belongs to an attempt that has ended.")
            yield
        finally:
            del self.at_work[threading.get_ident()]

    def limit_blas_threads(self) -> None:
        """Limit BLAS to one thread: Dask's threads are the parallelism.

        It also makes the order of BLAS's sums, and so the bits of the result, independent of the
        number of cores. SciPy brings a BLAS of its own, and a worker may load it long after its
        first block.
        """
        loaded = {"numpy", "scipy.linalg"} & sys.modules.keys()
        if loaded != self._limited_blas:
            threadpool_limits(limits=1)
            self._limited_blas = loaded

    def buffer(self, name: str, shape: tuple[int, int]) -> Floats:
        """Return an array that this thread may use until it asks for the same name again."""
        key = (threading.get_ident(), name)
        size = shape[0] * shape[1]
        held = self._buffers.get(key)
        if held is None or held.size < size:
            self._buffers.pop(key, None)
            held = self._buffers[key] = aligned_empty(4 * size).view(np.float32)
        return held[:size].reshape(shape)

    def buffer_pair(
        self, name: Literal["in", "out"], shape: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Two such arrays: one to compute in while the other is on its way to or from the disk.

        There are only two names, so that one stage after the other uses the same memory.
        """
        return self.buffer(f"{name} 0", shape), self.buffer(f"{name} 1", shape)

    def opened(self, key: Hashable, open_it: Callable[[], Any]) -> Any:
        """Something that is costly to open, such as a mapped index; opened once per process."""
        if key not in self._opened:
            self._opened[key] = open_it()
        return self._opened[key]

    def release_buffers(self) -> None:
        """Release all memory that is kept for later stages."""
        self.operand.release()
        self.matrices.release()
        self.kept.release()
        self._buffers.clear()


_process: list[WorkerState] = []
"""The state of this process, once it was asked for."""


def worker_state() -> WorkerState:
    """State of this process; threads that a block starts share it."""
    if not _process:
        _process.append(WorkerState())
    return _process[0]


# What the runner calls on every worker.


def judge(secret: str, fit: bool) -> None:
    """Let this process do the blocks of a job, or have it give them back."""
    verdicts = worker_state().verdicts
    verdicts[secret] = fit
    while len(verdicts) > _VERDICTS:
        # Of a job that ended long ago; one that has not asks again.
        del verdicts[next(iter(verdicts))]


def count_blocks_at_work(marks: Path) -> int:
    """Blocks of a job, known by its folder of marks, that this process is at."""
    at_work = tuple(worker_state().at_work.values())
    return sum(mark is not None and mark.is_relative_to(marks) for _, mark in at_work)


def abandon_attempt(attempt: str) -> int:
    """Begin no more blocks of an attempt in this process; count those at work."""
    worker_state().abandoned.add(attempt)
    return sum(other == attempt for other, _ in tuple(worker_state().at_work.values()))


def work_of_attempt(attempt: str, dask_worker: distributed.Worker) -> tuple[int, bool]:
    """Blocks of an attempt that this process is at, and whether it is at nothing whatever."""
    blocks = sum(other == attempt for other, _ in tuple(worker_state().at_work.values()))
    idle = (
        dask_worker.status is distributed.Status.running and not dask_worker.state.all_running_tasks
    )
    return blocks, idle


def release_buffers() -> None:
    """Release the buffers of this process."""
    worker_state().release_buffers()


def peak_memory_bytes() -> int:
    """Largest resident size of this process since `reset_peak_memory`, or since its start.

    ``ru_maxrss`` is only the second choice: a child inherits the figure of its parent process.
    """
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak_memory() -> int:
    """Return what the allocators cache to the system, forget the peak; the resident bytes now."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")
    return int(psutil.Process().memory_info().rss)
