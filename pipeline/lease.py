"""Readers and the run they read: its files stay as long as somebody has it open.

A reader holds a shared lock of the run's manifest, which is never written again. Who wants to
delete the run needs the lock for itself. Both end with their process.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_AGE_WITHOUT_LOCKS = 2 * 86_400.0
"""Seconds after which a run may go where the file system cannot tell whether it is read."""


class Lease:
    """Keeps a run from being deleted until it is released, or nobody refers to it any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[bytes] | None = _lock_shared(folder)

    def release(self) -> None:
        """Let the run go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lease, (self.folder,)


def _lock_shared(folder: Path) -> IO[bytes]:
    """Open and lock the manifest.

    Raises
    ------
    FileNotFoundError
        If the run is gone, or about to go.
    """
    manifest = folder / "manifest.json"
    file = manifest.open("rb")
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise FileNotFoundError(f"{folder} is being deleted") from error
    except OSError:
        # A file system without locks; runs are then kept for a while by their age alone.
        pass
    if not manifest.exists():
        file.close()
        raise FileNotFoundError(f"{folder} was deleted")
    return file


@contextmanager
def not_in_use(folder: Path) -> Iterator[bool]:
    """Tell whether nobody reads a run, and keep it so for the while."""
    try:
        # Open for writing too: some network file systems lock for one's own only then.
        file = (folder / "manifest.json").open("r+b")
    except FileNotFoundError:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            yield age > _AGE_WITHOUT_LOCKS
            return
        yield True
