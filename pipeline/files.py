"""Writing so that nothing half-written is ever seen: files and folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it into place when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _beside(path)
    try:
        yield aside
        aside.replace(path)
    finally:
        remove(aside)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def remove(path: Path) -> None:
    """Delete a file or a folder; what is not there is fine.

    A folder goes in one step, by a new name: of one that was deleted only in part, the marks that
    are left would be believed, though what they stand for is gone.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path.rename(_beside(path)), ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the text of a file in one step; `durable` waits until the disk has it."""
    with written_aside(path) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n", durable=durable)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write one NumPy array to a file of its own, in one step."""
    with written_aside(path) as aside, aside.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def load_array(path: Path, *, mapped: bool = False) -> npt.NDArray[Any]:
    """Read an array of `save_array`, or map it into memory without reading it."""
    loaded = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return cast("npt.NDArray[Any]", loaded)


def digest(value: Any, *, length: int = 12) -> str:
    """Short name for a value that JSON can write: equal values, equal names."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """Name for what is in a file: equal bytes, equal names."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def free_bytes(path: Path) -> int:
    """Bytes free on the disk that holds `path`, or would hold it."""
    while not path.exists():
        if path == path.parent:
            raise ConfigError(f"{path} does not exist.")
        path = path.parent
    return shutil.disk_usage(path).free


def size_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            # Others may delete while we count.
            with suppress(FileNotFoundError):
                total += (Path(root) / name).stat().st_size
    return total
