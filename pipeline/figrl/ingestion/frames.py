"""Edges in memory as a table: frames of pandas, Polars and Arrow, arrays and lists of pairs.

Graphs and sparse matrices are in `figrl.ingestion.networks`. Nothing here is written to disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import BadInputError

SAMPLE_ROWS = 200
"""Rows by which types and an index are recognised."""

_LARGEST_EXACT = 2.0**53
"""Up to here, a float64 holds every integer."""


@dataclass(frozen=True)
class Frame:
    """A table of edges in memory, of which only the columns of an edge are converted.

    `name`: what errors call it. `schema`: types of all its columns. `first`: the first values of a
    column. `take`: some of its columns, whole. `named`: whether its columns have names; otherwise
    they are numbers, from 1. `notes`: what the user is told.
    """

    name: str
    schema: pa.Schema
    first: Callable[[str], pa.Array]
    take: Callable[[Sequence[str]], pa.Table]
    named: bool = True
    notes: tuple[str, ...] = ()

    def distinct(self, name: str) -> bool:
        """Whether the first values of a column all differ, as in an index."""
        values = self.first(name)
        return values.null_count == 0 and len(values.unique()) == len(values)


def table_frame(
    name: str, table: pa.Table, *, named: bool = True, notes: tuple[str, ...] = ()
) -> Frame:
    """A table of Arrow."""

    def first(column: str) -> pa.ChunkedArray:
        return table[column].slice(0, SAMPLE_ROWS)

    return Frame(name, table.schema, first, table.select, named, notes)


def pandas_frame(frame: Any, name: str = "the pandas DataFrame") -> Frame:
    """A frame of pandas; the levels of its index that have names are columns too."""
    head = frame.head(SAMPLE_ROWS)
    return Frame(
        name,
        pandas_schema(head),
        lambda column: pa.array(_series(head, column), from_pandas=True),
        lambda columns: take_pandas(frame, columns, name),
    )


def pandas_schema(head: Any, *, objects: pa.DataType | None = None) -> pa.Schema:
    """Types of the columns of a frame, by its first rows.

    `objects`: type of columns of objects, where there are no rows to tell.
    """
    levels = [str(level) for level in head.index.names if level is not None]
    series = [(str(label), head.iloc[:, i]) for i, label in enumerate(head.columns)]
    series += [(level, head.index.get_level_values(level)) for level in levels]
    fields = [
        (label, objects if objects is not None and values.dtype == object else _type_of(values))
        for label, values in series
    ]
    # As pandas itself says it in Parquet.
    return pa.schema(fields, metadata={"pandas": json.dumps({"index_columns": levels})})


def _type_of(values: Any) -> pa.DataType:
    """Type of a column; null if Arrow has none for all of its values."""
    try:
        return pa.array(values, from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.null()


def _series(frame: Any, column: str) -> Any:
    for label in frame.columns:
        if str(label) == column:
            return frame[label]
    return frame.index.get_level_values(column)


def take_pandas(
    frame: Any, columns: Sequence[str], name: str, types: Sequence[pa.DataType] | None = None
) -> pa.Table:
    """Columns of a frame as a table of Arrow, of the given types."""
    wanted = types or [None] * len(columns)
    arrays = []
    for column, kind in zip(columns, wanted, strict=True):
        try:
            arrays.append(pa.array(_series(frame, column), kind, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _mixed(name, f"column '{column}'", error) from error
    return pa.table(arrays, names=list(columns))


def array_frame(array: npt.NDArray[Any]) -> Frame:
    """An array of pairs, or of pairs and weights; a structured one has names."""
    name = "the array"
    if array.dtype.names is not None:
        columns = {field: pa.array(array[field]) for field in array.dtype.names}
        return table_frame(name, pa.table(columns))
    if array.ndim != 2 or array.shape[1] < 2:
        raise BadInputError(
            f"{name} has the shape {array.shape}. Give one row for each edge: (edges, 2), or "
            "(edges, 3) and --weight 3; an adjacency matrix as one of scipy.sparse."
        )
    return _numbered(name, [_integers(column) for column in array.T])


def _integers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers that are floats only because an array has one type."""
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            whole = (np.trunc(column) == column) & (np.abs(column) <= _LARGEST_EXACT)
        return column.astype(np.int64) if whole.all() else column
    return column


def pairs_frame(edges: Iterable[Any]) -> Frame:
    """Pairs, or triples of pairs and weights, in any iterable."""
    name = "the list of pairs"
    rows = list(edges)
    width = None
    for number, row in enumerate(rows, 1):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) < 2:
            raise BadInputError(
                f"{name}, row {number}: {row!r} is no pair. Give (source, target) for each edge."
            )
        width = width or len(row)
        if len(row) != width:
            raise BadInputError(
                f"{name}, row {number}: it has {len(row)} values, but row 1 has {width}. Give the "
                "same number for each edge."
            )
    return _numbered(name, list(zip(*rows, strict=True)))


def _numbered(name: str, columns: Sequence[Any]) -> Frame:
    """Columns without names."""
    if not columns or not len(columns[0]):
        raise BadInputError(f"{name} is empty. Give at least one edge.")
    arrays = []
    for number, values in enumerate(columns, 1):
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _mixed(name, f"column {number}", error) from error
        if number > 2 and pa.types.is_nested(arrays[-1].type):
            raise BadInputError(
                f"{name}: column {number} holds {_words(arrays[-1])}, where weights are numbers. "
                "Give a number in each row, and --weight 3; of networkx the graph itself, or "
                "graph.edges(data='weight')."
            )
    names = [str(number) for number in range(1, len(arrays) + 1)]
    return table_frame(name, pa.table(arrays, names=names), named=False)


def _words(values: pa.Array) -> str:
    """What a column of nested values holds, with the first one."""
    first = next((value.as_py() for value in values if value.is_valid), None)
    return f"{'lists' if isinstance(first, list) else 'dictionaries'}, such as {first!r}"


def check_numbers(name: str, attribute: str, values: pa.Array) -> None:
    """Refuse weights of edges that are dictionaries or lists."""
    if pa.types.is_nested(values.type):
        raise BadInputError(
            f"{name}: the attribute '{attribute}' of its edges holds {_words(values)}, where "
            "weights are numbers. Name another attribute with --weight, or give --weight none."
        )


def _mixed(name: str, column: str, error: Exception) -> BadInputError:
    return BadInputError(
        f"{name}: {column} does not hold values of one type ({error}). Ids are all integers or all "
        "strings, weights are numbers: cast the column."
    )
