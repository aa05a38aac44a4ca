"""Large float32 matrices in Zarr, read and written a chunk at a time without zarr.

A chunk without compression is the plain bytes of its numbers and a checksum, so a task hands its
memory to the disk as it is. Large matrices bypass the page cache too (O_DIRECT): they are larger
than memory, written once and read once or twice, and would evict what is read often. A file system
without O_DIRECT is read and written through the cache. On disk it is a Zarr array like any other.

Measured (`figrl bench storage`, 1 GB, chunks of 4 MB; docs/performance.md): the stages take 1.72
times the processor time with zarr, 2.61 with zarrs, 1.15 with zarrs and O_DIRECT, 1.59 without it.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.store.checksums import (
    CHUNK_CRC_BYTES,
    WrongContentError,
    check_chunk,
    chunk_crc,
    damage_reported,
    unsealed_json,
)
from figrl.store.files import atomic_write, get
from figrl.store.ids import group_places

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

ALIGNMENT = 4096
"""Addresses, sizes and file offsets of O_DIRECT are multiples of it."""

_DIRECT_BYTES = 1 << 16
"""Smallest transfer for which O_DIRECT is used."""

_CACHED_BYTES = 64 << 20
"""Largest matrix that goes through the page cache."""

_DIRECT = getattr(os, "O_DIRECT", 0)


@dataclass
class StoredMatrix:
    """A float32 matrix in chunks. Threads may read at the same time."""

    path: Path
    shape: tuple[int, int]
    chunks: tuple[int, int]
    _held: dict[int, tuple[Path | None, Floats]] = field(default_factory=dict, repr=False)
    _checked: Path | None = field(default=None, repr=False)

    def write(self, corner: tuple[int, int], values: Floats) -> None:
        """Write a tile that covers whole chunks."""
        check_covers_chunks(corner, values.shape, self.chunks, self.shape)
        for chunk_path, _, part in self._parts(corner, values):
            content = self._whole_chunk(part).reshape(-1).view(np.uint8)
            with atomic_write(chunk_path) as aside:
                write_direct(aside, content, tail=chunk_crc(content), cached=self.is_cached)
        self._held.pop(get_ident(), None)

    def read(self, corner: tuple[int, int], out: Floats) -> Floats:
        """Fill `out` with the tile at `corner`, in the first column of a chunk, and return it."""
        if corner[1] % self.chunks[1]:
            raise AssertionError(f"no chunk of {self.chunks} begins at column {corner[1]}")
        for chunk_path, first_row, part in self._parts(corner, out):
            if part.shape == self.chunks and _is_aligned(part):
                self._load(chunk_path, part)
            else:
                rows = self._chunk(chunk_path)[first_row : first_row + part.shape[0]]
                part[:] = rows[:, : part.shape[1]]
        return out

    def _chunk(self, path: Path) -> Floats:
        """A whole chunk, kept until another one is read: the next rows may lie in it too."""
        held, memory = self._held.get(get_ident(), (None, None))
        if held != path or memory is None:
            memory = self._scratch()
            self._load(path, memory)
            self._held[get_ident()] = path, memory
        return memory

    def _load(self, path: Path, out: Floats) -> None:
        """Fill memory with a chunk, and check it."""
        content = out.reshape(-1).view(np.uint8)
        with damage_reported(path):
            tail = read_direct(path, content, tail=CHUNK_CRC_BYTES, cached=self.is_cached)
            check_chunk(content, tail)

    def mapped(self, start: int, stop: int) -> Floats:
        """Memory-map rows of one chunk of a matrix with a single column of chunks."""
        chunk_row, first_row = divmod(start, self.chunks[0])
        path = self.path / "c" / str(chunk_row) / "0"
        size = 4 * math.prod(self.chunks)
        with damage_reported(path):
            check_size(path.stat().st_size, size + CHUNK_CRC_BYTES)
            content = np.memmap(path, np.uint8, "r")
            if self._checked != path:
                check_chunk(content[:size], content[size:].tobytes())
                self._checked = path
        chunk = content[:size].view(np.float32).reshape(self.chunks)
        return chunk[first_row : first_row + stop - start, : self.shape[1]]

    @property
    def slices(self) -> int:
        """Number of columns of chunks."""
        return -(-self.shape[1] // self.chunks[1])

    @property
    def is_cached(self) -> bool:
        """Whether the matrix is small enough for the page cache."""
        return 4 * math.prod(self.shape) <= _CACHED_BYTES

    def _parts(self, corner: tuple[int, int], tile: Floats) -> Iterator[tuple[Path, int, Floats]]:
        """Path of each chunk that a tile overlaps, first row in it, and its part of the tile."""
        height, width = self.chunks
        done = 0
        while done < tile.shape[0]:
            chunk_row, first_row = divmod(corner[0] + done, height)
            rows = tile[done : done + height - first_row]
            for column in range(0, tile.shape[1], width):
                chunk_column = (corner[1] + column) // width
                chunk_path = self.path / "c" / str(chunk_row) / str(chunk_column)
                yield chunk_path, first_row, rows[:, column : column + width]
            done += rows.shape[0]

    def _whole_chunk(self, part: Floats) -> Floats:
        """Pad a part with zeros beyond the edge of the matrix, to the chunk that is stored."""
        if part.shape == self.chunks and _is_aligned(part):
            return part
        chunk = self._scratch()
        if part.shape != self.chunks:
            chunk[:] = 0
        chunk[: part.shape[0], : part.shape[1]] = part
        return chunk

    def _scratch(self) -> Floats:
        """Memory for a chunk, of this thread; what it held is forgotten."""
        _, memory = self._held.get(get_ident(), (None, None))
        if memory is None:
            memory = aligned_empty(4 * math.prod(self.chunks)).view(np.float32)
            memory = memory.reshape(self.chunks)
        self._held[get_ident()] = None, memory
        return memory


def read_metadata(path: Path) -> dict[str, Any]:
    """Metadata of an array of `arrays.create_array`, once its checksum is right."""
    with damage_reported(path / "zarr.json"):
        return unsealed_json(get(path / "zarr.json"), inside="attributes")


def open_matrix(path: Path) -> StoredMatrix:
    """Open a matrix of `arrays.create_array`."""
    metadata = read_metadata(path)
    codecs = [codec["name"] for codec in metadata["codecs"]]
    if metadata["data_type"] != "float32" or codecs != ["bytes", "crc32c"]:
        raise AssertionError(f"{path} is not a matrix of plain float32: {codecs}")
    rows, columns = metadata["shape"]
    height, width = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    return StoredMatrix(path, (rows, columns), (height, width))


def check_covers_chunks(
    corner: tuple[int, ...], tile: tuple[int, ...], chunks: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Raise if a tile covers a part of a chunk, which would race with the writer of the rest."""
    stop = tuple(a + b for a, b in zip(corner, tile, strict=True))
    for first, last, chunk, size in zip(corner, stop, chunks, shape, strict=True):
        if first % chunk or (last % chunk and last != size):
            raise AssertionError(f"tile {corner}..{stop} does not cover chunks of {chunks}")


