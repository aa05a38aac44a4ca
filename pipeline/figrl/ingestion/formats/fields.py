"""The bytes of CSV with blanks around its fields taken away, and refused what is no CSV.

The parser of Arrow keeps blanks, takes an open quote for the rest of the file, and knows no limit
of a row but that of its blocks.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO

import numba
import numpy as np
import numpy.typing as npt

from figrl.errors import BadInputError
from figrl.ingestion.sniff import MAX_LINE_BYTES
from figrl.store.strings import Bytes
from figrl.units import human_bytes

_BLOCK_BYTES = 1 << 20
_NEWLINE, _RETURN, _QUOTE, _SPACE, _TAB = 10, 13, 34, 32, 9
_START, _PLAIN, _QUOTED, _CLOSED = 0, 1, 2, 3
_FINE, _NUL, _LONG = 0, 1, 2

State = npt.NDArray[np.int64]
"""Where in a field the text ends (start, plain, quoted, or after a quote), bytes and number of the
row that has begun, whether it holds anything, and what is wrong with it."""


@numba.njit(nogil=True, cache=True)
def strip_fields(
    text: Bytes, out: Bytes, size: int, state: State, delimiter: int, longest: int
) -> tuple[int, int]:
    """Copy text without the blanks around fields that are outside of quotes.

    `out`: has room for all of the text after its first `size` bytes, which are blanks that may yet
    turn out to be inside a field. `state`: goes on from block to block. Returns the end of what was
    copied, and the end of what is sure to stay.
    """
    mode, length, row, filled = state[0], state[1], state[2], state[3]
    sure = 0
    for byte in text:
        length += 1
        if length > longest or (byte == 0 and mode != _QUOTED):
            state[4] = _LONG if length > longest else _NUL
            break
        if mode == _QUOTED:
            mode = _CLOSED if byte == _QUOTE else _QUOTED
        elif byte in (_NEWLINE, _RETURN):
            size = sure
            mode, length, row, filled = _START, 0, row + filled, 0
        elif byte == delimiter:
            size = sure
            mode, filled = _START, 1
        elif byte in (_SPACE, _TAB):
            if mode != _START:
                out[size] = byte
                size += 1
            continue
        else:
            opens = byte == _QUOTE and (mode == _START or (mode == _CLOSED and sure == size))
            mode = _QUOTED if opens else _PLAIN
            filled = 1
        out[size] = byte
        size += 1
        sure = size
    state[0], state[1], state[2], state[3] = mode, length, row, filled
    return size, sure


class Fields:
    """A stream of CSV without blanks around its fields."""

    def __init__(self, path: str, stream: BinaryIO, delimiter: str) -> None:
        self._path, self._stream, self._delimiter = path, stream, ord(delimiter)
        self._state: State = np.array([_START, 0, 1, 0, _FINE], np.int64)
        self._ready = bytearray()
        self._blanks = b""
        self._begun = self._ended = False
        self.closed = False

    def close(self) -> None:
        """Nothing: the stream below is closed by those who opened it."""
        self.closed = True

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; less only at the end."""
        while len(self._ready) < size and not self._ended:
            self._fill()
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def _fill(self) -> None:
        block = self._stream.read(_BLOCK_BYTES)
        self._ended = not block
        if not self._begun:
            block = block.removeprefix(BOM_UTF8)
            self._begun = True
        kept = len(self._blanks)
        out = np.empty(kept + len(block), np.uint8)
        out[:kept] = np.frombuffer(self._blanks, np.uint8)
        text = np.frombuffer(block, np.uint8)
        size, sure = strip_fields(text, out, kept, self._state, self._delimiter, MAX_LINE_BYTES)
        self._check()
        self._ready += out[:sure].tobytes()
        self._blanks = out[sure:size].tobytes()

    def _check(self) -> None:
        mode, _, row, _, problem = self._state.tolist()
        place = f"{self._path}, row {row}"
        if problem == _NUL:
            raise BadInputError(
                f"{place}: there is a NUL byte, so that it is no text, or text in UTF-16. Convert "
                "the file to UTF-8 (for example with iconv -f UTF-16 -t UTF-8)."
            )
        if problem == _LONG:
            quote = " A quote may be opened and never closed." if mode == _QUOTED else ""
            raise BadInputError(
                f"{place}: the row is longer than {human_bytes(MAX_LINE_BYTES)}, so that it is no "
                f"edge.{quote} Give one edge a row, each ended by a newline."
            )
        if self._ended and mode == _QUOTED:
            raise BadInputError(
                f"{place}: a quote is opened and never closed. Close it, or write it twice where "
                "it is part of a value."
            )
