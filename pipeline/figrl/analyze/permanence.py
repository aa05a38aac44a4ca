"""Permanence of a clustering (Chakraborty et al., KDD 2014), out of core over the stored graph."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import distributed
import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze.adjacency import fill_lists
from figrl.analyze.metrics import LabelsOrPath, map_groups, open_labels
from figrl.store.graph import Graph

Integers = npt.NDArray[np.int64]
AnyLabels = npt.NDArray[np.integer[Any]]

GROUP_ENTRIES = 1 << 23
"""Stored entries of a group of row blocks: some 350 MB in a task."""

_SKEWED = 8
"""Ratio of the lengths of two neighbour lists above which binary search beats a merge."""


def permanence(
    graph: Graph,
    labels: LabelsOrPath,
    *,
    client: distributed.Client | None = None,
    group_entries: int = GROUP_ENTRIES,
) -> float:
    """Mean permanence of the nodes: how firmly each belongs to its cluster, from -1 to 1.

    ``Perm(v) = I(v) / (Emax(v) D(v)) - (1 - c_in(v))``, where D is the number of edges of a node,
    I the number of those inside its cluster, Emax the largest number to any one other cluster, and
    c_in the share of pairs of its neighbours inside that are linked. Weights are ignored.

    With a client, workers take a group of row blocks each, and `labels` is a path that they can
    read. A group has at most `group_entries` stored entries (two for an edge), or one row block; a
    task holds the entries of two groups inside clusters: measured, 20 MB and 40 bytes per entry.

    Where the formula is undefined:

    - A node without edges to other clusters has Emax = 1, so ``Perm(v) = c_in(v)``, as its authors
      define it.
    - With fewer than two neighbours inside there is no pair, and c_in = 0. A node that is alone in
      its cluster, with edges, therefore has -1.
    - A node without edges is left out of the mean. The authors divide by the number of all
      vertices, but 0 / 0 is undefined for such a node.

    The FI-GRL paper speaks of the sum over nodes; its table, between -1 and 1, has the mean.
    """
    groups = row_groups(graph, group_entries)
    items = [(groups, own) for own in range(len(groups))]
    sums = map_groups(permanence_sums, graph, labels, items, client)
    nodes = sum(counted for _, counted in sums)
    return math.fsum(total for total, _ in sums) / nodes if nodes else 0.0


def row_groups(graph: Graph, group_entries: int) -> list[range]:
    """Cut the row blocks into groups of at most so many entries, or of one block."""
    groups: list[range] = []
    held = group_entries + 1
    for block in range(graph.blocks):
        entries = graph.block_entries(block)
        if held + entries > group_entries:
            groups.append(range(block, block))
            held = 0
        held += entries
        groups[-1] = range(groups[-1].start, block + 1)
    return groups


def permanence_sums(
    graph: Graph, labels: LabelsOrPath, groups: list[range], own: int
) -> tuple[float, int]:
    """Sum of the permanence of the nodes of a group that have edges, and their number.

    It reads all groups in turn: the third corner of a triangle may lie in any.
    """
    clusters = open_labels(labels)
    rows = _read_rows(graph, groups[own])
    degrees = np.diff(rows.starts)
    every = slice(rows.first, rows.first + degrees.size)
    met, home = (np.asarray(clusters[of], np.int64) for of in (rows.columns, every))
    elsewhere = _most_elsewhere(rows.starts, met, home)
    del rows, met
    inside = _read_rows(graph, groups[own], clusters)
    twice_links = np.zeros(degrees.size, np.int64)
    for number, group in enumerate(groups):
        first, stop = _row_range(graph, group)
        if not ((inside.columns >= first) & (inside.columns < stop)).any():
            continue
        other = inside if number == own else _read_rows(graph, group, clusters)
        _count_triangles(inside, other, twice_links)
    internal = np.diff(inside.starts)
    linked = degrees > 0
    pairs_twice = np.maximum(internal * (internal - 1), 1)
    pull = internal[linked] / (np.maximum(elsewhere, 1) * degrees)[linked]
    return float((pull - 1 + (twice_links / pairs_twice)[linked]).sum()), int(linked.sum())


class _Rows(NamedTuple):
    """Neighbours of the nodes from `first` on, in the order of their rows."""

    first: int
    starts: Integers
    columns: Integers


def _row_range(graph: Graph, group: range) -> tuple[int, int]:
    return graph.block_range(group[0])[0], graph.block_range(group[-1])[1]


def _read_rows(graph: Graph, group: range, clusters: AnyLabels | None = None) -> _Rows:
    """Read row blocks; with clusters, only entries whose two ends are in the same one."""
    first, stop = _row_range(graph, group)
    starts = np.empty(stop - first + 1, np.int64)
    columns = np.empty(sum(graph.block_entries(block) for block in group), np.int64)
    filled = fill_lists(graph, group, starts, columns, labels=clusters)
    return _Rows(first, starts, columns[:filled])


@numba.njit(nogil=True, cache=True)
def _most_elsewhere(starts: Integers, met: Integers, own: Integers) -> Integers:
    """Most edges of each row that lead to one cluster other than its own."""
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
def _count_triangles(own: _Rows, other: _Rows, counts: Integers) -> None:
    """Add to each row its common neighbours with those of its neighbours that are in `other`."""
    first, stop = other.first, other.first + other.starts.size - 1
    for row in range(own.starts.size - 1):
        mine = own.columns[own.starts[row] : own.starts[row + 1]]
        for place in range(np.searchsorted(mine, first), np.searchsorted(mine, stop)):
            neighbour = mine[place] - first
            theirs = other.columns[other.starts[neighbour] : other.starts[neighbour + 1]]
            if mine.size > _SKEWED * theirs.size:
                counts[row] += _common_by_search(theirs, mine)
            elif theirs.size > _SKEWED * mine.size:
                counts[row] += _common_by_search(mine, theirs)
            else:
                counts[row] += _common(mine, theirs)


@numba.njit(nogil=True, cache=True)
def _common(one: Integers, two: Integers) -> int:
    """Count the common elements of two sorted lists."""
    i = j = found = 0
    while i < one.size and j < two.size:
        a, b = one[i], two[j]
        found += a == b
        i += a <= b
        j += b <= a
    return found


@numba.njit(nogil=True, cache=True)
def _common_by_search(short: Integers, long: Integers) -> int:
    """Count the common elements of two sorted lists, by binary search in the longer one."""
    found = low = 0
    for value in short:
        low += np.searchsorted(long[low:], value)
        found += low < long.size and long[low] == value
    return found
