"""Large Zarr matrices, read and written a chunk at a time past zarr itself.

A chunk that is not compressed is the plain bytes of its numbers, so a task can hand its memory to
the disk as it is. Zarr would take every chunk through an event loop and three threads, each of
which has to wait for a core that is busy with a product: with chunks of 4 MB that took longer than
the product. What lies on disk is a Zarr array like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.direct import WrongSizeError, aligned_empty, is_aligned, read_direct, write_direct
from pipeline.errors import BadInputError
from pipeline.files import read_json, written_aside

Floats = npt.NDArray[np.float32]

_SMALL_BYTES = 64 * (1 << 20)


@dataclass
class Tiles:
    """A float32 matrix in chunks; one thread at a time may use an object of this class.

    Attributes
    ----------
    path : Path
    shape, chunks : (int, int)
    """

    path: Path
    shape: tuple[int, int]
    chunks: tuple[int, int]
    _staging: Floats | None = field(default=None, repr=False)

    def write(self, corner: tuple[int, int], values: Floats) -> None:
        """Write a tile that covers whole chunks."""
        check_covers_chunks(corner, values.shape, self.chunks, self.shape)
        for chunk_path, _, part in self._parts(corner, values):
            content = self._whole_chunk(part)
            with written_aside(chunk_path) as aside:
                write_direct(aside, content.reshape(-1).view(np.uint8), cached=self.is_cached)

    def read(self, corner: tuple[int, int], out: Floats) -> Floats:
        """Fill `out` with the tile at `corner`, the first column of a chunk, and return it."""
        if corner[1] % self.chunks[1]:
            raise AssertionError(f"no chunk of {self.chunks} begins at column {corner[1]}")
        for chunk_path, first_row, part in self._parts(corner, out):
            direct = part.shape[1] == self.chunks[1] and is_aligned(part)
            content = part if direct else self._scratch()[: part.shape[0]]
            row_bytes = 4 * self.chunks[1]
            with _damage_told(chunk_path):
                read_direct(
                    chunk_path,
                    content.reshape(-1).view(np.uint8),
                    offset=first_row * row_bytes,
                    size=self.chunks[0] * row_bytes,
                    cached=self.is_cached,
                )
            if not direct:
                part[:] = content[:, : part.shape[1]]
        return out

    def mapped(self, start: int, stop: int) -> Floats:
        """Rows of one chunk as they lie in the system's cache; a slice has all columns."""
        chunk_row, first_row = divmod(start, self.chunks[0])
        path = self.path / "c" / str(chunk_row) / "0"
        with _damage_told(path):
            found, wanted = path.stat().st_size, 4 * math.prod(self.chunks)
            if found != wanted:
                raise WrongSizeError(f"has {found} bytes where {wanted} belong")
            chunk = np.memmap(path, np.float32, "r", shape=self.chunks)
        return chunk[first_row : first_row + stop - start, : self.shape[1]]

    @property
    def slices(self) -> int:
        """Chunks side by side."""
        return -(-self.shape[1] // self.chunks[1])

    @property
    def is_cached(self) -> bool:
        """Whether the matrix may lie in the system's cache: it pushes nothing out of there."""
        return 4 * math.prod(self.shape) <= _SMALL_BYTES

    def _parts(self, corner: tuple[int, int], tile: Floats) -> Iterator[tuple[Path, int, Floats]]:
        """Chunks that a tile touches: the path and the first row of each, its part of the tile."""
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
        """A part as the chunk that is stored: with zeros beyond the edge of the matrix."""
        if part.shape == self.chunks and is_aligned(part):
            return part
        chunk = self._scratch()
        if part.shape != self.chunks:
            chunk[:] = 0
        chunk[: part.shape[0], : part.shape[1]] = part
        return chunk

    def _scratch(self) -> Floats:
        if self._staging is None:
            memory = aligned_empty(4 * math.prod(self.chunks))
            self._staging = memory.view(np.float32).reshape(self.chunks)
        return self._staging


@contextmanager
def _damage_told(chunk: Path) -> Iterator[None]:
    """Say it in words if a chunk is missing or was cut off."""
    try:
        yield
    except (FileNotFoundError, WrongSizeError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise BadInputError(
            f"{chunk} {reason}. The run that it belongs to is damaged: delete its folder and run "
            "the same command again."
        ) from error


def check_covers_chunks(
    corner: tuple[int, ...], tile: tuple[int, ...], chunks: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Refuse a tile with a part of a chunk: the rest of it would race with a neighbour."""
    stop = tuple(a + b for a, b in zip(corner, tile, strict=True))
    for first, last, chunk, size in zip(corner, stop, chunks, shape, strict=True):
        if first % chunk or (last % chunk and last != size):
            raise AssertionError(f"tile {corner}..{stop} does not cover chunks of {chunks}")


def open_tiles(path: Path) -> Tiles:
    """Open a matrix that `arrays.ensure_zarr` made."""
    facts = read_json(path / "zarr.json")
    codecs = [codec["name"] for codec in facts["codecs"]]
    if facts["data_type"] != "float32" or codecs != ["bytes"]:
        raise AssertionError(f"{path} is not a matrix of plain float32: {codecs}")
    rows, columns = facts["shape"]
    height, width = facts["chunk_grid"]["configuration"]["chunk_shape"]
    return Tiles(path, (rows, columns), (height, width))
