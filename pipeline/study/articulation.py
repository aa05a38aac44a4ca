"""Structural holes as the nodes that hold a graph together: articulation points and AP_BICC."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.study.adjacency import Adjacency
from pipeline.study.rivals import Nodes, Scores, least


def ap_bicc(
    adjacency: Adjacency, count: int, *, candidates: int | None = None, levels: int = 2
) -> Nodes:
    """Articulation points, then nodes near to all others (AP_BICC of Rezvani et al., CIKM 2015).

    First come the nodes without which most pairs of nodes are cut off from each other, the one
    that separates most first. Where these are fewer than asked for, the others follow by their
    mean distance to all nodes, the smallest first. That is computed for some candidates only:
    those for which it is smallest if all that is more than `levels` steps away were one step
    further, which is a bound of it. On Zachary's karate club the choice is that of the FI-GRL
    paper's table; on large graphs it depends on how candidates are taken.

    Parameters
    ----------
    adjacency : Adjacency
    count : int
    candidates : int or None
        How many candidates; None takes ten for each that is asked for.
    """
    separated = separated_pairs(adjacency)
    points = least(np.where(separated > 0, -separated, np.nan), int((separated > 0).sum()))
    missing = count - points.size
    if missing <= 0:
        return points[:count]
    lists = adjacency.starts, adjacency.neighbours
    bounds = _distance_sums(*lists, np.arange(adjacency.nodes), levels, levels + 1)
    bounds[points] = np.nan
    tried = least(bounds, min(candidates or 10 * missing, adjacency.nodes - points.size))
    # Who cannot be reached is farther than any path, else the smallest part were nearest to all.
    order = least(_distance_sums(*lists, tried, adjacency.nodes, adjacency.nodes), missing)
    return np.concatenate([points, tried[order]])


@numba.njit(nogil=True, cache=True)
def _distance_sums(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    sources: npt.NDArray[np.int64],
    levels: int,
    beyond: int,
) -> npt.NDArray[np.float64]:
    """Sum of the distances from each source; more than `levels` steps count as `beyond`."""
    nodes = starts.size - 1
    sums = np.zeros(sources.size)
    distances = np.full(nodes, -1, np.int32)
    queue = np.empty(nodes, np.int32)
    for s in range(sources.size):
        queue[0], distances[sources[s]] = sources[s], 0
        done, queued = 0, 1
        while done < queued and distances[queue[done]] != levels:
            node = queue[done]
            done += 1
            for entry in range(starts[node], starts[node + 1]):
                other = neighbours[entry]
                if distances[other] < 0:
                    distances[other] = distances[node] + 1
                    sums[s] += distances[other]
                    queue[queued] = other
                    queued += 1
        sums[s] += np.float64(nodes - queued) * beyond
        for i in range(queued):
            distances[queue[i]] = -1
    return sums


def separated_pairs(adjacency: Adjacency) -> Scores:
    """Pairs of nodes that lose each other without a node: 0 but for articulation points."""
    return np.asarray(_separated_pairs(adjacency.starts, adjacency.neighbours))


@numba.njit(nogil=True, cache=True)
def _separated_pairs(
    starts: npt.NDArray[np.int64], neighbours: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """Count, part of the graph by part, what is left of the pairs without each node."""
    nodes = starts.size - 1
    pairs = np.zeros(nodes)
    turn, parent = np.full(nodes, -1, np.int64), np.full(nodes, -1, np.int64)
    order = np.empty(nodes, np.int64)
    begun = 0
    for root in range(nodes):
        if turn[root] < 0:
            stop = _search_in_depth(starts, neighbours, root, begun, turn, parent, order)
            _count_pairs(starts, neighbours, order[begun:stop], turn, parent, pairs)
            begun = stop
    return pairs


@numba.njit(nogil=True, cache=True)
def _search_in_depth(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    root: int,
    turns: int,
    turn: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> int:
    """Number the nodes of a part in the order of a search in depth; return the next number."""
    stack = [(np.int64(root), starts[root])]
    turn[root], order[turns] = turns, root
    turns += 1
    while len(stack) > 0:
        node, entry = stack.pop()
        while entry < starts[node + 1] and turn[neighbours[entry]] >= 0:
            entry += 1
        if entry < starts[node + 1]:
            child = np.int64(neighbours[entry])
            stack.append((node, entry + 1))
            stack.append((child, starts[child]))
            parent[child], turn[child], order[turns] = node, turns, child
            turns += 1
    return turns


@numba.njit(nogil=True, cache=True)
def _count_pairs(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    order: npt.NDArray[np.int64],
    turn: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.float64],
) -> None:
    """From the last node to the first: a subtree that no edge leads out of is cut off.

    ``lowest`` is the first turn that a node's subtree has an edge to, past its own parent.
    """
    first, others = turn[order[0]], np.float64(order.size - 1)
    lowest, size = np.empty(order.size, np.int64), np.ones(order.size, np.int64)
    cut_off, squares = np.zeros(order.size), np.zeros(order.size)
    for i in range(order.size):
        lowest[i] = i
        for entry in range(starts[order[i]], starts[order[i] + 1]):
            if neighbours[entry] != parent[order[i]]:
                lowest[i] = min(lowest[i], turn[neighbours[entry]] - first)
    for i in range(order.size - 1, -1, -1):
        rest = others - cut_off[i]
        pairs[order[i]] = (others**2 - squares[i] - rest**2) / 2
        if i > 0:
            above = turn[parent[order[i]]] - first
            size[above] += size[i]
            lowest[above] = min(lowest[above], lowest[i])
            if lowest[i] >= above:
                cut_off[above] += size[i]
                squares[above] += np.float64(size[i]) ** 2
