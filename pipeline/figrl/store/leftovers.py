"""What killed processes left behind: hidden files and folders, half written or half deleted."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path

from figrl.store.files import delete


def list_temporary(folder: Path, *, deep: bool = False) -> list[Path]:
    """What killed processes left below a prefix, or directly: half written or half deleted."""
    found: list[Path] = []
    # Other jobs may delete folders meanwhile, which a walk does not mind.
    for root, folders, names in os.walk(folder):
        every = (*folders, *names)
        found += [Path(root, name) for name in every if name[0] == "." and name.endswith(".tmp")]
        if not deep:
            break
    return sorted(found)


def delete_temporary(folder: Path) -> None:
    """Delete all that killed processes left half-written below a prefix."""
    for path in list_temporary(folder, deep=True):
        delete(path)


def delete_left_beside(path: Path) -> None:
    """Delete what killed processes left beside an object: half written or half deleted ones."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
