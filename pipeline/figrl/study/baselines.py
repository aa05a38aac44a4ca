"""Baselines of structural holes by general scores: constraint, PageRank, betweenness.

Those made for structural holes are in `figrl.study.baselines_holes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from figrl.analyze.adjacency import Adjacency
from figrl.errors import ConfigError

Scores = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.int64]

SLICE_ROWS = 4096
"""Rows of a product of two sparse matrices that are in memory at a time."""

_SOURCES = 16
"""Sources of one breadth-first search: each takes 8 bytes per node and array."""


def lowest(scores: Scores, count: int) -> Nodes:
    """Nodes with the lowest scores, in increasing order; ties by node, nan is never chosen."""
    scored = int(scores.size - np.isnan(scores).sum())
    if not 0 <= count <= scored:
        raise ConfigError(
            f"{count} nodes were asked for; there are {scored:,} that have a score and can be "
            "chosen."
        )
    return np.argsort(scores, kind="stable")[:count].astype(np.int64)


def constraint(adjacency: Adjacency) -> Scores:
    """Burt's constraint: how much of a node's investment leads back to its own neighbours.

    With ``p_uv`` the weight of an edge over the degree of ``u``, the constraint of ``u`` is the
    sum over its neighbours ``v`` of ``(p_uv + sum_w p_uw p_wv)^2``. It is nan without neighbours.
    """
    p = transition_matrix(adjacency)
    scores = np.empty(adjacency.nodes)
    for start in range(0, adjacency.nodes, SLICE_ROWS):
        direct = p[start : start + SLICE_ROWS]
        invested = direct + (direct @ p).multiply(direct > 0)
        scores[start : start + SLICE_ROWS] = invested.power(2).sum(axis=1)
    return np.where(adjacency.degrees > 0, scores, np.nan)


def transition_matrix(adjacency: Adjacency) -> Any:
    """Transition matrix ``D^-1 A`` of the random walk, as CSR; rows of isolated nodes are 0."""
    degrees = adjacency.degrees
    return sp.csr_array(sp.diags_array(1 / np.where(degrees > 0, degrees, 1)) @ adjacency.matrix())


def pagerank(
    adjacency: Adjacency, *, damping: float = 0.85, tolerance: float = 1e-10, max_steps: int = 1000
) -> Scores:
    """PageRank by power iteration, until a step changes the scores by `tolerance` in the 1-norm.

    A step follows an edge with probability `damping`, in proportion to the weights. The walk always
    jumps from a node without edges.
    """
    degrees, nodes = adjacency.degrees, adjacency.nodes
    matrix = adjacency.matrix()
    per_degree = 1 / np.where(degrees > 0, degrees, 1)
    scores = np.full(nodes, 1 / nodes)
    for _ in range(max_steps):
        jumping = 1 - damping + damping * scores[degrees == 0].sum()
        stepped = damping * (matrix @ (per_degree * scores)) + jumping / nodes
        change = float(np.abs(stepped - scores).sum())
        scores = stepped
        if change < tolerance:
            return np.asarray(scores, np.float64)
    raise ConfigError(
        f"PageRank did not converge to {tolerance} within {max_steps} steps at damping {damping}. "
        "Allow more steps, or a larger tolerance."
    )


def betweenness(adjacency: Adjacency, *, samples: int | None = None, seed: int = 0) -> Scores:
    """Betweenness centrality (Brandes): shortest paths through a node, 1 per pair of endpoints.

    Every edge has length 1, whatever its weight. With `samples`, paths start from so many nodes,
    drawn by `seed` without replacement, and the sums are scaled up; else it is exact.
    """
    nodes = adjacency.nodes
    sources = np.arange(nodes)
    if samples is not None and samples < nodes:
        sources = np.random.default_rng(seed).choice(nodes, samples, replace=False)
    edges = unweighted(adjacency)
    total = np.zeros(nodes)
    for start in range(0, sources.size, _SOURCES):
        total += _dependencies(edges, sources[start : start + _SOURCES])
    # Each pair of endpoints is counted from both of its ends.
    return total * (nodes / max(1, sources.size) / 2)


def unweighted(adjacency: Adjacency) -> Any:
    """Adjacency matrix of zeros and ones, as CSR."""
    matrix = adjacency.matrix()
    matrix.data[:] = 1
    return matrix


def _dependencies(edges: Any, sources: Nodes) -> Scores:
    """Dependency of the sources on each node: shares of their shortest paths through it."""
    paths = np.zeros((edges.shape[0], sources.size))
    distances = np.full(paths.shape, -1, np.int32)
    distance = -1
    for distance, found in enumerate(search(edges, sources)):
        paths += found
        distances[found > 0] = distance
    through = np.zeros(paths.shape)
    for farther in range(distance, 1, -1):
        at = distances == farther
        shares = np.divide(1 + through, paths, out=np.zeros(paths.shape), where=at)
        through += np.where(distances == farther - 1, paths * (edges @ shares), 0)
    return np.asarray(through.sum(axis=1), np.float64)


def search(edges: Any, sources: Nodes) -> Iterator[Scores]:
    """Breadth-first search from several sources at once, a distance at a time.

    Yields the number of shortest paths to the nodes at this distance, 0 for all others, in an array
    of shape (nodes, sources).
    """
    found = np.zeros((edges.shape[0], sources.size))
    found[sources, np.arange(sources.size)] = 1
    reached = found > 0
    while found.any():
        yield found
        found = edges @ found
        found[reached] = 0
        reached |= found > 0


def distance_sums(edges: Any, sources: Nodes, unreachable: int) -> Scores:
    """Sum of the distances from each source to all nodes."""
    sums = np.empty(sources.size)
    for start in range(0, sources.size, _SOURCES):
        part = sources[start : start + _SOURCES]
        counts = np.array([np.count_nonzero(found, axis=0) for found in search(edges, part)])
        beyond = edges.shape[0] - counts.sum(axis=0)
        sums[start : start + _SOURCES] = np.arange(len(counts)) @ counts + unreachable * beyond
    return sums
