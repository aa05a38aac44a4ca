"""Reading a piece of the input as batches of edges, whatever the format.

A reader takes what is in the file as it is: null ids and odd weights come through and are judged
in `checks`. Only lines that do not have the form of an edge at all are reported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.errors import BadInputError, IdTypeChangedError
from pipeline.ingest.arrow import IdKind, strings_from_buffers
from pipeline.ingest.kernels import copy_tokens, parse_integers, split_lines
from pipeline.ingest.sources import Piece, open_bytes

BATCH_ROWS = 1 << 17
_TEXT_BYTES = 4 << 20


@dataclass(frozen=True)
class Malformed:
    """A row that is not an edge at all."""

    row: int
    text: str
    reason: str


@dataclass(frozen=True)
class RawBatch:
    """Rows as they stand in the file; `rows` are their numbers in it, from 1."""

    source: pa.Array
    target: pa.Array
    weight: pa.Array | None
    rows: npt.NDArray[np.int64]
    malformed: list[Malformed] = field(default_factory=list)


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
            yield from _read_text(piece, id_kind, strict=strict)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise BadInputError(
            f"{piece.file.path}: cannot be read as {piece.file.kind}: {error}. Repair the file or "
            "leave it out."
        ) from error


def _read_parquet(piece: Piece) -> Iterator[RawBatch]:
    file = pq.ParquetFile(piece.file.path)
    names = list(piece.file.columns)
    before = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
    groups = list(range(piece.start, piece.stop))
    for batch in file.iter_batches(
        batch_size=BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
    ):
        columns = [_plain(batch.column(name)) for name in names]
        rows = np.arange(before + 1, before + 1 + batch.num_rows)
        yield RawBatch(columns[0], columns[1], columns[2] if len(columns) > 2 else None, rows)
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
                block_size=_TEXT_BYTES, use_threads=False, autogenerate_column_names=not file.header
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=file.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            convert_options=pa.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.large_string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        next_row = 2 if file.header else 1
        for batch in reader:
            rows = _row_numbers(next_row, batch.num_rows, skipped)
            next_row = int(rows[-1]) + 1 if rows.size else next_row
            columns = [batch.column(i) for i in range(len(names))]
            yield RawBatch(
                columns[0], columns[1], columns[2] if file.weighted else None, rows, malformed[:]
            )
            malformed.clear()
    if malformed:
        empty = pa.array([], pa.large_string())
        weight = empty if file.weighted else None
        yield RawBatch(empty, empty, weight, np.empty(0, np.int64), malformed)


def _row_numbers(first: int, count: int, skipped: list[int]) -> npt.NDArray[np.int64]:
    """Numbers of `count` rows in a file of which some rows were passed over."""
    numbers = np.arange(first, first + count + len(skipped))
    return np.setdiff1d(numbers, skipped)[:count].astype(np.int64)


def _read_text(piece: Piece, id_kind: IdKind, *, strict: bool) -> Iterator[RawBatch]:
    tokens = np.empty((0, 8), np.int64)
    line = None
    for block in _whole_lines(piece):
        text = np.frombuffer(block, np.uint8)
        if tokens.shape[0] < block.count(b"\n") + 1:
            tokens = np.empty((block.count(b"\n") + 1, 8), np.int64)
        count, lines = split_lines(text, tokens)
        if line is None:
            line = _lines_before(piece)
        yield _text_batch(piece, text, tokens[:count], line, id_kind, strict=strict)
        line += lines


def _whole_lines(piece: Piece) -> Iterator[bytes]:
    """Blocks of whole lines; a line belongs to the stretch in which it begins."""
    path, start, stop = piece.file.path, piece.start, piece.stop
    with open_bytes(path) as stream:
        if piece.file.compressed:
            stop = 1 << 62
        elif start > 0:
            stream.seek(start - 1)
            # If the byte before the stretch ends a line, the stretch begins with a line.
            start += len(_rest_of_line(stream)) - 1
            if start >= stop:
                return
            stream.seek(start)
        at, rest = start, b""
        while block := stream.read(_TEXT_BYTES):
            at += len(block)
            block = rest + block
            if at >= stop:
                # The line that begins before `stop` is ours to its end.
                over = len(block) - (at - stop) - 1
                end = block.find(b"\n", max(over, 0))
                if end >= 0:
                    yield block[: end + 1]
                    return
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            if end:
                yield block[:end]
        if rest:
            yield rest


def _rest_of_line(stream: BinaryIO) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (more := stream.read(1 << 12)):
        line += more
        if (end := line.find(b"\n")) >= 0:
            return line[: end + 1]
    return line


def _lines_before(piece: Piece) -> int:
    """Lines of the file that begin before the piece does."""
    if piece.start == 0 or piece.file.compressed:
        return 0
    lines, left = 0, piece.start - 1
    with Path(piece.file.path).open("rb") as file:
        while left > 0 and (block := file.read(min(left, _TEXT_BYTES))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines + 1


def _text_batch(
    piece: Piece,
    text: npt.NDArray[np.uint8],
    tokens: npt.NDArray[np.int64],
    line: int,
    id_kind: IdKind,
    *,
    strict: bool,
) -> RawBatch:
    rows = tokens[:, 7] + line + 1
    width = len(piece.file.columns)
    count = tokens[:, 6]
    weighted = piece.file.weighted
    wrong = (count < (3 if weighted else 2)) | ((width == 2) & (count > 2))
    malformed = [
        Malformed(int(rows[i]), _line_text(text, tokens[i]), _wrong_width(int(count[i]), width))
        for i in np.flatnonzero(wrong)
    ]
    tokens, rows = tokens[~wrong], rows[~wrong]
    if id_kind == "int":
        ends, valid = _integer_ends(text, tokens)
        if not valid.all():
            at = int(np.flatnonzero(~valid)[0])
            if not strict:
                raise IdTypeChangedError(
                    f"{piece.file.path}, row {rows[at]}: {_line_text(text, tokens[at])!r}"
                )
            malformed += [
                Malformed(int(rows[i]), _line_text(text, tokens[i]), "an id is not an integer")
                for i in np.flatnonzero(~valid)
            ]
            tokens, rows = tokens[valid], rows[valid]
            ends = [end[valid] for end in ends]
        source, target = pa.array(ends[0]), pa.array(ends[1])
    else:
        source, target = (_strings(piece, text, tokens, column, rows) for column in (0, 1))
    weight = _strings(piece, text, tokens, 2, rows) if weighted else None
    return RawBatch(source, target, weight, rows, malformed)


def _wrong_width(count: int, width: int) -> str:
    return f"has {count} column{'s' if count != 1 else ''} where the first line has {width}"


def _line_text(text: npt.NDArray[np.uint8], token: npt.NDArray[np.int64]) -> str:
    return text[token[0] : max(token[1], token[3], token[5])].tobytes().decode("utf-8", "replace")


def _integer_ends(
    text: npt.NDArray[np.uint8], tokens: npt.NDArray[np.int64]
) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    ends, valid = [], np.ones(len(tokens), bool)
    for column in (0, 1):
        values, good = np.empty(len(tokens), np.int64), np.empty(len(tokens), bool)
        parse_integers(text, tokens[:, 2 * column], tokens[:, 2 * column + 1], values, good)
        ends.append(values)
        valid &= good
    return ends, valid


def _strings(
    piece: Piece,
    text: npt.NDArray[np.uint8],
    tokens: npt.NDArray[np.int64],
    column: int,
    rows: npt.NDArray[np.int64],
) -> pa.Array:
    offsets = np.empty(len(tokens) + 1, np.int64)
    data = copy_tokens(text, tokens[:, 2 * column], tokens[:, 2 * column + 1], offsets)
    strings = strings_from_buffers(data, offsets)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        for at, value in enumerate(strings.cast(pa.large_binary()).to_pylist()):
            if not _is_utf8(value):
                raise BadInputError(
                    f"{piece.file.path}, row {rows[at]}: {value!r} is not valid UTF-8. Convert the "
                    "file to UTF-8 (for example with iconv)."
                ) from None
    return strings


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def to_numbers(strings: pa.Array) -> pa.Array:
    """Float64 of texts; null where a text is not a number."""
    try:
        return strings.cast(pa.float64())
    except pa.ArrowInvalid:
        form = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
        good = pc.match_substring_regex(strings, form)
        return pc.if_else(good, strings, pa.scalar(None, strings.type)).cast(pa.float64())
