"""The random matrix R, made again from seeds wherever it is needed.

R is n x d with independent standard normal entries. The row of a node comes from the node's own
key, so it is the same whatever the order of rows, the size of blocks or the other nodes are.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numba
import numpy as np
import numpy.typing as npt

from figrl.store.matrix import Floats
from figrl.store.mixing import GOLDEN, mix64, mix_all

QUANTILES = 1 << 16
"""Entries of the table of normal quantiles; sixteen random bits pick one."""

COLUMNS_PER_MIX = 4
"""Entries that one mix of 64 bits gives: the first column of a block is a multiple of it."""


@cache
def quantile_table() -> Floats:
    """Normal quantiles in the middle of equal shares, scaled to variance 1."""
    inverse = NormalDist().inv_cdf
    upper = np.array([inverse(0.5 + (i + 0.5) / QUANTILES) for i in range(QUANTILES // 2)])
    values = np.concatenate([-upper[::-1], upper])
    return np.asarray(values / values.std(), np.float32)


def row_keys(node_keys: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Key of each row of R: a mix of the node's key and the run's seed.

    The seed is mixed once more than a node's id is: were both mixed alike, node 1 under seed 2
    would have the row of node 2 under seed 1.
    """
    mixed_seed = mix_all(mix_all(np.array([seed], np.uint64)) + GOLDEN)[0]
    return np.asarray(mix_all(node_keys ^ mixed_seed))


def fill_projection(
    node_keys: npt.NDArray[np.uint64], *, seed: int, first_column: int, scale: Floats, out: Floats
) -> None:
    """Write a block of R, each row times its scale.

    `out` has one row per key, and begins at column `first_column` of R, a multiple of 4.
    """
    if first_column % COLUMNS_PER_MIX:
        raise AssertionError(f"a block of R cannot begin at column {first_column}")
    _fill(row_keys(node_keys, seed), first_column // COLUMNS_PER_MIX, quantile_table(), scale, out)


@numba.njit(nogil=True, cache=True)
def _fill(
    keys: npt.NDArray[np.uint64], first_mix: int, table: Floats, scale: Floats, out: Floats
) -> None:
    rows, columns = out.shape
    whole = columns // 4
    low = np.uint64(0xFFFF)
    for i in range(rows):
        key = keys[i]
        factor = scale[i]
        for group in range(whole):
            bits = mix64(key + np.uint64(first_mix + group + 1) * GOLDEN)
            at = 4 * group
            out[i, at] = factor * table[bits & low]
            out[i, at + 1] = factor * table[(bits >> np.uint64(16)) & low]
            out[i, at + 2] = factor * table[(bits >> np.uint64(32)) & low]
            out[i, at + 3] = factor * table[bits >> np.uint64(48)]
        bits = mix64(key + np.uint64(first_mix + whole + 1) * GOLDEN)
        for at in range(4 * whole, columns):
            out[i, at] = factor * table[bits & low]
            bits >>= np.uint64(16)
