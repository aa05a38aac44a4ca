"""One block of work on a worker, and the mark that commits it.

A mark is a small JSON file, renamed into place after the block's output is complete. Nothing else
decides whether a block has to be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from figrl.engine.stage import Stats
from figrl.engine.worker import peak_memory_bytes, worker_state
from figrl.errors import system_errors_named
from figrl.store.files import read_json, write_json
from figrl.store.lock import process_name

Outcome = tuple[str, str, int, Stats]
"""Of a block: its key, the process that did it, its peak memory, and its statistics."""


def execute_block(
    function: Callable[..., Stats], args: tuple[Any, ...], key: str, mark: Path | None, attempt: str
) -> Outcome:
    """Do one block on a worker, unless it is done, and commit its mark."""
    place = None if mark is None else mark.parent
    with system_errors_named(place), worker_state().block(key, mark, attempt):
        stats = read_mark(mark) if mark is not None else None
        if stats is None:
            stats = function(*args)
            if mark is not None:
                write_json(mark, stats)
    return key, process_name(), peak_memory_bytes(), stats


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
