"""What a run of a diffusion draws: keys of its random numbers, and the seeds of each hole."""

from __future__ import annotations

from typing import Literal, get_args

import numba
import numpy as np
import numpy.typing as npt

from pipeline.mixing import GOLDEN, mix64

Model = Literal["lt", "ic"]
"""Linear threshold, or independent cascade."""

MODELS: tuple[Model, ...] = get_args(Model)

_SALTS: dict[Model, int] = {"lt": 0x6C74, "ic": 0x6963}
UNIT = 2.0**-53


def key_of(seed: int, model: Model) -> np.uint64:
    """Key of the random numbers of a model."""
    key = mixed_in(np.uint64(0), np.uint64(seed & (2**64 - 1)))
    return np.uint64(mixed_in(np.uint64(key), np.uint64(_SALTS[model])))


@numba.njit(nogil=True, cache=True)
def mixed_in(key: np.uint64, part: np.uint64) -> np.uint64:
    """Make a key of a key and one more number."""
    return mix64(mix64(key ^ part) + GOLDEN)


@numba.njit(nogil=True, cache=True, inline="always")
def below(bits: np.uint64, count: int) -> np.int64:
    """Turn 64 random bits into a number from 0 to less than `count`."""
    return np.int64(np.float64(bits >> np.uint64(11)) * UNIT * count)


@numba.njit(nogil=True, cache=True)
def draw_seeds(
    pool: npt.NDArray[np.int32],
    hole: int,
    drawn: int,
    key: np.uint64,
    seeds: npt.NDArray[np.int32],
) -> int:
    """Fill in the seeds of a run: a hole, and some others of its pool, all different.

    Parameters
    ----------
    pool : int32 array
        Nodes of the hole's cluster. It is left as it was, else a run would depend on those
        before it.
    hole : int
        Place of the hole in the pool.
    drawn : int
        How many others.
    seeds : int32 array
        Gets them.

    Returns
    -------
    int
        How many there are.
    """
    swaps = np.empty(drawn, np.int64)
    pool[0], pool[hole] = pool[hole], pool[0]
    for i in range(drawn):
        key += GOLDEN
        swaps[i] = 1 + i + below(mix64(key), pool.size - 1 - i)
        pool[1 + i], pool[swaps[i]] = pool[swaps[i]], pool[1 + i]
    for i in range(drawn + 1):
        seeds[i] = pool[i]
    for i in range(drawn - 1, -1, -1):
        pool[1 + i], pool[swaps[i]] = pool[swaps[i]], pool[1 + i]
    pool[0], pool[hole] = pool[hole], pool[0]
    return drawn + 1
