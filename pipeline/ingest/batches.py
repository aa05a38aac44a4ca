"""Rows of the input as they stand in their file, before they are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class RowNumbers:
    """Numbers of rows in their file, from 1.

    A stretch of text counts its lines from its own start. How many lines stand before it is found
    out when a number is asked for, which is when a row is bad.
    """

    in_piece: npt.NDArray[np.int64]
    before: Callable[[], int] = int

    def __getitem__(self, at: SupportsIndex) -> int:
        return int(self.in_piece[at]) + self.before()

    def keep(self, chosen: npt.NDArray[np.bool_]) -> RowNumbers:
        """Numbers of some of the rows."""
        return RowNumbers(self.in_piece[chosen], self.before)


@dataclass(frozen=True)
class Malformed:
    """A row that is not an edge at all."""

    row: int
    text: str
    reason: str


@dataclass(frozen=True)
class RawBatch:
    """Rows as they stand in the file."""

    source: pa.Array
    target: pa.Array
    weight: pa.Array | None
    rows: RowNumbers
    malformed: list[Malformed] = field(default_factory=list)
