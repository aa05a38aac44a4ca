"""A sparse random matrix: a few entries of +-1 in each row, made again from the node's key.

A row is kept as a scale and a few codes, so a product with it costs as many additions as there
are codes, whatever the number of columns. Columns are cut into as many strata as there are codes
and each code falls into its own, so no two of a row ever meet.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

from figrl.learn.kernels import Ints, Weights, entries_held
from figrl.learn.projection import COLUMNS_PER_MIX, fill_projection, row_keys
from figrl.store.matrix import Floats
from figrl.store.mixing import GOLDEN, mix64

SIGNS = 8
"""Entries in a row of a sparse projection."""


def codes_in_row(size: int) -> int:
    """Entries in a row of `size` columns."""
    return min(SIGNS, size)


def packed_width(size: int, probes: int) -> int:
    """Floats that a packed row takes: its scale, its codes, and columns that are not sparse."""
    return 1 + codes_in_row(size) + probes


def fill_packed(
    node_keys: npt.NDArray[np.uint64], *, seed: int, size: int, scale: Floats, out: Floats
) -> None:
    """Write packed rows of R, each times its scale; its first `size` columns are sparse.

    A packed row has its scale; its codes, each the column of an entry counted from 1, with the
    sign of the entry; and the normal entries of the columns after `size`.
    """
    codes = codes_in_row(size)
    _fill_codes(row_keys(node_keys, seed), size, codes, scale, out)
    probes = out.shape[1] - 1 - codes
    if probes:
        # Normal columns come from other mixes than codes do, which use those before column 0.
        dense = np.empty((len(out), probes), np.float32)
        first = math.ceil(size / COLUMNS_PER_MIX) * COLUMNS_PER_MIX
        fill_projection(node_keys, seed=seed, first_column=first, scale=scale, out=dense)
        out[:, 1 + codes :] = dense


@numba.njit(nogil=True, cache=True)
def _fill_codes(
    keys: npt.NDArray[np.uint64], size: int, codes: int, scale: Floats, out: Floats
) -> None:
    of_entry = np.float32(math.sqrt(size / codes))
    for i in range(keys.size):
        out[i, 0] = scale[i] * of_entry
        bits = np.uint64(0)
        for code in range(codes):
            if code % 4 == 0:
                bits = mix64(keys[i] - np.uint64(code // 4 + 1) * GOLDEN)
            low, high = code * size // codes, (code + 1) * size // codes
            place = int(bits & np.uint64(0x7FFF)) * (high - low) >> 15
            column = np.float32(low + place + 1)
            out[i, 1 + code] = column if bits & np.uint64(0x8000) else -column
            bits >>= np.uint64(16)


def accumulate_packed(
    rows: Ints,
    columns: Ints,
    weights: Weights,
    operand: Floats,
    out: Floats,
    *,
    size: int,
    first_row: int = 0,
    first_column: int = 0,
) -> None:
    """Do what `kernels.accumulate` does, with an operand of packed rows."""
    rows, columns, weights = entries_held(
        rows, columns, weights, len(operand), len(out), first_row, first_column
    )
    _add_packed(rows, columns, weights, operand, out, first_row, first_column, size)


@numba.njit(nogil=True, cache=True)
def _add_packed(
    rows: Ints,
    columns: Ints,
    weights: Weights,
    operand: Floats,
    out: Floats,
    top: int,
    left: int,
    size: int,
) -> None:
    codes = min(SIGNS, size)
    for entry in range(columns.size):
        i, j = rows[entry] - top, columns[entry] - left
        weight = np.float32(1) if weights is None else weights[entry]
        value = weight * operand[j, 0]
        for code in range(1, codes + 1):
            column = operand[j, code]
            if column > 0:
                out[i, int(column) - 1] += value
            else:
                out[i, int(-column) - 1] -= value
        for probe in range(operand.shape[1] - 1 - codes):
            out[i, size + probe] += weight * operand[j, 1 + codes + probe]


def expand(packed: Floats, size: int, out: Floats) -> None:
    """Write packed rows out in full."""
    out[:] = 0
    order = np.arange(len(packed))
    accumulate_packed(order, order, None, packed, out, size=size)
