"""The 64-bit mixer behind all seeds and hashes."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio: its multiples are spread evenly over 64 bits."""


@numba.njit(nogil=True, cache=True, inline="always")
def mix64(state: np.uint64) -> np.uint64:
    """Mix 64 bits bijectively (the output function of SplitMix64)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def mix_all(states: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix each element of an array."""
    mixed = np.empty_like(states)
    for i in range(states.size):
        mixed[i] = mix64(states[i])
    return mixed
