"""One block of work on a worker, and the mark that tells that it is done.

A mark is a small JSON file, renamed into place after the block's output is complete. No other part
of figrl decides whether a block has to be done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from pipeline.errors import FigrlError
from pipeline.files import read_json, write_json
from pipeline.measure import peak_memory_bytes, process_name

Stats = dict[str, Any]
"""What a block tells about itself: a few numbers that JSON can write."""


def execute_block(
    function: Callable[..., Stats],
    args: tuple[Any, ...],
    key: str,
    mark: Path | None,
    attempt: str,
) -> tuple[str, str, int, Stats]:
    """Do one block on a worker, unless it is done, and commit its mark."""
    _limit_blas_threads()
    _at_work[threading.get_ident()] = (attempt, mark)
    try:
        if attempt in _given_up:
            raise FigrlError(f"Block {key} belongs to an attempt that has ended.")
        stats = read_mark(mark) if mark is not None else None
        if stats is None:
            stats = function(*args)
            if mark is not None:
                write_json(mark, stats)
    finally:
        del _at_work[threading.get_ident()]
    return key, process_name(), peak_memory_bytes(), stats


def read_mark(path: Path) -> Stats | None:
    """What a finished block told; None if it has no mark, or one that cannot be read.

    Marks are not forced to the disk one by one: a machine that loses its power may leave an empty
    one behind, and its block is done again.
    """
    try:
        stats: Stats = read_json(path)
    except (FileNotFoundError, ValueError):
        return None
    return stats


_at_work: dict[int, tuple[str, Path | None]] = {}
"""By thread of this process: attempt and mark of the block that it is at."""

_given_up: set[str] = set()
"""Attempts of which this process begins no more blocks."""


def blocks_at_work(marks: Path) -> int:
    """Count the blocks of a job, known by its marks, that this process is at."""
    at_work = tuple(_at_work.values())
    return sum(mark is not None and mark.is_relative_to(marks) for _, mark in at_work)


def give_up(attempt: str) -> int:
    """Begin no more blocks of an attempt in this process; count those that it is at."""
    _given_up.add(attempt)
    return sum(other == attempt for other, _ in tuple(_at_work.values()))


_blas_is_limited = False


def _limit_blas_threads() -> None:
    """Give BLAS one thread, once per process: Dask's threads are the parallelism.

    It also makes the order of BLAS's sums, and so the bits of the result, independent of the
    number of cores.
    """
    global _blas_is_limited
    if not _blas_is_limited:
        threadpool_limits(limits=1)
        _blas_is_limited = True
