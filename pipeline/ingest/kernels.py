"""Compiled loops over bytes: splitting text into tokens, and sorted strings.

Strings come as Arrow holds them: one run of UTF-8 bytes, and the offset where each begins.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.mixing import mix64

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_NEWLINE, _HASH, _PERCENT, _SPACE, _MINUS = 10, 35, 37, 32, 45


@numba.njit(nogil=True, cache=True)
def split_lines(text: Bytes, tokens: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Find the first three tokens of each line of whole lines of text.

    Lines that are empty, or begin with ``#`` or ``%``, are passed over. White space is any byte
    up to 32 that is not the end of a line.

    Parameters
    ----------
    text : uint8 array
    tokens : int64 array, shape (lines, 8)
        Filled with start and stop of three tokens (0, 0 where there is none), the number of
        tokens, and the number of the line, from 0.

    Returns
    -------
    rows, lines : int
        Rows filled, and lines seen.
    """
    rows = 0
    line = 0
    at = 0
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
def parse_integers(
    text: Bytes,
    starts: Offsets,
    stops: Offsets,
    values: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
) -> int:
    """Read tokens that are int64 as a person would write them back: no sign +, no leading 0.

    Returns the number of tokens that are not.
    """
    bad = 0
    for i in range(starts.size):
        at, stop = starts[i], stops[i]
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
        if not good:
            bad += 1
        elif negative:
            values[i] = -np.int64(value - np.uint64(1)) - 1
        else:
            values[i] = np.int64(value)
    return bad


@numba.njit(nogil=True, cache=True)
def copy_tokens(text: Bytes, starts: Offsets, stops: Offsets, offsets: Offsets) -> Bytes:
    """Lay tokens end to end as Arrow does; fills `offsets` and returns the bytes."""
    offsets[0] = 0
    for i in range(starts.size):
        offsets[i + 1] = offsets[i] + stops[i] - starts[i]
    data = np.empty(offsets[starts.size], np.uint8)
    for i in range(starts.size):
        data[offsets[i] : offsets[i + 1]] = text[starts[i] : stops[i]]
    return data


@numba.njit(nogil=True, cache=True, inline="always")
def _less(
    a: Bytes, a_start: int, a_stop: int, b: Bytes, b_start: int, b_stop: int
) -> bool:  # pragma: no cover - compiled
    common = min(a_stop - a_start, b_stop - b_start)
    for i in range(common):
        x, y = a[a_start + i], b[b_start + i]
        if x != y:
            return bool(x < y)
    return a_stop - a_start < b_stop - b_start


@numba.njit(nogil=True, cache=True)
def search_strings(
    hay: Bytes, hay_offsets: Offsets, needles: Bytes, needle_offsets: Offsets
) -> npt.NDArray[np.int64]:
    """Place of each needle in the hay, both sorted and without repeats.

    The search gallops from where the last needle was found, so needles that lie close together
    cost little, and few needles do not touch the whole hay.

    Returns
    -------
    int64 array
        ``i`` where ``hay[i]`` is the needle; ``-1 - i`` where it would stand at ``i``.
    """
    count = hay_offsets.size - 1
    places = np.empty(needle_offsets.size - 1, np.int64)
    low = 0
    for i in range(places.size):
        start, stop = needle_offsets[i], needle_offsets[i + 1]
        step = 1
        high = low
        while high < count and _less(
            hay, hay_offsets[high], hay_offsets[high + 1], needles, start, stop
        ):
            low = high + 1
            high += step
            step *= 2
        high = min(high, count)
        while low < high:
            middle = (low + high) // 2
            if _less(hay, hay_offsets[middle], hay_offsets[middle + 1], needles, start, stop):
                low = middle + 1
            else:
                high = middle
        found = low < count and not _less(
            needles, start, stop, hay, hay_offsets[low], hay_offsets[low + 1]
        )
        places[i] = low if found else -1 - low
    return places


@numba.njit(nogil=True, cache=True)
def hash_strings(data: Bytes, offsets: Offsets) -> npt.NDArray[np.uint64]:
    """64-bit key of each string: FNV-1a over its bytes, then a mix of all bits."""
    keys = np.empty(offsets.size - 1, np.uint64)
    for i in range(keys.size):
        state = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            state = (state ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        keys[i] = mix64(state ^ np.uint64(offsets[i + 1] - offsets[i]))
    return keys
