"""The sparse product, compiled: rows of an operand are added up along the edges."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt


def accumulate(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    operand: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    *,
    first_row: int = 0,
    first_column: int = 0,
) -> None:
    """Add ``W[i, j] operand[j]`` to ``out[i]`` for every entry whose column the operand holds.

    Entries are taken in the order given, so a row's sum does not depend on how rows are cut into
    blocks, nor on how the operand is, as long as its parts are taken in order.

    Parameters
    ----------
    rows, columns : int64 arrays, shape (entries,)
    weights : float32 array, shape (entries,), or None
        None where all weights are 1.
    operand : float32 array, shape (columns held, width)
        Rows of the operand from `first_column` on.
    out : float32 array, shape (rows held, width)
        Rows of the result from `first_row` on.
    """
    if weights is None:
        _add_rows(rows, columns, operand, out, first_row, first_column)
    else:
        _add_weighted_rows(rows, columns, weights, operand, out, first_row, first_column)


@numba.njit(nogil=True, cache=True)
def _add_rows(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    operand: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    first_row: int,
    first_column: int,
) -> None:
    held, width = operand.shape
    for entry in range(rows.size):
        j = columns[entry] - first_column
        if 0 <= j < held:
            i = rows[entry] - first_row
            for c in range(width):
                out[i, c] += operand[j, c]


@numba.njit(nogil=True, cache=True)
def _add_weighted_rows(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    operand: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    first_row: int,
    first_column: int,
) -> None:
    held, width = operand.shape
    for entry in range(rows.size):
        j = columns[entry] - first_column
        if 0 <= j < held:
            i = rows[entry] - first_row
            weight = weights[entry]
            for c in range(width):
                out[i, c] += weight * operand[j, c]
