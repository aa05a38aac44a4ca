"""Files of parts: numbers for many readers, each of which reads the bytes of its own part alone.

A file has some columns, each cut into the same number of parts. It begins with the length of each
column and the starts of its parts; then come the columns, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from figrl.store.checksums import damaged
from figrl.store.files import atomic_write

Starts = npt.NDArray[np.int64]
"""Starts of some parts and the end of the last: a row for each, a column for each column."""

_WORD = 8


class PartsFile:
    """Some columns of numbers in parts, numbered from `first` on; opened once, in a ``with``."""

    def __init__(self, path: Path, types: Sequence[str], parts: int, *, first: int = 0) -> None:
        self._path, self._first = path, first
        self._types = [np.dtype(name) for name in types]
        self._header = _WORD * len(self._types) * (parts + 2)

    def __enter__(self) -> PartsFile:
        self._file = self._path.open("rb")
        lengths = np.frombuffer(self._bytes(0, _WORD * len(self._types)), np.int64)
        sizes = [int(n) * kind.itemsize for n, kind in zip(lengths, self._types, strict=True)]
        self._offsets = [self._header + sum(sizes[:i]) for i in range(len(sizes))]
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def starts(self, first: int, stop: int) -> Starts:
        """Starts of the parts from `first` up to `stop`, and the end of the last."""
        row = _WORD * len(self._types)
        content = self._bytes(row * (1 + first - self._first), row * (stop - first + 1))
        return np.frombuffer(content, np.int64).reshape(-1, len(self._types))

    def read(self, column: int, begin: int, end: int) -> npt.NDArray[Any]:
        """Values of a column from `begin` up to `end`, as `starts` counts them."""
        kind = self._types[column]
        place = self._offsets[column] + begin * kind.itemsize
        return np.frombuffer(self._bytes(place, (end - begin) * kind.itemsize), kind)

    def _bytes(self, begin: int, size: int) -> bytes:
        self._file.seek(begin)
        content = self._file.read(size)
        if len(content) != size:
            raise damaged(self._path, f"has no {size} bytes at {begin}")
        return content


class PartsWriter:
    """Fills the columns of a new file, each from its beginning to its end."""

    def __init__(self, file: IO[bytes], places: list[int]) -> None:
        self._file, self._places = file, places

    def append(self, column: int, values: npt.NDArray[Any]) -> None:
        """Write the next values of a column."""
        self._file.seek(self._places[column])
        self._file.write(np.ascontiguousarray(values).view(np.uint8).data)
        self._places[column] += values.nbytes


@contextmanager
def new_parts(
    path: Path, sizes: npt.NDArray[np.int64], types: Sequence[str]
) -> Iterator[PartsWriter]:
    """Write a file of parts with so many values in each: a row for a part; it appears at the end.

    `types`: NumPy type of each column.
    """
    header = np.zeros((len(sizes) + 2, len(types)), np.int64)
    np.cumsum(sizes, axis=0, out=header[2:])
    header[0] = header[-1]
    widths = header[0] * [np.dtype(name).itemsize for name in types]
    places = header.nbytes + np.cumsum(widths) - widths
    with atomic_write(path) as aside, aside.open("wb") as file:
        file.write(header.data)
        yield PartsWriter(file, places.tolist())


def write_parts(
    path: Path, sizes: npt.NDArray[np.int64], columns: Sequence[npt.NDArray[Any]]
) -> int:
    """Write whole columns as a file of parts; return their bytes."""
    with new_parts(path, sizes, [values.dtype.str for values in columns]) as file:
        for number, values in enumerate(columns):
            file.append(number, values)
    return sum(values.nbytes for values in columns)
