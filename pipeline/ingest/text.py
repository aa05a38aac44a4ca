"""Reading text: two or three tokens to a line, white space between them, comments anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.errors import BadInputError, IdTypeChangedError
from pipeline.ingest.arrow import IdKind, strings_from_buffers
from pipeline.ingest.batches import Malformed, RawBatch, RowNumbers
from pipeline.ingest.heads import BYTE_ORDER_MARK, open_bytes
from pipeline.ingest.kernels import copy_tokens, parse_integers, split_lines
from pipeline.ingest.sources import Piece

_TEXT_BYTES = 4 << 20


def read_text(piece: Piece, id_kind: IdKind, *, strict: bool) -> Iterator[RawBatch]:
    """Read a stretch of a text file, a batch at a time; see `readers.read_piece`."""
    tokens = np.empty((0, 8), np.int64)
    line = 0
    before = cache(lambda: _lines_before(piece))
    for block in _whole_lines(piece):
        if piece.start == line == 0 and block.startswith(BYTE_ORDER_MARK):
            block = block.replace(BYTE_ORDER_MARK, b" ", 1)
        text = np.frombuffer(block, np.uint8)
        if tokens.shape[0] < block.count(b"\n") + 1:
            tokens = np.empty((block.count(b"\n") + 1, 8), np.int64)
        count, lines = split_lines(text, tokens)
        rows = RowNumbers(tokens[:count, 7] + line + 1, before)
        yield _text_batch(piece, text, tokens[:count], rows, id_kind, strict=strict)
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
    rows: RowNumbers,
    id_kind: IdKind,
    *,
    strict: bool,
) -> RawBatch:
    width = len(piece.file.columns)
    count = tokens[:, 6]
    weighted = piece.file.weighted
    used = 3 if weighted else 2
    # Columns beyond those that are used may be there or not, if the first line has some.
    wrong = (count < used) | ((width == used) & (count > used))
    malformed = [
        Malformed(rows[i], _line_text(text, tokens[i]), _wrong_width(int(count[i]), width))
        for i in np.flatnonzero(wrong)
    ]
    tokens, rows = tokens[~wrong], rows.keep(~wrong)
    if id_kind == "int":
        ends, valid = _integer_ends(text, tokens)
        if not valid.all():
            at = int(np.flatnonzero(~valid)[0])
            if not strict:
                raise IdTypeChangedError(
                    f"{piece.file.path}, row {rows[at]}: {_line_text(text, tokens[at])!r}"
                )
            malformed += [
                Malformed(rows[i], _line_text(text, tokens[i]), "an id is not an integer")
                for i in np.flatnonzero(~valid)
            ]
            tokens, rows = tokens[valid], rows.keep(valid)
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
    rows: RowNumbers,
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
