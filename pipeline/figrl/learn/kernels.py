"""The sparse product, compiled: rows of an operand are added up along the edges."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from figrl.errors import BadInputError
from figrl.store.matrix import Floats

Ints = npt.NDArray[np.int64]
Weights = Floats | None

_AHEAD = 12
"""Entries by which rows of the operand are fetched before they are added.

The rows that a node's neighbours have lie anywhere in memory, so without it every one of them is
waited for; with it the product ran 1.5 to 2 times faster at 16 to 128 columns."""

_TOGETHER = 8
"""Entries of one row that are added in one go, so that its sum is read and written once for them.

At 1,000 columns it made the product 1.5 times faster; narrow rows gain nothing by it."""

_LINE = 16
"""Floats in a line of the processor's cache."""

_NARROW = 20 * _LINE
"""Columns up to which all of a row is fetched ahead; of a wider one only the first lines, for the
processor sees by itself how it goes on, and too much at a time pushes out what is still needed."""

_FIRST_LINES = 2 * _LINE


def accumulate(
    rows: Ints,
    columns: Ints,
    weights: Weights,
    operand: Floats,
    out: Floats,
    *,
    first_row: int = 0,
    first_column: int = 0,
) -> None:
    """Add ``W[i, j] operand[j]`` to ``out[i]`` for every entry whose column the operand holds.

    Entries are sorted by row and taken in the order given, so a row's sum does not depend on how
    rows are cut into blocks, nor on how the operand is, as long as its parts are taken in order.
    The operand has rows from `first_column` on, the result from `first_row` on; no weights mean
    that all are 1.
    """
    rows, columns, weights = entries_held(
        rows, columns, weights, len(operand), len(out), first_row, first_column
    )
    add = _add_narrow if operand.shape[1] <= _NARROW else _add_wide
    add(rows, columns, weights, operand, out, first_row, first_column)


def entries_held(
    rows: Ints,
    columns: Ints,
    weights: Weights,
    columns_held: int,
    rows_held: int,
    first_row: int,
    first_column: int,
) -> tuple[Ints, Ints, Weights]:
    """Entries whose column an operand holds; compiled loops rely on their rows being held too.

    Raises `BadInputError` if one of them is in a row that is not.
    """
    last = first_column + columns_held
    if not _all_within(columns, first_column, last):
        chosen = (columns >= first_column) & (columns < last)
        rows, columns = rows[chosen], columns[chosen]
        weights = None if weights is None else weights[chosen]
    if not _all_within(rows, first_row, first_row + rows_held):
        raise BadInputError(
            f"An entry of the stored graph is in none of the rows {first_row} to "
            f"{first_row + rows_held - 1} of its block. The graph is damaged: ingest it again."
        )
    return rows, columns, weights


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


@numba.njit(nogil=True, cache=True)
def _all_within(values: Ints, low: int, high: int) -> bool:
    """Whether all values are in a range; the loops over entries do not look again."""
    least, most = low, low
    for value in values:
        least, most = min(least, value), max(most, value)
    return low <= least and most < high


# Helpers would make these loops shorter and, as numba compiles calls, twice as slow for narrow
# rows. Numbers without a sign save it the question whether an index counts from the end. The result
# has rows from `top` on, the operand from `left` on.


@numba.njit(nogil=True, cache=True)
def _add_narrow(
    rows: Ints, columns: Ints, weights: Weights, operand: Floats, out: Floats, top: int, left: int
) -> None:
    entries, width = columns.size, operand.shape[1]
    for entry in range(entries):
        if entry + _AHEAD < entries:
            fetched = np.uint64(columns[entry + _AHEAD] - left)
            for c in range(0, width, _LINE):
                _prefetch(operand, fetched, c)  # type: ignore[call-arg]
        i = np.uint64(rows[entry] - top)
        j = np.uint64(columns[entry] - left)
        if weights is None:
            for c in range(width):
                out[i, c] += operand[j, c]
        else:
            weight = weights[entry]
            for c in range(width):
                out[i, c] += weight * operand[j, c]


@numba.njit(nogil=True, cache=True)
def _add_wide(
    rows: Ints, columns: Ints, weights: Weights, operand: Floats, out: Floats, top: int, left: int
) -> None:
    entries, width = columns.size, operand.shape[1]
    entry = 0
    while entry < entries:
        i = np.uint64(rows[entry] - top)
        last = entry + _TOGETHER - 1
        # Entries are sorted by row, so the first and the last tell of those between.
        together = _TOGETHER if last < entries and rows[last] == rows[entry] else 1
        for ahead in range(last + 1, min(last + 1 + together, entries)):
            fetched = np.uint64(columns[ahead] - left)
            for c in range(0, _FIRST_LINES, _LINE):
                _prefetch(operand, fetched, c)  # type: ignore[call-arg]
        if together > 1:
            _add_eight(i, entry, columns, weights, operand, out, left)
        else:
            j = np.uint64(columns[entry] - left)
            weight = np.float32(1) if weights is None else weights[entry]
            for c in range(width):
                out[i, c] += weight * operand[j, c]
        entry += together


@numba.njit(nogil=True, cache=True)
def _add_eight(
    i: np.uint64, at: int, columns: Ints, weights: Weights, operand: Floats, out: Floats, left: int
) -> None:
    """Add eight entries of a row, in their order, so with the same rounding as one by one."""
    j0, j1 = np.uint64(columns[at] - left), np.uint64(columns[at + 1] - left)
    j2, j3 = np.uint64(columns[at + 2] - left), np.uint64(columns[at + 3] - left)
    j4, j5 = np.uint64(columns[at + 4] - left), np.uint64(columns[at + 5] - left)
    j6, j7 = np.uint64(columns[at + 6] - left), np.uint64(columns[at + 7] - left)
    if weights is None:
        w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = np.float32(1)
    else:
        w0, w1, w2, w3 = weights[at], weights[at + 1], weights[at + 2], weights[at + 3]
        w4, w5 = weights[at + 4], weights[at + 5]
        w6, w7 = weights[at + 6], weights[at + 7]
    for c in range(operand.shape[1]):
        total = out[i, c] + w0 * operand[j0, c]
        total += w1 * operand[j1, c]
        total += w2 * operand[j2, c]
        total += w3 * operand[j3, c]
        total += w4 * operand[j4, c]
        total += w5 * operand[j5, c]
        total += w6 * operand[j6, c]
        total += w7 * operand[j7, c]
        out[i, c] = total


@numba.njit(nogil=True, cache=True)
def scale_to_unit(rows: Floats) -> None:
    """Bring every row to length 1, in place; a row of zeros stays one."""
    width = rows.shape[1]
    whole = width // 4 * 4
    for i in range(rows.shape[0]):
        # Four sums in a fixed order: one alone would wait for itself at every step.
        s0 = s1 = s2 = s3 = 0.0
        for c in range(0, whole, 4):
            a, b = np.float64(rows[i, c]), np.float64(rows[i, c + 1])
            d, e = np.float64(rows[i, c + 2]), np.float64(rows[i, c + 3])
            s0 += a * a
            s1 += b * b
            s2 += d * d
            s3 += e * e
        square = (s0 + s1) + (s2 + s3)
        for c in range(whole, width):
            square += np.float64(rows[i, c]) * np.float64(rows[i, c])
        if square > 0:
            factor = np.float32(1 / np.sqrt(square))
            for c in range(width):
                rows[i, c] *= factor
