"""Space that a store keeps free, so that a job on a full disk can still write down how it ended.

It is a file of zeros in the folder of the logs, which every job that takes the lock fills up again.
What has to be told is little: where it does not fit, the file gives up a step of its space.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from figrl.store.files import free_bytes

RESERVE_BYTES = 1 << 20
STEP_BYTES = 1 << 15
"""What is given up at a time; no single record needs more."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def keep_reserve(root: Path) -> None:
    """Fill up the reserve of a store, unless the disk is almost full."""
    path = _reserve(root)
    with suppress(OSError):
        if _size(path) < RESERVE_BYTES and free_bytes(root) > 2 * RESERVE_BYTES:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                # A file with holes would keep nothing.
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def tell(root: Path, write: Callable[[], None]) -> None:
    """Call a function that writes a small record into a store, if need be in its reserve."""
    with suppress(OSError):
        # Before a log takes half a line.
        while free_bytes(root) < STEP_BYTES and _give_up(root):
            pass
    while True:
        try:
            write()
        except OSError as error:
            # A quota does not show before.
            if error.errno not in _FULL or not _give_up(root):
                raise
        else:
            return


def _give_up(root: Path) -> bool:
    """Free a step of the reserve; False if there is none left."""
    path = _reserve(root)
    size = _size(path)
    if size > 0:
        with suppress(OSError):
            os.truncate(path, max(size - STEP_BYTES, 0))
            return True
    return False


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _reserve(root: Path) -> Path:
    return root / "logs" / ".reserve"
