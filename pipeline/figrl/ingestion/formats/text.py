"""Text as SNAP writes it: two or three tokens to a line, any white space, comments anywhere."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import BadInputError
from figrl.ingestion.columns import Table, are_ends
from figrl.ingestion.format import Format, Head, Malformed, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.kernels import copy_tokens, split_lines
from figrl.ingestion.opening import END, HEAD_BYTES, AnyFile, open_bytes
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import (
    MAX_LINE_BYTES,
    all_integers,
    column_of,
    guess_id_kind,
    is_distinct,
)
from figrl.ingestion.texts import first_invalid, is_number
from figrl.store.ids import strings_from_buffers
from figrl.units import human_bytes

_PIECE_BYTES = 32 << 20
BLOCK_BYTES = 4 << 20
_CONTROLS = bytes([*range(1, 9), *range(14, 32)])
"""Bytes below the blank that are no white space, but for NUL."""

_LONE_CR = re.compile(rb"\r[^\r\n]")


def sniff(path: AnyFile, options: IngestOptions) -> Head:
    """Read the first rows, however many comments precede them."""
    weight = options.weight_column
    if options.source or options.target or options.time or weight not in (None, "3"):
        raise BadInputError(
            f"{path}: a text file has no column names, so --source, --target and --time cannot be "
            "used with it, and --weight only as 3 or none. Leave them out (the first two columns "
            "are the ids), or give a CSV file with a header."
        )
    blocks = (check_text(path, block) for block in whole_lines(path, 0, END, HEAD_BYTES))
    rows = next(filter(None, (_rows(block.split(b"\n")) for block in blocks)), [])
    width = len(rows[0]) if rows else 0
    numbers = [str(i + 1) for i in range(width)]
    if rows and weight is not None and width < 3:
        raise BadInputError(
            f"{path}: there is no column '3' (given with --weight): its first line has {width}. "
            "Leave --weight out."
        )
    if width >= 2:
        _refuse_names(path, rows, options)
        values = {name: [row[i] for row in rows if len(row) > i] for i, name in enumerate(numbers)}
        columns = [column_of(name, values[name]) for name in numbers]
        # Asks where the third column may be a weight, or the first an index.
        Table(str(path), columns, options, False, lambda name: is_distinct(values[name])).choose()
    used = 2 if weight is None else 3
    return Head(
        id_kind=guess_id_kind([token for row in rows for token in row[:2]], options),
        columns=tuple(numbers),
        weighted=weight is not None,
        empty=not rows,
        notes=(f"Columns after the {used}. were left out.",) if width > used else (),
    )


def _refuse_names(path: AnyFile, rows: Sequence[Sequence[str]], options: IngestOptions) -> None:
    """Ask where the first line holds names, which would be read as an edge."""
    first, others = rows[0][:2], [token for row in rows[1:] for token in row[:2]]
    alone = options.ids == "auto" and others and all_integers(others)
    if are_ends(first) or (alone and not any(map(is_number, first))):
        raise BadInputError(
            f"{path}: the first line, '{' '.join(rows[0])}', seems to hold names of columns, and a "
            "text file has none. Begin that line with '#', remove it, or give the file as .csv or "
            ".tsv."
        )


def check_text(path: AnyFile, block: bytes, rows_before: Callable[[], int] = int) -> bytes:
    """Refuse what would be read as other lines and columns than it was written as."""
    problems = {}
    if (nul := block.find(b"\0")) >= 0:
        problems[nul] = (
            "a NUL byte, so that it is no text, or text in UTF-16. Convert the file to UTF-8 (for "
            "example with iconv -f UTF-16 -t UTF-8)"
        )
    for at in filter(lambda at: at >= 0, map(block.find, _CONTROLS)):
        problems[at] = (
            f"the control character {block[at : at + 1]!r}, which is neither part of an id nor "
            "white space. Take it out, or convert the file to UTF-8"
        )
    if block.count(b"\r") != block.count(b"\r\n") and (lone := _LONE_CR.search(block)):
        problems[lone.start()] = (
            "a carriage return (CR) inside a line. If CR alone ends the lines, convert them (for "
            "example with tr '\\r' '\\n')"
        )
    for at in sorted(problems):
        row = rows_before() + block.count(b"\n", 0, at) + 1
        raise BadInputError(f"{path}, row {row}: there is {problems[at]}.")
    return block


def _rows(lines: Sequence[bytes]) -> list[list[str]]:
    tokens = (line.removeprefix(BOM_UTF8).split() for line in lines)
    rows = [line for line in tokens if line and line[0][:1] not in (b"#", b"%")]
    return [[token.decode("utf-8", "replace") for token in row] for row in rows]


def split(file: SourceFile) -> list[int]:
    """A piece is a stretch of bytes; a gzipped file is a single piece."""
    step = max(file.size_bytes, 1) if file.compressed else _PIECE_BYTES
    return [*range(0, max(file.size_bytes, 1), step), file.size_bytes]


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read the lines that begin between the bytes `piece.start` and `piece.stop`."""
    tokens = np.empty((0, 8), np.int64)
    line = 0
    before = cache(lambda: lines_before(piece))
    stop = END if piece.file.compressed else piece.stop
    for block in whole_lines(piece.file.path, piece.start, stop, BLOCK_BYTES):
        if piece.start == line == 0 and block.startswith(BOM_UTF8):
            block = block.replace(BOM_UTF8, b" ", 1)
        at = line
        check_text(piece.file.path, block, lambda: before() + at)  # noqa: B023 - called at once
        text = np.frombuffer(block, np.uint8)
        if tokens.shape[0] < block.count(b"\n") + 1:
            tokens = np.empty((block.count(b"\n") + 1, 8), np.int64)
        count, lines = split_lines(text, tokens)
        tokens[:count, 7] += line + 1
        yield _Lines(piece.file, text, tokens[:count], before).batch()
        line += lines


