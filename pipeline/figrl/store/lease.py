"""Leases: the files of a run stay as long as a reader has it open.

A reader holds a shared lock of the run's manifest, which is never rewritten. Deleting the run takes
the exclusive lock. Both are released when their process ends. Where the file system has no locks,
readers need none, because nothing is ever deleted there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from figrl.errors import ConfigError
from figrl.store.lock import try_lock


class Lease:
    """Keeps a run from being deleted until it is released or garbage-collected.

    Raises `FileNotFoundError` if the run is deleted, or being deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = folder / "manifest.json"
        self._file = manifest.open("rb")
        free = True
        with suppress(ConfigError):
            free = try_lock(self._file, shared=True)
        if not free or not manifest.exists():
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
        free = False
        with suppress(ConfigError):
            free = try_lock(file)
        yield free
