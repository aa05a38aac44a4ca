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

from pipeline.costs import SIGNS
from pipeline.learn.kernels import entries_held
from pipeline.learn.projection import COLUMNS_PER_MIX, fill_projection, row_keys
from pipeline.mixing import GOLDEN, mix64
from pipeline.tiles import Floats


def codes_in_row(size: int) -> int:
    """Entries in a row of `size` columns."""
    return min(SIGNS, size)


def packed_width(size: int, probes: int) -> int:
    """Floats that a packed row takes: its scale, its codes, and columns that are not sparse."""
    return 1 + codes_in_row(size) + probes


def fill_packed(
    node_keys: npt.NDArray[np.uint64],
    *,
    seed: int,
    size: int,
    scale: npt.NDArray[np.float32],
    out: Floats,
) -> None:
    """Write packed rows of R, each times its scale.

    Parameters
    ----------
    node_keys : uint64 array, shape (rows,)
    seed : int
    size : int
        Columns of R that are sparse.
    scale : float32 array, shape (rows,)
    out : float32 array, shape (rows, packed width)
        The scale of the row; each code, its column counted from 1 and with the sign of the entry;
        and the normal entries of the columns after `size`.
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
    keys: npt.NDArray[np.uint64],
    size: int,
    codes: int,
    scale: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
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
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
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
    _add_packed(rows, columns, weights, operand, out, size, first_row, first_column)


@numba.njit(nogil=True, cache=True)
def _add_packed(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    operand: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    size: int,
    first_row: int,
    first_column: int,
) -> None:
    codes = min(SIGNS, size)
    for entry in range(columns.size):
        i, j = rows[entry] - first_row, columns[entry] - first_column
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
