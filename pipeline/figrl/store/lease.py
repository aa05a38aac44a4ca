"""Leases: the files of a run stay as long as a reader has it open.

A reader holds a shared lock of the run's manifest, which is never rewritten. Deleting the run takes
the exclusive lock. Both are released when their process ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figrl.store.lock import try_lock

_MAX_AGE_SECONDS = 2 * 86_400.0
"""Age at which a run may be deleted where the file system has no locks."""


class Lease:
    """Keeps a run from being deleted until it is released or garbage-collected.

    Raises `FileNotFoundError` if the run is deleted, or being deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = folder / "manifest.json"
        self._file = manifest.open("rb")
        if try_lock(self._file, shared=True) is False or not manifest.exists():
            self.release()
            raise FileNotFoundError(f"{folder} is being deleted")

    def release(self) -> None:
        """Allow the run to be deleted."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lease, (self.folder,)


@contextmanager
def not_in_use(folder: Path) -> Iterator[bool]:
    """Yield whether nobody reads a run; if so, nobody can open it until the block ends."""
    try:
        # Opened for writing: some network file systems need that for an exclusive lock.
        file = (folder / "manifest.json").open("r+b")
    except FileNotFoundError:
        yield True
        return
    with file:
        free = try_lock(file)
        if free is None:
            # No locks: readers have until the run is old.
            free = time.time() - os.fstat(file.fileno()).st_mtime > _MAX_AGE_SECONDS
        yield free
