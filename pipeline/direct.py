"""Files that go to and from the disk past the system's cache.

A sketch is larger than memory, written once and read once or twice: in the cache it would only
push out what is read often, and every byte would be copied by a core that has better to do. A file
system that cannot do it is read and written the usual way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 4096
"""Addresses, sizes and places in a file that the disk takes are multiples of it."""

_SMALLEST = 1 << 16
"""What is smaller than this is not worth it."""

_DIRECT = getattr(os, "O_DIRECT", 0)


class WrongSizeError(Exception):
    """A file has more or fewer bytes than it was written with."""


def aligned_empty(size: int) -> Bytes:
    """Memory that the disk can read and write by itself; whole pages of it belong to the array."""
    memory = np.empty(_pages(size) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def is_aligned(memory: npt.NDArray[np.generic]) -> bool:
    """Whether the disk can read and write an array by itself, without a copy."""
    whole = memory.flags.c_contiguous and memory.nbytes % ALIGNMENT == 0
    return whole and memory.ctypes.data % ALIGNMENT == 0


def write_direct(path: Path, content: Bytes, *, cached: bool = False) -> None:
    """Write a file, past the cache if it is large; `content` is of `aligned_empty`."""
    size = 0 if cached else content.size
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, size)
    try:
        whole = content.size // ALIGNMENT * ALIGNMENT
        _write_all(descriptor, content[:whole])
        if whole < content.size:
            # What is left does not fill a page of the disk, so the cache has to do it.
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_DIRECT)
            _write_all(descriptor, content[whole:])
    finally:
        os.close(descriptor)


def read_direct(
    path: Path, out: Bytes, *, offset: int = 0, size: int | None = None, cached: bool = False
) -> None:
    """Fill `out`, which is of `aligned_empty`, from a file.

    Parameters
    ----------
    path : Path
    out : uint8 array
    offset : int
        Where in the file it begins.
    size : int, optional
        Bytes that the file has to have; by default, those of `out`.
    cached : bool
        Whether it was written through the cache, and so is likely there.
    """
    wanted = out.size if size is None else size
    descriptor = _open(path, os.O_RDONLY, 0 if cached or offset % ALIGNMENT else out.size)
    try:
        found = os.fstat(descriptor).st_size
        if found != wanted:
            raise WrongSizeError(f"has {found} bytes where {wanted} belong")
        # The last page is read whole: its rest lies in memory that belongs to the array too.
        memory = np.lib.stride_tricks.as_strided(out, (_pages(out.size),))
        done = 0
        while done < out.size and (
            count := os.preadv(descriptor, [memory[done:].data], offset + done)
        ):
            done += count
        if done < out.size:
            raise WrongSizeError(f"ended after {offset + done} bytes while it was read")
    finally:
        os.close(descriptor)


def _pages(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _open(path: Path, flags: int, size: int) -> int:
    if size >= _SMALLEST:
        try:
            return os.open(path, flags | _DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags, 0o666)


def _write_all(descriptor: int, content: Bytes) -> None:
    done = 0
    while done < content.size:
        done += os.write(descriptor, content[done:].data)
