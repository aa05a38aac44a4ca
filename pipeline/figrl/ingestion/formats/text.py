"""Text as SNAP writes it: two or three tokens to a line, any white space, comments anywhere."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import BadInputError
from figrl.ingestion.format import Format, Head, Malformed, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.kernels import copy_tokens, split_lines
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import HEAD_BYTES, guess_id_kind, open_bytes
from figrl.ingestion.texts import is_number
from figrl.store.ids import strings_from_buffers

_PIECE_BYTES = 32 << 20
_BLOCK_BYTES = 4 << 20
_END = 1 << 62


def sniff(path: str, options: IngestOptions) -> Head:
    """Read the first rows, however many comments precede them."""
    if options.source or options.target or options.weight or options.time:
        raise BadInputError(
            f"{path}: a text file has no column names, so --source, --target, --weight and --time "
            "cannot be used with it. Leave them out (the first two columns are the ids, a numeric "
            "third the weight), or give a CSV file with a header."
        )
    blocks = _whole_lines(path, 0, _END, HEAD_BYTES)
    rows = next(filter(None, (_rows(block.split(b"\n")) for block in blocks)), [])
    first = rows[0] if rows else []
    return Head(
        id_kind=guess_id_kind([token for row in rows for token in row[:2]], options),
        columns=tuple(f"column {i + 1}" for i in range(len(first))),
        weighted=len(first) > 2 and any(is_number(token) for row in rows for token in row[2:3]),
        empty=not rows,
    )


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
    before = cache(lambda: _lines_before(piece))
    stop = _END if piece.file.compressed else piece.stop
    for block in _whole_lines(piece.file.path, piece.start, stop, _BLOCK_BYTES):
        if piece.start == line == 0 and block.startswith(BOM_UTF8):
            block = block.replace(BOM_UTF8, b" ", 1)
        text = np.frombuffer(block, np.uint8)
        if tokens.shape[0] < block.count(b"\n") + 1:
            tokens = np.empty((block.count(b"\n") + 1, 8), np.int64)
        count, lines = split_lines(text, tokens)
        tokens[:count, 7] += line + 1
        yield _Lines(piece.file, text, tokens[:count], before).batch()
        line += lines


def _whole_lines(path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines, of the lines that begin between `start` and `stop`."""
    with open_bytes(path) as stream:
        if start > 0:
            stream.seek(start - 1)
            # If the byte before the piece ends a line, the piece begins with a line.
            start += len(stream.readline()) - 1
            if start >= stop:
                return
        at, rest = start, b""
        while block := stream.read(block_bytes):
            at += len(block)
            block = rest + block
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


def _lines_before(piece: Piece) -> int:
    """Lines of the file that begin before the piece does."""
    if piece.start == 0:
        return 0
    lines, left = 0, piece.start - 1
    with Path(piece.file.path).open("rb") as file:
        while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
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
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid:
            values = strings.cast(pa.large_binary()).to_pylist()
            valid = [value.decode("utf-8", "replace").encode() == value for value in values]
            at = valid.index(False)
            raise BadInputError(
                f"{self.file.path}, row {self.tokens[at, 7] + self.before()}: {values[at]!r} is "
                "not valid UTF-8. Convert the file to UTF-8 (for example with iconv)."
            ) from None
        return strings


FORMAT = Format("text", (".txt", ".edges", ".edgelist", ".snap"), sniff, split, read)
