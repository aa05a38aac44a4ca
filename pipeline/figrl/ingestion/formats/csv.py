"""CSV and TSV, gzipped or not: with or without a header, read from start to end.

CSV may have semicolons, tabs or bars in place of commas.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.columns import Column, Table, is_known, is_weight
from figrl.ingestion.format import Format, Head, Malformed, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.formats.fields import Fields
from figrl.ingestion.opening import HEAD_BYTES, AnyFile, open_bytes
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import (
    MAX_LINE_BYTES,
    column_of,
    guess_id_kind,
    is_distinct,
)
from figrl.ingestion.texts import is_number

_BLOCK_BYTES = 4 << 20
_HEAD_ROWS = 200
_DECIMAL_COMMA = re.compile(rb"(?<=\d),(?=\d)")
_LINE_END = re.compile(rb"[\r\n]")
_QUOTED = re.compile(rb'"[^"]*"')

_BLANKS = " \t\r\n"
"""Of which an empty line may consist; other white space is text."""


def sniff(path: AnyFile, options: IngestOptions) -> Head:
    """Read the first rows; the first of them is a header unless it looks like an edge."""
    rows = _first_rows(path)
    header, told = _has_header(path, rows, options)
    names = rows[0] if header else [str(i + 1) for i in range(len(rows[0]))]
    data = rows[1:] if header else rows
    values = dict(zip(names, zip(*data, strict=True), strict=True)) if data else {}
    columns = [column_of(name, values.get(name, ())) for name in names]
    by_name = {column.name: column for column in columns}
    table = Table(
        str(path), columns, options, header, lambda name: is_distinct(values.get(name, ()))
    )
    chosen = table.choose()
    _refuse_floats(path, [by_name[name] for name in chosen.ends], options)
    weight = chosen.weight
    if weight is None and header and options.weight is None and not data:
        weight = next((n for n in names if is_weight(n) and n not in chosen.ends), None)
    return Head(
        id_kind=guess_id_kind([v for name in chosen.ends for v in values.get(name, ())], options),
        columns=replace(chosen, weight=weight).names(options),
        weighted=weight is not None,
        empty=not data,
        named=header,
        timed=options.time is not None,
        notes=(*told, *chosen.notes),
    )


def _refuse_floats(path: AnyFile, ends: Sequence[Column], options: IngestOptions) -> None:
    for column in ends:
        if column.holds == "float" and options.ids == "auto":
            raise BadInputError(
                f"{path}: the ids in column '{column.name}' are numbers with a fraction or an "
                "exponent. pandas writes integers like that where some are missing: cast the "
                "column (astype('Int64')). To read them as they are written, give --ids string."
            )


def _delimiter(path: AnyFile) -> str:
    """A tab in .tsv; in .csv a comma, or what the first line has in its place."""
    if Path(str(path).removesuffix(".gz")).suffix.lower() == ".tsv":
        return "\t"
    with open_bytes(path) as stream:
        lines = _LINE_END.split(_QUOTED.sub(b"", stream.read(HEAD_BYTES)))
    line = next((line for line in lines if line.strip()), b"")
    if b";" in line:
        # Where a comma is the decimal point: 1;2;0,5.
        line = _DECIMAL_COMMA.sub(b"", line)
    found = (sign for sign in ",;\t|" if sign.encode() in line)
    return next(found, ",")


def _has_header(
    path: AnyFile, rows: Sequence[Sequence[str]], options: IngestOptions
) -> tuple[bool, Sequence[str]]:
    """Whether the first row holds names, and what the user is told if that is a guess."""
    first = rows[0]
    columns = (options.source, options.target, options.weight_column, options.time)
    given = [name for name in columns if name is not None]
    by_number = all(name.isdecimal() for name in given)
    if options.csv_header == "no" and not by_number:
        raise ConfigError(
            "With --csv-header no, columns have no names: --source, --target, --weight and --time "
            "need numbers, from 1."
        )
    if options.csv_header != "auto":
        return options.csv_header == "yes", ()
    if any(map(is_number, first)) and by_number:
        return False, ()
    if given and not by_number:
        return True, ()
    return _guess_header(path, rows)


def _guess_header(path: AnyFile, rows: Sequence[Sequence[str]]) -> tuple[bool, Sequence[str]]:
    """Whether a first row of words holds names; where it may hold an edge, the user is told."""
    shown = f"The first line of {path} ({', '.join(rows[0])})"
    known = any(map(is_known, rows[0]))
    used = {value for row in rows[1:] for value in row}
    repeated = [name for name in rows[0] if name and name in used]
    if repeated and known:
        raise BadInputError(
            f"{path}: its first line ({', '.join(rows[0])}) may hold names or an edge: "
            f"'{repeated[0]}' is in other lines too. Give --csv-header yes or no."
        )
    if repeated:
        return False, (
            f"{shown} was taken for an edge, since '{repeated[0]}' is in other lines too; if it "
            "holds names, give --csv-header yes.",
        )
    words = any(value and not is_number(value) for row in rows[1:] for value in row[:2])
    if words and not known:
        return True, (
            f"{shown} was taken for names of columns; if it is an edge, give --csv-header no.",
        )
    return True, ()


def _first_rows(path: AnyFile) -> list[list[str]]:
    """Rows that have as many values as the first."""
    delimiter = _delimiter(path)
    with open_bytes(path) as stream:
        fields = Fields(str(path), stream, delimiter)
        head = fields.read(HEAD_BYTES)
        if len(head) == HEAD_BYTES and not _LINE_END.search(head):
            head += fields.read(MAX_LINE_BYTES)
            whole = len(head) < HEAD_BYTES + MAX_LINE_BYTES
        else:
            whole = len(head) < HEAD_BYTES
    if not whole:
        head = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    text = io.StringIO(head.decode("utf-8", "replace"), newline="")
    rows = list(islice(filter(None, csv.reader(text, delimiter=delimiter)), _HEAD_ROWS))
    if not rows:
        raise BadInputError(f"{path}: the file is empty. Leave it out.")
    return [row for row in rows if len(row) == len(rows[0])]


def split(file: SourceFile) -> list[int]:
    """A piece is a whole file: a line break may stand in quotes."""
    return [0, file.size_bytes]


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read a file; empty lines are skipped and not counted as rows."""
    file = piece.file
    # Arrow calls columns without names f0, f1, ...
    names = [name if file.named else f"f{int(name) - 1}" for name in file.columns]
    skipped: list[int] = []
    malformed: list[Malformed] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        skipped.append(row.number)
        if row.text.strip(_BLANKS):
            reason = f"has {row.actual_columns} instead of {row.expected_columns} columns"
            malformed.append((row.number, row.text, reason))
        return "skip"

    delimiter = _delimiter(file.path)
    with open_bytes(file.path) as stream:
        reader = pa.csv.open_csv(
            pa.PythonFile(Fields(str(file.path), stream, delimiter), mode="r"),
            # Only without threads does the parser know the number of a row.
            read_options=pa.csv.ReadOptions(
                block_size=_BLOCK_BYTES, use_threads=False, autogenerate_column_names=not file.named
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip
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
