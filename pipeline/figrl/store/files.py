"""The primitives of storage, on a local file system.

Put a whole object, get a range, list a prefix, delete a prefix: what a file system and an object
store both have. Readers never see a partial object. All other rooms reach stored data through these
functions.
"""

from __future__ import annotations

import ctypes
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

from figrl.errors import ConfigError
from figrl.store.checksums import (
    append_checksum,
    check_file,
    crc32c,
    damage_reported,
    sealed_json,
    unsealed_json,
)

_HEADER_TRIES = 20


def put(path: Path, content: bytes | memoryview, *, durable: bool = False) -> None:
    """Write a whole object atomically; `durable` waits until it is on disk."""
    with atomic_write(path) as aside, aside.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable:
        _sync_folder(path.parent)


def put_if_absent(path: Path) -> None:
    """Create an empty file; FileExistsError if it is there, also if somebody else was first."""
    path.touch(exist_ok=False)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable(folder: Path) -> None:
    """Wait until all that was written to the file system of a folder is on disk, in one call."""
    folder.mkdir(parents=True, exist_ok=True)
    # Python has no name for the call of the C library.
    libc = ctypes.CDLL(None)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not hasattr(libc, "syncfs") or libc.syncfs(descriptor):
            os.sync()
    finally:
        os.close(descriptor)


def get(path: Path, *, start: int = 0, size: int = -1) -> bytes:
    """Read an object, or a range of its bytes; FileNotFoundError if there is none."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def exists(path: Path) -> bool:
    """Whether there is an object, or anything below a prefix."""
    return path.exists()


def list_prefix(folder: Path, pattern: str = "*") -> list[Path]:
    """Objects and prefixes directly below a prefix, sorted, without hidden names."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a hidden temporary path beside `path` for a library to write to; rename it on success.

    What is left there after an error is deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _hidden(path)
    with _named(path, aside):
        try:
            yield aside
            aside.replace(path)
        finally:
            delete(aside)


@contextmanager
def _named(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Name the file in errors of the operating system, which does not when a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename) == str(aside):
            error.filename = str(path)
        raise


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def delete(path: Path) -> None:
    """Delete an object, or all below a prefix; nothing happens if there is none.

    A folder disappears in one step, by a rename: one that was deleted only in part could keep
    marks of blocks whose data is gone.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path.rename(_hidden(path)), ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a text file atomically."""
    put(path, text.encode(), durable=durable)


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n", durable=durable)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(get(path))


def write_record(path: Path, value: dict[str, Any], *, durable: bool = False) -> None:
    """Write a JSON object with its checksum, atomically."""
    put(path, sealed_json(value), durable=durable)


def read_record(path: Path) -> dict[str, Any]:
    """Read an object of `write_record`; `DamagedError` if it is missing or was changed."""
    with damage_reported(path):
        return unsealed_json(get(path))


def append_record(path: Path, value: dict[str, Any]) -> None:
    """Append a JSON object and its checksum to a log, durably."""
    append_line(path, record_line(value), durable=True)


def record_line(value: dict[str, Any]) -> str:
    """A JSON object and its checksum, in one line of a log."""
    crc = f"{crc32c(json.dumps(value, sort_keys=True).encode()):08x}"
    return json.dumps({**value, "checksum": crc}, sort_keys=True)


def read_records(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Objects of `append_record`, and the numbers of the lines that are damaged, from 1 on."""
    content = get(path) if exists(path) else b""
    found, bad = [], []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            value = json.loads(line)
            crc = value.pop("checksum")
            text = json.dumps(value, sort_keys=True)
            whole = json.dumps({**value, "checksum": crc}, sort_keys=True).encode()
            if crc != f"{crc32c(text.encode()):08x}" or whole != line:
                raise ValueError("its checksum is wrong")
        except (ValueError, LookupError, TypeError, AttributeError):
            bad.append(number)
        else:
            found.append(value)
    if content and not content.endswith(b"\n"):
        bad.append(content.count(b"\n") + 1)
    return found, bad


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write a NumPy array with its checksum to a file of its own, atomically."""
    with atomic_write(path) as aside:
        with aside.open("wb") as file:
            np.save(file, values, allow_pickle=False)
        append_checksum(aside)


def load_array(path: Path, *, mapped: bool = False, checked: bool = True) -> npt.NDArray[Any]:
    """Read an array of `save_array`, or memory-map it.

    `checked`: whether it has a checksum: a file of `map_new_array`, or of the user, has none.
    """
    if checked:
        check_file(path)
    for _ in range(_HEADER_TRIES):
        # NumPy has Python parse the header, whose parser (3.11) fails now and then when another
        # thread parses at the same time.
        with damage_reported(path), suppress(SystemError):
            return _load(path, mapped)
    return _load(path, mapped)


def _load(path: Path, mapped: bool) -> npt.NDArray[Any]:
    loaded = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return cast("npt.NDArray[Any]", loaded)


def digest(value: Any) -> str:
    """Short digest of a value that JSON can hold."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
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
            # Another job may delete while we count.
            with suppress(FileNotFoundError):
                total += (Path(root) / name).stat().st_size
    return total


def copy(path: Path, target: Path) -> None:
    """Copy an object, or all below a prefix, to a target that is absent; it appears in one step."""
    with atomic_write(target) as aside:
        if path.is_dir():
            shutil.copytree(path, aside)
        else:
            shutil.copyfile(path, aside)


def move(path: Path, target: Path) -> None:
    """Replace a target by an object, or by all below a prefix, of the same file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        delete(target)
    path.rename(target)


def map_new_array(path: Path, size: int, dtype: npt.DTypeLike) -> np.memmap[Any, Any]:
    """Create an array file of zeros, and map it into memory for writing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mapped = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), (size,))
    with _named(path), path.open("r+b") as file:
        # Without this, a disk that is full would end the process when a page is written.
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return cast("np.memmap[Any, Any]", mapped)


def write_stretch(path: Path, start: int, values: npt.NDArray[Any]) -> None:
    """Write entries of an array file in place.

    Not through a memory map: machines that write to the same page of a shared file system keep
    the data of each other only if each writes no more than its own bytes.
    """
    offset = load_array(path, mapped=True, checked=False).offset  # type: ignore[attr-defined]
    with _named(path), path.open("r+b") as file:
        file.seek(offset + start * values.itemsize)
        file.write(values.tobytes())


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append a line to a log; lines of several processes never mix.

    Half a line, which a process that was killed may have left, does not take this one with it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _named(path), path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        content = b"\n" * cut + line.encode() + b"\n"
        while content:
            # A disk that becomes full takes a part, and refuses the next one.
            content = content[file.write(content) :]
        if durable:
            os.fsync(file.fileno())


def modified_time(path: Path) -> float:
    """When an object, or the list of objects below a prefix, last changed."""
    return path.stat().st_mtime
