"""A whole graph as neighbour lists for compiled loops, mapped from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from figrl.engine.stage import Block, Memory, Stage, Stats
from figrl.engine.worker import worker_state
from figrl.errors import ConfigError
from figrl.store.files import atomic_write, exists, load_array, map_new_array, size_bytes
from figrl.store.graph import ROW_GROUP_EDGES, Graph

_STARTS, _NEIGHBOURS, _WEIGHTS = "starts.npy", "neighbours.npy", "weights.npy"

_ENTRY_BYTES = 48
"""Memory per entry of a row group while it is copied: as read, and as NumPy arrays."""


@dataclass(frozen=True)
class Adjacency:
    """An undirected graph without loops: the sorted neighbours of each node, node after node.

    `starts`: the neighbours of node ``v`` are the entries ``starts[v]`` to ``starts[v + 1] - 1``.
    `neighbours`: each edge is stored twice. `weights`: none where all weights are 1.
    """

    starts: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None

    def __post_init__(self) -> None:
        """Make all arrays read-only, as mapped ones are, so that they have one compiled type."""
        for name in ("starts", "neighbours", "weights"):
            if getattr(self, name) is not None:
                part = np.asarray(getattr(self, name))
                part.flags.writeable = False
                object.__setattr__(self, name, part)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.starts.size - 1)

    @property
    def degrees(self) -> npt.NDArray[np.float64]:
        """Sum of the weights at each node; computed at each call."""
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


def lists_bytes(nodes: int, edges: int, *, weighted: bool) -> int:
    """Size of the neighbour lists of a graph."""
    return 8 * nodes + 2 * edges * (8 if weighted else 4)


def lists_stage(graph: Graph, folder: Path) -> Stage:
    """Write neighbour lists, as a stage of a single block."""
    # The pages of the mapped files count until the system has written them.
    lists = lists_bytes(graph.nodes, graph.edges, weighted=graph.weighted)
    memory = Memory(task_bytes=lists + _ENTRY_BYTES * ROW_GROUP_EDGES + 24 * graph.block_rows)
    blocks = [Block("all", (graph, folder))]
    return Stage("lists", lists_block, blocks, memory, reads=(graph.path,))


def lists_block(graph: Graph, folder: Path) -> Stats:
    """Write neighbour lists."""
    return {"written_bytes": size_bytes(write_adjacency(graph, folder))}


def write_adjacency(graph: Graph, folder: Path) -> Path:
    """Write the neighbour lists of a stored graph to a folder, unless it exists.

    Memory holds a row group of the stored graph and one number per row of a block. Returns the
    folder, for `open_adjacency`.
    """
    if exists(folder):
        return folder
    if graph.nodes > np.iinfo(np.int32).max:
        raise ConfigError(
            f"Neighbour lists number nodes with 32 bits; the graph has {graph.nodes:,} nodes. "
            "Study a part of it."
        )
    try:
        with atomic_write(folder) as aside:
            entries = 2 * graph.edges
            starts = map_new_array(aside / _STARTS, graph.nodes + 1, np.int64)
            lists = [starts, map_new_array(aside / _NEIGHBOURS, entries, np.int32)]
            if graph.weighted:
                lists.append(map_new_array(aside / _WEIGHTS, entries, np.float32))
            fill_lists(graph, range(graph.blocks), *lists)
            for written in lists:
                written.flush()
    except OSError:
        # Dask may run a task twice at a time; the second one finds the folder there.
        if not exists(folder):
            raise
    return folder


def fill_lists(
    graph: Graph,
    blocks: Sequence[int],
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.integer[Any]],
    weights: npt.NDArray[np.float32] | None = None,
    *,
    labels: npt.NDArray[np.integer[Any]] | None = None,
) -> int:
    """Copy the entries of consecutive row blocks, which are stored in the order of the lists.

    The output has a start for each row of the blocks and one more, and room for all entries. With
    labels, only entries whose two ends have the same label are copied. Returns their number.
    """
    origin = graph.block_range(blocks[0])[0]
    starts[0] = filled = 0
    for block in blocks:
        first, stop = graph.block_range(block)
        counts = np.zeros(stop - first, np.int64)
        before = filled
        for rows, columns, values in graph.row_groups(block):
            if labels is not None:
                same = labels[rows] == labels[columns]
                rows, columns = rows[same], columns[same]
            counts += np.bincount(rows - first, minlength=counts.size)
            part = slice(filled, filled + rows.size)
            neighbours[part] = columns
            if weights is not None:
                weights[part] = 1 if values is None else values
            filled += rows.size
        starts[first - origin + 1 : stop - origin + 1] = before + np.cumsum(counts)
    return filled


def open_adjacency(folder: Path) -> Adjacency:
    """Map the lists of `write_adjacency` into memory: only pages that are used are read."""
    weights = folder / _WEIGHTS
    return Adjacency(
        load_array(folder / _STARTS, mapped=True, checked=False),
        load_array(folder / _NEIGHBOURS, mapped=True, checked=False),
        load_array(weights, mapped=True, checked=False) if exists(weights) else None,
    )


def shared_adjacency(folder: Path) -> Adjacency:
    """Lists that the threads of a worker share, until it releases its buffers.

    A file that is mapped twice counts twice in the memory of the process.
    """
    kept = worker_state().kept
    if kept.get(folder) is None:
        # Of threads that come at the same time, all use the lists that were kept first.
        kept.keep(folder, open_adjacency(folder), 0)
    shared: Adjacency = kept.get(folder)
    return shared