def check_size(found: int, expected: int) -> None:
    """Raise unless a file has the size that it was written with."""
    if found != expected:
        raise WrongContentError(f"has {found} bytes where {expected} belong")


def aligned_empty(size: int) -> Bytes:
    """Allocate memory for O_DIRECT: it starts on a page, and its last page is its own."""
    memory = np.empty(_pages(size) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _is_aligned(memory: npt.NDArray[np.generic]) -> bool:
    """Whether O_DIRECT can transfer an array without a copy."""
    whole_pages = memory.flags.c_contiguous and memory.nbytes % ALIGNMENT == 0
    return whole_pages and memory.ctypes.data % ALIGNMENT == 0


def write_direct(path: Path, content: Bytes, *, tail: bytes = b"", cached: bool = False) -> None:
    """Write memory of `aligned_empty` to a file, with O_DIRECT unless it is small or `cached`.

    `tail`: a few bytes that follow.
    """
    size = 0 if cached else content.size
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, size)
    try:
        whole = content.size // ALIGNMENT * ALIGNMENT
        _write_all(descriptor, content[:whole])
        if whole < content.size or tail:
            # O_DIRECT writes whole pages only.
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_DIRECT)
            rest = content[whole:].tobytes() + tail
            _write_all(descriptor, np.frombuffer(rest, np.uint8))
    finally:
        os.close(descriptor)


def read_direct(path: Path, out: Bytes, *, tail: int = 0, cached: bool = False) -> bytes:
    """Fill memory of `aligned_empty` from a file; return the `tail` bytes that follow.

    `cached`: whether the file was written through the page cache.
    """
    descriptor = _open(path, os.O_RDONLY, 0 if cached else out.size)
    total = out.size + tail
    try:
        check_size(os.fstat(descriptor).st_size, total)
        # O_DIRECT reads whole pages; the rest of the last one belongs to the array's memory too.
        memory = np.lib.stride_tricks.as_strided(out, (_pages(out.size),))
        after = aligned_empty(ALIGNMENT if tail else 0)
        done = 0
        while done < total:
            parts = [memory[done:].data] if done < memory.size else []
            parts += [after[max(done - memory.size, 0) :].data] if tail else []
            count = os.preadv(descriptor, parts, done)
            if not count:
                raise WrongContentError(f"ended after {done} bytes while it was read")
            done += count
    finally:
        os.close(descriptor)
    ending = memory[out.size : total].tobytes()
    return ending + after[: tail - len(ending)].tobytes()


def _pages(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _open(path: Path, flags: int, size: int) -> int:
    if size >= _DIRECT_BYTES:
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


def take_rows(path: Path, rows: npt.NDArray[np.int64]) -> Floats:
    """Some rows of a matrix whose chunks hold whole rows, in any order; a chunk is read once."""
    matrix = open_matrix(path)
    height, width = matrix.chunks
    out = np.empty((rows.size, width), np.float32)
    buffer = np.empty((height, width), np.float32)
    for chunk, places in group_places(rows // height):
        first = chunk * height
        part = matrix.read((first, 0), buffer[: min(height, matrix.shape[0] - first)])
        out[places] = part[rows[places] - first]
    return out
