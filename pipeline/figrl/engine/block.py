"""One block of work on a worker, and the mark that commits it.

A mark is a small JSON file, renamed into place after the block's output is complete. Nothing else
decides whether a block has to be computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed

from figrl.engine.stage import Stats
from figrl.engine.worker import peak_memory_bytes, worker_state
from figrl.errors import FigrlError, system_errors_named
from figrl.store.files import read_json, write_json
from figrl.store.lock import process_name

Outcome = tuple[str, str, int, Stats]
"""Of a block: its key, the process that did it, its peak memory, and its statistics."""


_LOOK_SECONDS = 30.0
_POLL_SECONDS = 0.05


class UnfitWorkerError(FigrlError):
    """A worker was given a block of a job that it cannot take part in; its address."""


def execute_block(
    function: Callable[..., Stats],
    args: tuple[Any, ...],
    key: str,
    mark: Path | None,
    attempt: str,
    secret: str | None = None,
) -> Outcome:
    """Do one block on a worker, unless it is done, and commit its mark.

    `secret`: under what a worker is told whether it is fit for the job. One that has just come
    may be given blocks before anybody has looked at it: they wait.
    """
    place = None if mark is None else mark.parent
    with system_errors_named(place), worker_state().block(key, mark, attempt):
        if secret is not None:
            _wait_for_verdict(secret)
        stats = read_mark(mark) if mark is not None else None
        if stats is None:
            stats = function(*args)
            if mark is not None:
                write_json(mark, stats)
    return key, process_name(), peak_memory_bytes(), stats


def _wait_for_verdict(secret: str) -> None:
    verdicts, deadline = worker_state().verdicts, time.monotonic() + _LOOK_SECONDS
    while secret not in verdicts and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    if not verdicts.get(secret):
        raise UnfitWorkerError(distributed.get_worker().address)


def read_mark(path: Path) -> Stats | None:
    """Statistics of a finished block; None if it has no mark, or one that cannot be read.

    Marks are not flushed to the disk one by one: a power failure may leave an empty one behind,
    and its block is computed again.
    """
    try:
        stats: Stats = read_json(path)
    except (FileNotFoundError, ValueError):
        return None
    return stats
