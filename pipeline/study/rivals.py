"""Known ways to choose structural holes by a score of each node: constraint, PageRank, betweenness.

Those that look for spanners of communities are in `pipeline.study.spanners`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError
from pipeline.study.adjacency import Adjacency

Scores = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.int64]

_PARTS = 8
"""Parts of the sources of paths, so that sums do not depend on the number of threads."""


def least(scores: Scores, count: int) -> Nodes:
    """Nodes of the smallest scores, the smallest first; of equals the first, nan never.

    Raises
    ------
    ConfigError
        If fewer than `count` nodes have a score.
    """
    scored = int(scores.size - np.isnan(scores).sum())
    if not 0 <= count <= scored:
        raise ConfigError(
            f"{count} nodes were asked for; there are {scored:,} that have a score and can be "
            "chosen."
        )
    return np.argsort(scores, kind="stable")[:count].astype(np.int64)


def lowest_constraint(adjacency: Adjacency, count: int) -> Nodes:
    """Nodes of the lowest `constraint`, the lowest first."""
    return least(constraint(adjacency), count)


def highest_pagerank(adjacency: Adjacency, count: int, *, damping: float = 0.85) -> Nodes:
    """Nodes of the highest `pagerank`, the highest first."""
    return least(-pagerank(adjacency, damping=damping), count)


def highest_betweenness(
    adjacency: Adjacency, count: int, *, samples: int | None = None, seed: int = 0
) -> Nodes:
    """Nodes of the highest `betweenness`, the highest first."""
    return least(-betweenness(adjacency, samples=samples, seed=seed), count)


def constraint(adjacency: Adjacency) -> Scores:
    """Burt's constraint: how much of what a node invests leads back to its own neighbours.

    With ``p_uv`` the weight of an edge over the degree of ``u``, the constraint of ``u`` is the
    sum over its neighbours ``v`` of ``(p_uv + sum_w p_uw p_wv)^2``. It is nan without neighbours.
    """
    return np.asarray(
        _constraint(adjacency.starts, adjacency.neighbours, adjacency.weights, adjacency.degrees)
    )


@numba.njit(nogil=True, cache=True)
def _constraint(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Walk two steps from each node; only what ends at a neighbour is added up."""
    nodes = starts.size - 1
    scores = np.full(nodes, np.nan)
    owner = np.full(nodes, -1, np.int64)
    invested = np.zeros(nodes)
    for node in range(nodes):
        first, last = starts[node], starts[node + 1]
        for entry in range(first, last):
            owner[neighbours[entry]] = node
            weight = 1.0 if weights is None else np.float64(weights[entry])
            invested[neighbours[entry]] = weight / degrees[node]
        for entry in range(first, last):
            middle = neighbours[entry]
            weight = 1.0 if weights is None else np.float64(weights[entry])
            share = weight / degrees[node] / degrees[middle]
            for onward in range(starts[middle], starts[middle + 1]):
                if owner[neighbours[onward]] == node:
                    step = 1.0 if weights is None else np.float64(weights[onward])
                    invested[neighbours[onward]] += share * step
        if last > first:
            total = 0.0
            for entry in range(first, last):
                total += invested[neighbours[entry]] ** 2
            scores[node] = total
    return scores


def pagerank(
    adjacency: Adjacency,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-10,
    most_steps: int = 1000,
) -> Scores:
    """Share of time that a walk along edges, which now and then jumps anywhere, is at each node.

    Parameters
    ----------
    adjacency : Adjacency
    damping : float
        Chance of a step along an edge, in proportion to the weights. From a node without edges
        the walk always jumps.
    tolerance : float
        Power iteration ends when a step changes the shares by less, all together.

    Raises
    ------
    ConfigError
        If `most_steps` do not suffice.
    """
    degrees = adjacency.degrees
    nodes = adjacency.nodes
    matrix = adjacency.matrix()
    per_degree = 1 / np.where(degrees > 0, degrees, 1)
    stuck = degrees == 0
    shares = np.full(nodes, 1 / nodes)
    for _ in range(most_steps):
        jumping = 1 - damping + damping * shares[stuck].sum()
        stepped = damping * (matrix @ (per_degree * shares)) + jumping / nodes
        change = float(np.abs(stepped - shares).sum())
        shares = stepped
        if change < tolerance:
            return np.asarray(shares, np.float64)
    raise ConfigError(
        f"PageRank did not settle to {tolerance} within {most_steps} steps at damping {damping}. "
        "Allow more steps, or a larger tolerance."
    )


def betweenness(adjacency: Adjacency, *, samples: int | None = None, seed: int = 0) -> Scores:
    """Number of shortest paths that lead through a node, each pair of ends counting 1 (Brandes).

    Edges count as one step each, whatever their weights.

    Parameters
    ----------
    adjacency : Adjacency
    samples : int or None
        Sources of paths, drawn by `seed` without replacement; the sums are scaled up. None takes
        all nodes, which is exact.
    """
    nodes = adjacency.nodes
    sources = np.arange(nodes)
    if samples is not None and samples < nodes:
        sources = np.random.default_rng(seed).choice(nodes, samples, replace=False)
    total = np.zeros(nodes)
    lists = adjacency.starts, adjacency.neighbours
    with ThreadPoolExecutor() as threads:
        tasks: list[Any] = [
            threads.submit(_through, *lists, part) for part in np.array_split(sources, _PARTS)
        ]
        for task in tasks:
            total += task.result()
    # Each pair is met from both of its ends.
    return total * (nodes / max(1, sources.size) / 2)


@numba.njit(nogil=True, cache=True)
def _through(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    sources: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Shares of shortest paths from some sources that lead through each node, added up."""
    nodes = starts.size - 1
    total = np.zeros(nodes)
    distances = np.full(nodes, -1, np.int32)
    paths = np.zeros(nodes)
    passing = np.zeros(nodes)
    queue = np.empty(nodes, np.int32)
    for source in sources:
        reached = _count_paths(starts, neighbours, source, distances, paths, queue)
        for i in range(reached - 1, -1, -1):
            node = queue[i]
            for entry in range(starts[node], starts[node + 1]):
                nearer = neighbours[entry]
                if distances[nearer] == distances[node] - 1:
                    passing[nearer] += paths[nearer] / paths[node] * (1.0 + passing[node])
            if node != source:
                total[node] += passing[node]
        for i in range(reached):
            distances[queue[i]] = -1
            paths[queue[i]] = 0.0
            passing[queue[i]] = 0.0
    return total


@numba.njit(nogil=True, cache=True)
def _count_paths(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    source: int,
    distances: npt.NDArray[np.int32],
    paths: npt.NDArray[np.float64],
    queue: npt.NDArray[np.int32],
) -> int:
    """Distance of each node that can be reached, and the number of shortest ways to it."""
    queue[0], distances[source], paths[source] = source, 0, 1.0
    done, queued = 0, 1
    while done < queued:
        node = queue[done]
        done += 1
        for entry in range(starts[node], starts[node + 1]):
            other = neighbours[entry]
            if distances[other] < 0:
                distances[other] = distances[node] + 1
                queue[queued] = other
                queued += 1
            if distances[other] == distances[node] + 1:
                paths[other] += paths[node]
    return queued
