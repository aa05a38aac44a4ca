"""CSV and TSV, gzipped or not: with or without a header, read from start to end."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.format import Format, Head, Malformed, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import (
    HEAD_BYTES,
    choose_columns,
    columns_read,
    guess_id_kind,
    open_bytes,
)
from figrl.ingestion.texts import is_number

_BLOCK_BYTES = 4 << 20
_HEAD_ROWS = 200


def sniff(path: str, options: IngestOptions) -> Head:
    """Read the first rows; the first of them is a header unless it begins with two numbers."""
    rows = _first_rows(path)
    header = _has_header(rows[0], options)
    names = rows[0] if header else [f"f{i}" for i in range(len(rows[0]))]
    chosen = choose_columns(path, names, options)
    data = rows[1:] if header else rows
    columns = [[row[names.index(name)] for row in data] for name in chosen]
    weighted = options.weight is not None or any(
        is_number(value) for column in columns[2:] for value in column
    )
    return Head(
        id_kind=guess_id_kind([value for column in columns[:2] for value in column], options),
        columns=columns_read(chosen, options, weighted=weighted),
        weighted=weighted,
        empty=not data,
        named=header,
        timed=options.time is not None,
    )


def _delimiter(path: str) -> str:
    return "\t" if Path(path.removesuffix(".gz")).suffix.lower() == ".tsv" else ","


def _has_header(first: Sequence[str], options: IngestOptions) -> bool:
    """Whether the first row holds names."""
    columns = (options.source, options.target, options.weight, options.time)
    named = any(name is not None for name in columns)
    if named and options.csv_header == "no":
        raise ConfigError(
            "--source, --target, --weight and --time need names: leave --csv-header out."
        )
    if options.csv_header != "auto":
        return options.csv_header == "yes"
    return named or not all(map(is_number, first[:2]))


def _first_rows(path: str) -> list[list[str]]:
    """Rows that have as many values as the first."""
    with open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
    if len(head) == HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    text = io.StringIO(head.decode("utf-8-sig", "replace"), newline="")
    rows = list(islice(filter(None, csv.reader(text, delimiter=_delimiter(path))), _HEAD_ROWS))
    if not rows:
        raise BadInputError(f"{path}: the file is empty. Leave it out.")
    return [row for row in rows if len(row) == len(rows[0])]


def split(file: SourceFile) -> list[int]:
    """A piece is a whole file: a line break may stand in quotes."""
    return [0, file.size_bytes]


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read a file; empty lines are skipped and not counted as rows."""
    file = piece.file
    names = list(file.columns)
    skipped: list[int] = []
    malformed: list[Malformed] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        skipped.append(row.number)
        if row.text.strip():
            reason = f"has {row.actual_columns} columns instead of {row.expected_columns}"
            malformed.append((row.number, row.text, reason))
        return "skip"

    with open_bytes(file.path) as stream:
        reader = pa.csv.open_csv(
            stream,
            # Only without threads does the parser know the number of a row.
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES, use_threads=False, autogenerate_column_names=not file.named
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=_delimiter(file.path), newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=pa.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.large_string()),
                # A value of which nothing is written is missing; "" is the empty string.
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        next_row = 2 if file.named else 1
        for batch in reader:
            numbers = np.arange(next_row, next_row + batch.num_rows + len(skipped), dtype=np.int64)
            rows = np.setdiff1d(numbers, np.array(skipped, np.int64))[: batch.num_rows]
            next_row = int(rows[-1]) + 1 if rows.size else next_row
            skipped[:] = [row for row in skipped if row >= next_row]
            yield RawBatch(edge_batch(file.roles, batch.columns), rows, malformed[:])
            malformed.clear()
    if malformed:
        none = pa.array([], pa.large_string())
        yield RawBatch(
            edge_batch(file.roles, (none for _ in names)), np.empty(0, np.int64), malformed
        )


FORMAT = Format("csv", (".csv", ".tsv"), sniff, split, read)