def whole_lines(path: AnyFile, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines, of the lines that begin between `start` and `stop`."""
    with open_bytes(path, until=stop) as stream:
        if start > 0:
            stream.seek(start - 1)
            # If the byte before the piece ends a line, the piece begins with a line.
            begun = stream.readline(MAX_LINE_BYTES + 2)
            if len(begun) > MAX_LINE_BYTES + 1:
                raise _too_long(path, start)
            start += len(begun) - 1
            if start >= stop:
                return
        at, rest = start, b""
        while block := stream.read(block_bytes):
            at += len(block)
            block = rest + block
            _check_lengths(path, block, at - len(block))
            if at >= stop:
                # The line that begins before `stop` belongs to the piece up to its end.
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


def _check_lengths(path: AnyFile, block: bytes, offset: int) -> None:
    """Refuse lines that are too long; `offset`: where the block begins in the file."""
    half = MAX_LINE_BYTES // 2
    for window in range(0, len(block) - half + 1, half):
        # A line that is too long has a whole window without an end.
        if block.find(b"\n", window, window + half) < 0:
            begin = block.rfind(b"\n", 0, window) + 1
            end = block.find(b"\n", window)
            if (len(block) if end < 0 else end) - begin > MAX_LINE_BYTES:
                raise _too_long(path, offset + begin)


def _too_long(path: AnyFile, at: int) -> BadInputError:
    return BadInputError(
        f"{path}, byte {at}: a line is longer than {human_bytes(MAX_LINE_BYTES)}, so that it is no "
        "edge. Give one edge a line, each line ended by a newline."
    )


def lines_before(piece: Piece) -> int:
    """Lines of the file that begin before the piece does."""
    if piece.start == 0:
        return 0
    lines, left = 0, piece.start - 1
    with open_bytes(piece.file.path, until=left) as file:
        while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines + 1


@dataclass(frozen=True)
class _Lines:
    """Lines of text, the table of tokens that `split_lines` filled, and the lines before them."""

    file: SourceFile
    text: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.int64]
    before: Callable[[], int]

    def batch(self) -> RawBatch:
        width, count = len(self.file.columns), self.tokens[:, 6]
        used = 3 if self.file.weighted else 2
        # Columns beyond those that are used may be there or not, if the first line has some.
        wrong = (count < used) | ((width == used) & (count > used))
        good = _Lines(self.file, self.text, self.tokens[~wrong], self.before)
        edges = edge_batch(self.file.roles, (good._strings(column) for column in range(used)))
        malformed = [self._malformed(i, width) for i in np.flatnonzero(wrong)]
        return RawBatch(edges, good.tokens[:, 7], malformed, self.before)

    def _malformed(self, at: np.intp, width: int) -> Malformed:
        first, *places, count, row = (int(value) for value in self.tokens[at])
        line = self.text[first : max(places[::2])].tobytes().decode("utf-8", "replace")
        columns = f"{count} column{'s' if count != 1 else ''}"
        return row + self.before(), line, f"has {columns} where the first line has {width}"

    def _strings(self, column: int) -> pa.Array:
        starts, stops = self.tokens[:, 2 * column], self.tokens[:, 2 * column + 1]
        strings = strings_from_buffers(*copy_tokens(self.text, starts, stops))
        at = first_invalid(strings)
        if at is not None:
            value = strings.cast(pa.large_binary())[at].as_py()
            raise BadInputError(
                f"{self.file.path}, row {self.tokens[at, 7] + self.before()}: {value!r} is "
                "not valid UTF-8. Convert the file to UTF-8 (for example with iconv)."
            )
        return strings


FORMAT = Format("text", (".txt", ".edges", ".edgelist", ".snap"), sniff, split, read)
