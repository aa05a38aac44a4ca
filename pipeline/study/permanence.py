"""Permanence of a clustering (Chakraborty et al., KDD 2014), out of core over the stored graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import distributed
import numba
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from pipeline.errors import ConfigError
from pipeline.graph import Graph
from pipeline.ingest.partition import edges_path
from pipeline.run import map_once
from pipeline.study.metrics import LabelsOrPath, check_labels, open_labels

Integers = npt.NDArray[np.int64]
AnyLabels = npt.NDArray[np.integer[Any]]
Groups = list[tuple[int, int]]
"""First row block of each group, and the block after its last."""

GROUP_ENTRIES = 1 << 23
"""Stored entries of a group: some 350 MB in a task."""

_SKEWED = 8
"""How many times longer one list of neighbours has to be for a search in it to be quicker than
going through both."""


def permanence(
    graph: Graph,
    labels: LabelsOrPath,
    *,
    client: distributed.Client | None = None,
    group_entries: int = GROUP_ENTRIES,
) -> float:
    """Mean permanence of the nodes: how firmly each belongs to its cluster, from -1 to 1.

    ``Perm(v) = I(v) / (Emax(v) D(v)) - (1 - c_in(v))``, where of the D edges of a node I stay in
    its cluster, Emax go to that one of the other clusters that has most of them, and c_in is the
    share of pairs of its neighbours inside that are linked. Edges are counted; weights play no
    part.

    Parameters
    ----------
    graph : Graph
    labels : int array, shape (nodes,), or path
        Cluster of each node, by row, from 0 on; or an ``.npy`` file of them.
    client : distributed.Client, optional
        Cluster whose workers take a group of row blocks each, for which `labels` has to be a path
        that they can read; by default this process does one after the other.
    group_entries : int
        Most stored entries (two for an edge) of a group, unless one row block has more. A task
        holds what two groups have inside clusters: measured, 20 MB and 40 bytes for each entry.

    Notes
    -----
    Where the formula says nothing:

    - A node without edges to other clusters has Emax = 1, so ``Perm(v) = c_in(v)``, as its authors
      define it.
    - With fewer than two neighbours inside there is no pair, and c_in = 0. A node that is alone in
      its cluster, with edges, therefore has -1.
    - A node without edges is left out of the mean. The authors divide by the number of all
      vertices, and 0 / 0 is not defined for such a one; in a graph without any, both are the same.

    The paper on FI-GRL speaks of the sum over nodes; its table, between -1 and 1, has the mean.
    """
    if group_entries < 1:
        raise ConfigError(f"group_entries is {group_entries}; it has to be at least 1.")
    check_labels(graph, labels, client)
    groups = row_groups(graph, group_entries)
    items = [(graph, labels, groups, own) for own in range(len(groups))]
    sums = (
        [permanence_sums(*item) for item in items]
        if client is None
        else map_once(client, permanence_sums, items)
    )
    nodes = sum(counted for _, counted in sums)
    return math.fsum(total for total, _ in sums) / nodes if nodes else 0.0


def row_groups(graph: Graph, group_entries: int) -> Groups:
    """Cut the row blocks into stretches of at most so many entries, or of one block."""
    groups: Groups = []
    held = group_entries + 1
    for block in range(graph.blocks):
        entries = int(pq.read_metadata(edges_path(graph.path, block)).num_rows)
        if held + entries > group_entries:
            groups.append((block, block))
            held = 0
        held += entries
        groups[-1] = groups[-1][0], block + 1
    return groups


def permanence_sums(
    graph: Graph, labels: LabelsOrPath, groups: Groups, own: int
) -> tuple[float, int]:
    """Sum of the permanence of the nodes of one group that have edges, and how many those are.

    It goes through all groups in turn: the third corner of a triangle may lie in any.
    """
    clusters = open_labels(labels)
    rows = _read_rows(graph, *groups[own])
    degrees = np.diff(rows.starts)
    elsewhere = _most_elsewhere(
        rows.starts,
        np.asarray(clusters[rows.columns], np.int64),
        np.asarray(clusters[rows.first : rows.stop], np.int64),
    )
    del rows
    inside = _read_rows(graph, *groups[own], clusters)
    twice_links = np.zeros(degrees.size, np.int64)
    for number, group in enumerate(groups):
        if not _leads_to(inside, *_row_range(graph, group)):
            continue
        other = inside if number == own else _read_rows(graph, *group, clusters)
        _count_triangles(
            inside.starts, inside.columns, other.first, other.starts, other.columns, twice_links
        )
    internal = np.diff(inside.starts)
    linked = degrees > 0
    pairs_twice = np.maximum(internal * (internal - 1), 1)
    pull = internal[linked] / (np.maximum(elsewhere, 1) * degrees)[linked]
    return float((pull - 1 + (twice_links / pairs_twice)[linked]).sum()), int(linked.sum())


@dataclass(frozen=True)
class _Rows:
    """Neighbours of nodes from `first` up to `stop`, in the order of their rows."""

    first: int
    stop: int
    starts: Integers
    columns: Integers


def _row_range(graph: Graph, group: tuple[int, int]) -> tuple[int, int]:
    return graph.block_range(group[0])[0], graph.block_range(group[1] - 1)[1]


def _read_rows(
    graph: Graph, first_block: int, stop_block: int, clusters: AnyLabels | None = None
) -> _Rows:
    """Read some row blocks; with clusters, only entries whose two ends are in the same one."""
    first, stop = _row_range(graph, (first_block, stop_block))
    counts = np.zeros(stop - first + 1, np.int64)
    parts = [np.empty(0, np.int64)]
    for block in range(first_block, stop_block):
        for rows, columns, _ in graph.edge_runs(block):
            if clusters is not None:
                same = clusters[rows] == clusters[columns]
                rows, columns = rows[same], columns[same]
            if rows.size:
                met = np.bincount(rows - rows[0])
                counts[rows[0] - first + 1 :][: met.size] += met
            parts.append(columns)
    return _Rows(first, stop, np.cumsum(counts), np.concatenate(parts))


def _leads_to(rows: _Rows, first: int, stop: int) -> bool:
    return bool(((rows.columns >= first) & (rows.columns < stop)).any())


@numba.njit(nogil=True, cache=True)
def _most_elsewhere(starts: Integers, met: Integers, own: Integers) -> Integers:
    """Of each row, the most edges that lead to one cluster other than its own."""
    most = np.zeros(own.size, np.int64)
    for row in range(own.size):
        labels = np.sort(met[starts[row] : starts[row + 1]])
        run = 0
        for place in range(labels.size):
            run = run + 1 if place and labels[place] == labels[place - 1] else 1
            if labels[place] != own[row] and run > most[row]:
                most[row] = run
    return most


@numba.njit(nogil=True, cache=True)
def _count_triangles(
    starts: Integers,
    columns: Integers,
    first: int,
    other_starts: Integers,
    other_columns: Integers,
    counts: Integers,
) -> None:
    """Add to each row its common neighbours with those of its neighbours that `other` holds."""
    stop = first + other_starts.size - 1
    for row in range(starts.size - 1):
        mine = columns[starts[row] : starts[row + 1]]
        for place in range(np.searchsorted(mine, first), np.searchsorted(mine, stop)):
            neighbour = mine[place] - first
            theirs = other_columns[other_starts[neighbour] : other_starts[neighbour + 1]]
            if mine.size > _SKEWED * theirs.size:
                counts[row] += _common_by_search(theirs, mine)
            elif theirs.size > _SKEWED * mine.size:
                counts[row] += _common_by_search(mine, theirs)
            else:
                counts[row] += _common(mine, theirs)


@numba.njit(nogil=True, cache=True)
def _common(one: Integers, two: Integers) -> int:
    """Count what two sorted lists share."""
    i = j = found = 0
    while i < one.size and j < two.size:
        a, b = one[i], two[j]
        found += a == b
        i += a <= b
        j += b <= a
    return found


@numba.njit(nogil=True, cache=True)
def _common_by_search(short: Integers, long: Integers) -> int:
    """Count what two sorted lists share, by looking for each of the few among the many."""
    found = low = 0
    for value in short:
        high = long.size
        while low < high:
            middle = (low + high) // 2
            if long[middle] < value:
                low = middle + 1
            else:
                high = middle
        found += low < long.size and long[low] == value
    return found
