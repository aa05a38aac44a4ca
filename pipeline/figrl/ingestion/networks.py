"""Graphs of networkx and adjacency matrices of scipy as tables of edges.

Nodes without edges are kept, by a self-loop: ingest drops that and keeps the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.frames import Frame, check_numbers, table_frame
from figrl.ingestion.options import IngestOptions

_Rows = npt.NDArray[np.int64]


def networkx_frame(graph: Any, options: IngestOptions, *, new_nodes: bool) -> Frame:
    """The edges of a graph of networkx, with the attributes that hold weights and times.

    An edge without the attribute of weights has weight 1, as in networkx itself. `new_nodes`: the
    edges are those of new nodes, and an edge without a direction may be that of either end.
    """
    name = f"the networkx {type(graph).__name__}"
    weight = options.weight_column
    found = weight or "weight"
    edges = list(graph.edges(data=True))
    if options.weight is None or weight is not None:
        weighted = any(found in data for *_, data in edges)
        if weight is not None and not weighted:
            raise BadInputError(f"{name}: no edge has the attribute '{weight}' (--weight).")
    else:
        weighted = False
    alone = _alone(graph, options, new_nodes=new_nodes)
    columns: dict[str, Sequence[Any]] = {
        "source": [edge[0] for edge in edges] + alone,
        "target": [edge[1] for edge in edges] + alone,
    }
    if weighted:
        columns[found] = [data.get(found, 1) for *_, data in edges] + [1] * len(alone)
    if options.time is not None:
        times = [data.get(options.time) for *_, data in edges]
        columns[options.time] = times + [times[0] if times else None] * len(alone)
    if not columns["source"]:
        raise BadInputError(f"{name} has no edges. Give at least one.")
    table = _nodes_checked(name, columns)
    if weighted:
        check_numbers(name, found, table[found])
    return table_frame(name, table, notes=_note(alone, new_nodes))


def _alone(graph: Any, options: IngestOptions, *, new_nodes: bool) -> list[Any]:
    """Nodes that get a self-loop."""
    if options.kind == "bipartite":
        return []
    if new_nodes:
        return [] if graph.is_directed() else list(graph)
    return [node for node, degree in graph.degree() if degree == 0]


def _nodes_checked(name: str, columns: dict[str, Sequence[Any]]) -> pa.Table:
    try:
        table = pa.table(columns)
        kinds = [table[end].type for end in ("source", "target")]
        if all(pa.types.is_integer(kind) or pa.types.is_string(kind) for kind in kinds):
            return table
        problem = f"its nodes are {kinds[0]}"
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"its nodes or attributes are not of one type ({error})"
    raise BadInputError(
        f"{name}: {problem}. Ids have to be all integers or all strings: see "
        "networkx.relabel_nodes and networkx.convert_node_labels_to_integers."
    )


def matrix_frame(
    matrix: Any,
    options: IngestOptions,
    *,
    new_nodes: bool,
    name: str | None = None,
    first: int = 0,
) -> Frame:
    """The entries of an adjacency matrix; ids are the numbers of rows and columns, from `first`.

    In an undirected graph, entries (i, j) and (j, i) are one edge. Entries are weights, unless all
    of them are 1.
    """
    name = name or f"the sparse {'x'.join(map(str, matrix.shape))} matrix"
    if options.weight_column is not None:
        raise ConfigError(
            f"--weight is {options.weight!r}, but the entries of {name} are its weights: leave it "
            "out, or give --weight none."
        )
    entries = matrix.tocsr(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    entries = entries.tocoo()
    rows, columns = (np.asarray(part, np.int64) for part in (entries.row, entries.col))
    values = entries.data
    if options.kind == "undirected" and not new_nodes and matrix.shape[0] != matrix.shape[1]:
        raise BadInputError(
            f"{name} has not as many rows as columns. Give the square one of all nodes, or --kind "
            "bipartite, where rows are sources and columns targets."
        )
    mirrored: _Rows = np.empty(0, np.int64)
    if options.kind == "undirected":
        kept = _one_of_each(name, rows, columns, values)
        mirrored = np.unique(rows[~kept])
        rows, columns, values = rows[kept], columns[kept], values[kept]
    alone = mirrored if new_nodes else _empty_rows(matrix.shape, rows, columns, options)
    ends = {"source": np.append(rows, alone), "target": np.append(columns, alone)}
    table = {side: numbers + first for side, numbers in ends.items()}
    if options.weight is None and not (values == 1).all():
        table["weight"] = np.append(values, np.ones(alone.size, values.dtype))
    return table_frame(name, pa.table(table), notes=_note(alone, new_nodes))


def _one_of_each(
    name: str, rows: _Rows, columns: _Rows, values: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Which entries to keep, so that one is left of each pair (i, j) and (j, i)."""
    kept = np.ones(rows.size, bool)
    size = max(int(rows.max(initial=0)), int(columns.max(initial=0))) + 1
    keys, mirrors = rows * size + columns, columns * size + rows
    order = np.argsort(keys)
    at = np.searchsorted(keys, mirrors, sorter=order).clip(max=max(rows.size - 1, 0))
    places = order[at]
    both = (rows > columns) & (keys[places] == mirrors)
    differ = both & (values != values[places])
    if differ.any():
        i = int(differ.argmax())
        raise BadInputError(
            f"{name} is not symmetric: entry ({columns[i]}, {rows[i]}) is {values[places[i]]} and "
            f"({rows[i]}, {columns[i]}) is {values[i]}. Give a symmetric one, such as (A + A.T) / "
            "2, or --kind directed."
        )
    kept[both] = False
    return kept


def _empty_rows(
    shape: tuple[int, int], rows: _Rows, columns: _Rows, options: IngestOptions
) -> _Rows:
    """Nodes that have no edge."""
    if options.kind == "bipartite":
        return np.empty(0, np.int64)
    used = np.zeros(max(shape), bool)
    used[rows] = used[columns] = True
    return np.flatnonzero(~used)


def _note(alone: Sequence[Any] | _Rows, new_nodes: bool) -> tuple[str, ...]:
    count = len(alone)
    if not count or new_nodes:
        return ()
    shown = "1 node without edges is" if count == 1 else f"{count:,} nodes without edges are"
    return (f"{shown} kept, by self-loops; a vector without edges is zero.",)
