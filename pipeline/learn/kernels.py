"""The sparse product, compiled: rows of an operand are added up along the edges."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_AHEAD = 6
"""Entries by which rows of the operand are fetched before they are added.

The rows that a node's neighbours have lie anywhere in memory, so without it every one of them is
waited for; with it the product ran 1.5 to 2 times faster at 64 to 176 columns."""

_LINE = 16
"""Floats in a line of the processor's cache."""


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


@intrinsic
def _prefetch(_: Any, array: Any, row: Any, column: Any) -> Any:
    """Ask the processor for the cache line of ``array[row, column]``."""
    signature = types.void(array, row, column)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, kind, data, [args[1], args[2]], wraparound=False
        )
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        of_llvm = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, of_llvm, "llvm.prefetch.p0")
        # For reading, to be kept in all levels of the cache, data and not instructions.
        builder.call(call, [builder.bitcast(place, pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, generate


@numba.njit(nogil=True, cache=True, inline="always")
def _fetch_ahead(
    columns: npt.NDArray[np.int64],
    entry: int,
    operand: npt.NDArray[np.float32],
    first_column: int,
) -> None:
    if entry + _AHEAD < columns.size:
        j = columns[entry + _AHEAD] - first_column
        if 0 <= j < operand.shape[0]:
            for c in range(0, operand.shape[1], _LINE):
                _prefetch(operand, j, c)  # type: ignore[call-arg]


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
        _fetch_ahead(columns, entry, operand, first_column)
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
        _fetch_ahead(columns, entry, operand, first_column)
        j = columns[entry] - first_column
        if 0 <= j < held:
            i = rows[entry] - first_row
            weight = weights[entry]
            for c in range(width):
                out[i, c] += weight * operand[j, c]
