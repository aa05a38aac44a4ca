"""``M^t M`` of a sketch with very many columns, in tiles: one triangle, in the memory of one task.

All threads of a worker compute different tiles, each of which is summed in the order of the rows:
the bits depend on neither the number of threads nor the chunks of the stored matrix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.store.matrix import Floats

_TILE = 1024

GRAM_ROWS = 1024
"""Rows that are multiplied at a time."""

Array = npt.NDArray[Any]


class TiledGram:
    """Tiles ``(i, j)``, j >= i, of a symmetric matrix of `columns` x `columns`; first zeros.

    Products have its type, float32 or float64, whatever is added or multiplied.
    """

    def __init__(
        self, columns: int, dtype: npt.DTypeLike, threads: int, *, tile: int = _TILE
    ) -> None:
        self._parts = [slice(a, min(a + tile, columns)) for a in range(0, columns, tile)]
        self._dtype, self._threads = np.dtype(dtype), threads
        widths = [part.stop - part.start for part in self._parts]
        self._tiles = {
            (i, j): np.zeros((widths[i], widths[j]), dtype)
            for i in range(len(widths))
            for j in range(i, len(widths))
        }

    @staticmethod
    def nbytes(columns: int, dtype: npt.DTypeLike) -> int:
        """Bytes of all tiles."""
        return np.dtype(dtype).itemsize * columns * (columns + min(_TILE, columns)) // 2

    @staticmethod
    def adding_bytes(columns: int, dtype: npt.DTypeLike, threads: int) -> int:
        """Bytes that are held besides while rows are added."""
        return np.dtype(dtype).itemsize * (GRAM_ROWS * columns + threads * _TILE**2)

    def add(self, rows: Floats) -> None:
        """Add ``rows^t rows``."""
        parts = [np.ascontiguousarray(rows[:, part], self._dtype) for part in self._parts]

        def add_tile(place: tuple[int, int]) -> None:
            self._tiles[place] += parts[place[0]].T @ parts[place[1]]

        self._each(add_tile, self._tiles)

    def multiply(self, block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The matrix times a block of columns."""
        factors = [np.ascontiguousarray(block[part], self._dtype) for part in self._parts]
        out = np.zeros(block.shape)

        def fill(i: int) -> None:
            rows = out[self._parts[i]]
            for j, factor in enumerate(factors):
                rows += (self._tiles[i, j] if i <= j else self._tiles[j, i].T) @ factor

        self._each(fill, range(len(self._parts)))
        return out

    def _each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(self._threads) as pool:
            deque(pool.map(function, items), maxlen=0)
