"""What an edge format provides, and the types it shares with the rest of ingest.

A format is a module of `figrl.ingestion.formats`. It sniffs a file, splits it into pieces that
tasks read independently, and reads a piece as batches of raw rows. A reader takes rows as they
are: missing ids and odd weights come through and are judged in `figrl.ingestion.checks`. Only rows
that do not have the form of an edge are reported as malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.ingestion.opening import AnyFile
from figrl.ingestion.options import IngestOptions
from figrl.store.ids import IdKind

BATCH_ROWS = 1 << 17
"""Rows that are handled at a time."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What the first rows of a file, or its footer, say about it.

    `columns`: names of source, target, and perhaps weight and time; numbers, from 1, where the file
    has no names; of text, one for each column. `timed`: whether edges have times.
    `empty`: whether there is no row, so that `weighted` is a guess. `named`: whether the file
    itself holds the names of its columns. `typed`: whether the file itself states the type of its
    ids. Text is guessed from the first rows. `parts`: parts that can be read independently, such as
    the row groups of Parquet. `notes`: what was guessed and may be wrong, for the user.
    """

    id_kind: IdKind
    columns: tuple[str, ...]
    weighted: bool
    empty: bool = False
    named: bool = False
    typed: bool = False
    parts: int = 1
    timed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """What the columns that are read hold, in their order."""
        return ("source", "target", *["weight"] * self.weighted, *["time"] * self.timed)


@dataclass(frozen=True, kw_only=True)
class SourceFile(Head):
    """One input file.

    `kind`: name of its format. `stands_for`: what the user gave, where that was no file.
    """

    path: AnyFile
    kind: str
    fingerprint: str
    size_bytes: int
    stands_for: str | None = None

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.stands_for or str(self.path)

    @property
    def compressed(self) -> bool:
        """Whether it is gzipped, and so can only be read from its start."""
        return str(self.path).endswith(".gz")


@dataclass(frozen=True)
class Piece:
    """A part of a file that one task reads; the format says what `start` and `stop` count."""

    number: int
    file: SourceFile
    start: int
    stop: int
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """Name of the piece, in the order of the input."""
        return f"{self.number:06d}"


Malformed = tuple[int, str, str]
"""A row that does not have the form of an edge: its number, its text, and the reason."""


@dataclass(frozen=True)
class RawBatch:
    """Rows as they are in the file.

    `edges`: columns ``source`` and ``target``, integers or large_string, and perhaps ``weight`` and
    ``time``.
    `rows`: number of each row, from 1; of text, within the piece. `rows_before`: rows of the file
    before the piece. They are counted only when a row is bad.
    """

    edges: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    malformed: Sequence[Malformed] = ()
    rows_before: Callable[[], int] = int

    def row_number(self, at: int) -> int:
        """Number of a row in its file."""
        return int(self.rows[at]) + self.rows_before()


def edge_batch(roles: Iterable[str], columns: Iterable[pa.Array]) -> pa.RecordBatch:
    """A batch of edges; `roles` says what each column holds."""
    return pa.record_batch(dict(zip(roles, columns, strict=True)))


@dataclass(frozen=True)
class Format:
    """An edge format.

    `suffixes`: endings of its files, in lower case, without ``.gz``. `sniff`: ``sniff(path,
    options) -> Head``. `split`: ``split(file) -> cuts``: where pieces start, and where the last one
    stops. `read`: ``read(piece) -> batches``.
    """

    name: str
    suffixes: tuple[str, ...]
    sniff: Callable[[AnyFile, IngestOptions], Head]
    split: Callable[[SourceFile], list[int]]
    read: Callable[[Piece], Iterator[RawBatch]]
