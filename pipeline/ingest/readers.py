"""Reading a piece of the input as batches of edges, whatever the format.

A reader takes what is in the file as it is: null ids and odd weights come through and are judged
in `checks`. Only lines that do not have the form of an edge at all are reported here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.errors import BadInputError
from pipeline.ingest.arrow import IdKind
from pipeline.ingest.batches import Malformed, RawBatch, RowNumbers
from pipeline.ingest.heads import MISSING_IN_CSV, open_bytes
from pipeline.ingest.sources import Piece
from pipeline.ingest.text import read_text

BATCH_ROWS = 1 << 17
_CSV_BYTES = 4 << 20


def read_piece(piece: Piece, id_kind: IdKind, *, strict: bool) -> Iterator[RawBatch]:
    """Read a piece of the input, a batch at a time.

    Parameters
    ----------
    piece : Piece
    id_kind : {"int", "string"}
    strict : bool
        Whether ids of the wrong kind are bad rows. Where not, they raise `IdTypeChangedError`,
        and all the text is read again as strings.
    """
    try:
        if piece.file.kind == "parquet":
            yield from _read_parquet(piece)
        elif piece.file.kind == "csv":
            yield from _read_csv(piece)
        else:
            yield from read_text(piece, id_kind, strict=strict)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise BadInputError(
            f"{piece.file.path}: cannot be read as {piece.file.kind}: {error}. Repair the file or "
            "leave it out."
        ) from error


def _read_parquet(piece: Piece) -> Iterator[RawBatch]:
    names = list(piece.file.columns)
    with pq.ParquetFile(piece.file.path) as file:
        before = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
        groups = list(range(piece.start, piece.stop))
        for batch in file.iter_batches(
            batch_size=BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
        ):
            source, target, *weights = (_plain(batch.column(name)) for name in names)
            rows = RowNumbers(np.arange(before + 1, before + 1 + batch.num_rows))
            yield RawBatch(source, target, weights[0] if weights else None, rows)
            before += batch.num_rows


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column


def _read_csv(piece: Piece) -> Iterator[RawBatch]:
    file = piece.file
    names = list(file.columns)
    skipped: list[int] = []
    malformed: list[Malformed] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        skipped.append(row.number)
        if row.text.strip():
            reason = f"has {row.actual_columns} columns instead of {row.expected_columns}"
            malformed.append(Malformed(row.number, row.text, reason))
        return "skip"

    with open_bytes(file.path) as stream:
        reader = pa.csv.open_csv(
            stream,
            # Only without threads does the parser know the number of a row.
            read_options=pa.csv.ReadOptions(
                block_size=_CSV_BYTES, use_threads=False, autogenerate_column_names=not file.header
            ),
            # Empty lines are passed over, and not counted as rows.
            parse_options=pa.csv.ParseOptions(
                delimiter=file.delimiter, newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=pa.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.large_string()),
                **MISSING_IN_CSV,
            ),
        )
        next_row = 2 if file.header else 1
        for batch in reader:
            rows = _row_numbers(next_row, batch.num_rows, skipped)
            next_row = int(rows[-1]) + 1 if rows.size else next_row
            skipped[:] = [row for row in skipped if row >= next_row]
            source, target, *weights = batch.columns
            weight = weights[0] if weights else None
            yield RawBatch(source, target, weight, RowNumbers(rows), malformed[:])
            malformed.clear()
    if malformed:
        none = pa.array([], pa.large_string())
        weight = none if file.weighted else None
        yield RawBatch(none, none, weight, RowNumbers(np.empty(0, np.int64)), malformed)


def _row_numbers(first: int, count: int, skipped: list[int]) -> npt.NDArray[np.int64]:
    """Numbers of `count` rows in a file of which some rows were passed over."""
    numbers = np.arange(first, first + count + len(skipped))
    return np.setdiff1d(numbers, skipped)[:count].astype(np.int64)
