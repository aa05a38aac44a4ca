"""Compiled loops over the bytes of text: tokens of lines, integers, and strings laid end to end.

Strings are laid out as in Arrow: one run of UTF-8 bytes, and the offset where each begins.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from figrl.store.strings import Bytes, Offsets

_NEWLINE, _HASH, _PERCENT, _SPACE, _MINUS = 10, 35, 37, 32, 45


@numba.njit(nogil=True, cache=True)
def split_lines(text: Bytes, tokens: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Find the first three tokens of each line of whole lines of text.

    Lines that are empty, or begin with ``#`` or ``%``, are skipped. White space is any byte up to
    32 that is not the end of a line.

    `tokens`: filled with start and stop of three tokens (0, 0 where there is none), the number of
    tokens, and the number of the line, from 0. Returns rows filled, and lines seen.
    """
    rows = line = at = 0
    size = text.size
    while at < size:
        count = 0
        tokens[rows, :] = 0
        while at < size and text[at] != _NEWLINE:
            if text[at] <= _SPACE:
                at += 1
                continue
            start = at
            while at < size and text[at] > _SPACE:
                at += 1
            if count == 0 and (text[start] == _HASH or text[start] == _PERCENT):
                while at < size and text[at] != _NEWLINE:
                    at += 1
                break
            if count < 3:
                tokens[rows, 2 * count] = start
                tokens[rows, 2 * count + 1] = at
            count += 1
        if count > 0:
            tokens[rows, 6] = count
            tokens[rows, 7] = line
            rows += 1
        at += 1
        line += 1
    return rows, line


@numba.njit(nogil=True, cache=True)
def parse_integers(text: Bytes, offsets: Offsets) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Parse strings as int64; which of them are the way an int64 is printed: "007" is not."""
    values = np.empty(offsets.size - 1, np.int64)
    valid = np.empty(values.size, np.bool_)
    for i in range(values.size):
        at, stop = offsets[i], offsets[i + 1]
        negative = at < stop and text[at] == _MINUS
        if negative:
            at += 1
        digits = stop - at
        good = 0 < digits <= 19 and (text[at] != 48 or (digits == 1 and not negative))
        value = np.uint64(0)
        while good and at < stop:
            digit = text[at] - 48
            good = 0 <= digit <= 9
            value = value * np.uint64(10) + np.uint64(digit)
            at += 1
        limit = np.uint64(9223372036854775807) + np.uint64(negative)
        good = good and value <= limit
        valid[i] = good
        if good and negative:
            values[i] = -np.int64(value - np.uint64(1)) - 1
        elif good:
            values[i] = np.int64(value)
    return values, valid


@numba.njit(nogil=True, cache=True)
def copy_tokens(text: Bytes, starts: Offsets, stops: Offsets) -> tuple[Bytes, Offsets]:
    """Copy tokens end to end; return their bytes and offsets."""
    offsets = np.zeros(starts.size + 1, np.int64)
    for i in range(starts.size):
        offsets[i + 1] = offsets[i] + stops[i] - starts[i]
    data = np.empty(offsets[starts.size], np.uint8)
    for i in range(starts.size):
        data[offsets[i] : offsets[i + 1]] = text[starts[i] : stops[i]]
    return data, offsets
