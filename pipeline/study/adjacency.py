"""A whole graph as neighbour lists that compiled loops walk, in memory or mapped from files."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numpy.lib.format import open_memmap

from pipeline.blocks import Stats
from pipeline.errors import ConfigError
from pipeline.files import load_array, size_bytes, written_aside
from pipeline.graph import Graph

_STARTS, _NEIGHBOURS, _WEIGHTS = "starts.npy", "neighbours.npy", "weights.npy"


@dataclass(frozen=True)
class Adjacency:
    """An undirected graph without loops: the neighbours of each node, sorted, one after another.

    Attributes
    ----------
    starts : int64 array, shape (nodes + 1,)
        The neighbours of node ``v`` are the entries ``starts[v]`` to ``starts[v + 1] - 1``.
    neighbours : int32 array, shape (entries,)
        Each edge is there twice.
    weights : float32 array, shape (entries,), or None
        None where all weights are 1.
    """

    starts: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.starts.size - 1)

    @property
    def degrees(self) -> npt.NDArray[np.float64]:
        """Sum of the weights at each node; computed anew at each call."""
        if self.weights is None:
            return np.diff(self.starts).astype(np.float64)
        sums: npt.NDArray[np.float64] = _row_sums(self.starts, self.weights)
        return sums

    def matrix(self) -> sp.csr_matrix[np.float64]:
        """Weights as a symmetric sparse matrix of float64."""
        entries = np.ones(self.neighbours.size) if self.weights is None else self.weights
        parts = entries.astype(np.float64), self.neighbours, self.starts
        return sp.csr_matrix(parts, shape=(self.nodes, self.nodes))


@numba.njit(nogil=True, cache=True)
def _row_sums(
    starts: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    sums = np.zeros(starts.size - 1)
    for row in range(sums.size):
        for entry in range(starts[row], starts[row + 1]):
            sums[row] += weights[entry]
    return sums


def adjacency_of(matrix: Any) -> Adjacency:
    """Neighbour lists of a symmetric sparse matrix of weights; its diagonal is left out.

    Raises
    ------
    ConfigError
        If the matrix is not square or not symmetric.
    """
    found = sp.csr_array(matrix, dtype=np.float64)
    if found.shape[0] != found.shape[1] or abs(found - found.T).sum() > 0:
        raise ConfigError(
            f"The matrix of an undirected graph has to be square and symmetric; one of shape "
            f"{found.shape} was given that is not. Add it to its transpose first."
        )
    found = sp.csr_array(found - sp.diags_array(found.diagonal()))
    found.eliminate_zeros()
    found.sum_duplicates()
    weights = None if (found.data == 1).all() else found.data.astype(np.float32)
    return _frozen(found.indptr.astype(np.int64), found.indices.astype(np.int32), weights)


def write_adjacency(graph: Graph, folder: Path) -> Path:
    """Write the neighbour lists of a stored graph to a folder, unless it is there.

    A row group of the stored graph and one number per row of a block are in memory at a time.

    Returns
    -------
    Path
        The folder, for `open_adjacency`.
    """
    if folder.exists():
        return folder
    if graph.nodes > np.iinfo(np.int32).max:
        raise ConfigError(
            f"Neighbour lists number nodes with 32 bits; the graph has {graph.nodes:,} nodes. "
            "Study a part of it."
        )
    try:
        with written_aside(folder) as aside:
            aside.mkdir()
            entries = 2 * graph.edges
            starts = open_memmap(aside / _STARTS, "w+", np.int64, (graph.nodes + 1,))
            neighbours = open_memmap(aside / _NEIGHBOURS, "w+", np.int32, (entries,))
            weights = None
            if graph.weighted:
                weights = open_memmap(aside / _WEIGHTS, "w+", np.float32, (entries,))
            _fill(graph, starts, neighbours, weights)
            for written in (starts, neighbours, weights):
                if written is not None:
                    written.flush()
    except OSError:
        # Dask may do a task twice at a time; whoever comes second finds it done.
        if not folder.exists():
            raise
    return folder


def lists_block(graph: Graph, folder: Path) -> Stats:
    """Write neighbour lists as the only block of a stage."""
    return {"written_bytes": size_bytes(write_adjacency(graph, folder))}


def _fill(
    graph: Graph,
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
) -> None:
    """Copy the blocks of a stored graph; their entries are in the order of the lists."""
    filled = 0
    starts[0] = 0
    for block in range(graph.blocks):
        first, last = graph.block_range(block)
        counts = np.zeros(last - first, np.int64)
        before = filled
        for rows, columns, values in graph.edge_runs(block):
            counts += np.bincount(rows - first, minlength=counts.size)
            neighbours[filled : filled + rows.size] = columns
            if weights is not None:
                weights[filled : filled + rows.size] = 1 if values is None else values
            filled += rows.size
        starts[first + 1 : last + 1] = before + np.cumsum(counts)


def open_adjacency(folder: Path, *, mapped: bool = True) -> Adjacency:
    """Open what `write_adjacency` wrote; `mapped` reads only what is looked at."""
    weights = None
    if (folder / _WEIGHTS).exists():
        weights = load_array(folder / _WEIGHTS, mapped=mapped)
    return _frozen(
        load_array(folder / _STARTS, mapped=mapped),
        load_array(folder / _NEIGHBOURS, mapped=mapped),
        weights,
    )


_sharing = threading.Lock()


def shared_adjacency(folder: Path) -> Adjacency:
    """Lists that the threads of this process share: a file that is mapped twice counts twice."""
    with _sharing:
        return _opened_last(folder)


@functools.lru_cache(maxsize=1)
def _opened_last(folder: Path) -> Adjacency:
    return open_adjacency(folder)


def forget_adjacency() -> None:
    """Let go of lists that were shared: a file that is mapped takes disk after it was deleted."""
    _opened_last.cache_clear()


def _frozen(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
) -> Adjacency:
    """Make all arrays read-only, as mapped ones are, so that one compiled loop serves them all."""
    parts = [None if part is None else np.asarray(part) for part in (starts, neighbours, weights)]
    for part in parts:
        if part is not None:
            part.flags.writeable = False
    return Adjacency(*parts)  # type: ignore[arg-type]
