"""What the estimator takes for a graph: a matrix, or a frame of edges; all else is refused."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

_Column = npt.NDArray[Any]


def is_frame(edges: Any) -> bool:
    """Whether something is a frame of edges, and no matrix in a frame."""
    return {"source", "target"} <= {str(name) for name in getattr(edges, "columns", ())}


def check_form(graph: Any) -> None:
    """Refuse a graph in a form that only `figrl.embed` takes."""
    if isinstance(graph, str | os.PathLike):
        raise TypeError(
            f"FIGRL takes a matrix or a frame of edges, no path: {os.fspath(graph)!r}. Read the "
            "file, or give it to figrl.embed."
        )
    if hasattr(graph, "is_directed") and hasattr(graph, "edges"):
        raise TypeError(
            f"FIGRL takes a matrix or a frame of edges, no networkx {type(graph).__name__}. Give "
            "networkx.to_scipy_sparse_array(graph) or networkx.to_pandas_edgelist(graph), or give "
            "the graph to figrl.embed."
        )


def check_shape(matrix: sp.csr_array, kind: str, given: Any) -> None:
    """Refuse a matrix of an undirected or directed graph that is no adjacency matrix.

    `given`: what the caller gave, from which the matrix was made.
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(
            f"X has the shape {matrix.shape}, but an adjacency matrix has a row and a column for "
            f"each node. {_remedy(given, columns)}For rows and columns of two kinds give "
            "kind='bipartite'."
        )
    if kind == "undirected":
        largest = abs(matrix).max() if matrix.nnz else 0.0
        if abs(matrix - matrix.T).max() > 1e-6 * largest:
            raise ValueError(
                "X is not symmetric. Give kind='directed', or X + X.T for an undirected graph."
            )


def _remedy(given: Any, columns: int) -> str:
    """What to do with edges that were taken for a matrix."""
    if hasattr(given, "columns"):
        names = ", ".join(map(str, list(given.columns)[:5]))
        return (
            "A frame of edges has the columns source and target, and weight if there are weights; "
            f"those of X are {names}{', ...' if columns > 5 else ''}: rename them. "
        )
    if columns not in (2, 3):
        return ""
    names = "['source', 'target']" if columns == 2 else "['source', 'target', 'weight']"
    return f"For one edge in each row give a frame: pandas.DataFrame(X, columns={names}). "


def check_edges(matrix: sp.csr_array, kind: str) -> None:
    """Refuse a matrix without any edge: all vectors would be zeros."""
    filled = matrix.count_nonzero()
    if kind == "bipartite":
        where = ""
    else:
        filled -= np.count_nonzero(matrix.diagonal())
        where = " off the diagonal"
    if not filled:
        raise ValueError(
            f"X has no edge: all its entries{where} are zero, and so all vectors would be. Give "
            "the weights of the edges, or 1 for each edge."
        )


def columns_of(frame: Any) -> tuple[_Column, _Column, _Column]:
    """Sources, targets and weights of a frame of edges."""
    names = ["source", "target"]
    names += [name for name in map(str, frame.columns) if name == "weight"]
    try:
        table = pa.table(frame).select(names)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(
            f"The frame of edges has a column that does not hold values of one type ({error}). Ids "
            "are all integers or all strings, weights are numbers: cast the column."
        ) from error
    if not table.num_rows:
        raise ValueError("The frame of edges is empty. Give at least one edge.")
    for name in names:
        if missing := table[name].null_count:
            shown = "1 value is" if missing == 1 else f"{missing} values are"
            raise ValueError(
                f"The frame of edges: {shown} missing in '{name}'. Leave such edges out, as "
                "dropna() does."
            )
    sources, targets, *weights = (table[name].to_numpy() for name in names)
    return sources, targets, weights[0] if weights else np.ones(len(sources))


def check_one_type(ids: _Column, others: _Column, what: str) -> None:
    """Refuse ids of which some are numbers and others strings."""
    if (ids.dtype.kind in "iuf") != (others.dtype.kind in "iuf"):
        shown = [values[:1].tolist()[0] for values in (ids, others)]
        raise ValueError(
            f"{what} are not of one type: {shown[0]!r} and {shown[1]!r}. Ids are all integers or "
            "all strings: cast a column."
        )


def matrix_of(frame: Any, kind: str) -> tuple[sp.csr_array, _Column, _Column]:
    """A frame of edges as a matrix, with the ids of its rows and of its columns.

    As in a file of edges, weights of repeated edges are added up; without weights an edge
    counts once.
    """
    sources, targets, weights = columns_of(frame)
    if kind == "bipartite":
        (ids, rows), (others, columns) = (
            np.unique(side, return_inverse=True) for side in (sources, targets)
        )
    else:
        check_one_type(sources, targets, "The sources and the targets")
        ids, places = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        others, (rows, columns) = ids, np.split(places, 2)
    matrix = sp.csr_array((weights, (rows, columns)), shape=(ids.size, others.size))
    if kind == "undirected":
        matrix = matrix + matrix.T
    if np.all(weights == 1):
        matrix.data[:] = 1
    return matrix, ids, others
