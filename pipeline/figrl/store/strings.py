"""Compiled loops over Arrow strings: UTF-8 bytes, and the offset of each string."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from figrl.store.mixing import mix64

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


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
    """Position of each needle in `hay`, both sorted and without duplicates.

    A galloping search from the position of the last needle: close needles cost little, and few
    needles do not touch all of `hay`.

    Returns ``i`` where ``hay[i]`` is the needle; ``-1 - i`` where it would be inserted at ``i``.
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
    """64-bit hash of each string: FNV-1a over its bytes, then SplitMix64's mixer."""
    keys = np.empty(offsets.size - 1, np.uint64)
    for i in range(keys.size):
        state = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            state = (state ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        keys[i] = mix64(state ^ np.uint64(offsets[i + 1] - offsets[i]))
    return keys
