"""Baselines made for structural holes: HAM, HIS and AP_BICC, from their papers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.csgraph
import scipy.sparse.linalg

from figrl.analyze.adjacency import Adjacency
from figrl.analyze.metrics import Labels
from figrl.errors import ConfigError
from figrl.study import baselines
from figrl.study.baselines import SLICE_ROWS, Nodes, Scores, lowest, unweighted

_DENSE_NODES = 1000
"""Nodes up to which all eigenvectors are computed: it takes a second, and is exact."""

_ROUNDS, _EIGENSOLVER_STEPS, _TOLERANCE = 50, 20, 1e-6
_EPSILON = 1e-4
"""``eps`` of HAM, in units of the root mean square norm of a row of ``F``."""

_SMOOTHING_STEPS = 30
_OWN_SHARE = 0.3
_PAIR_SHARE = 0.5 - 0.5**2


def ham_scores(adjacency: Adjacency, clusters: int, *, seed: int = 0) -> Scores:
    """How much a node is part of any cluster, by harmonic modularity (He et al., KDD 2016).

    An indicator ``F``, with a row for each node and a column for each cluster, is harmonic where
    a row is the mean of its neighbours' rows: ``L F = 0`` with ``L = I - D^-1 A``. HAM minimises
    ``||L F||_{2,1}``, the sum of the norms of the rows, subject to ``F^T F = I``, so that only few
    nodes, those between clusters, are not harmonic. It alternates: ``Q_ii = 1 / (2 ||(L F)_i|| +
    eps)``, then ``F`` becomes the eigenvectors of ``L^T Q L`` to the smallest eigenvalues. The
    score is the norm of a node's row of ``F``, which is smallest for structural holes; it is nan
    for nodes without edges. The graph should be connected, or components take the place of
    clusters.

    It stops after 50 rounds, or when the sum of norms hardly changes. A round has a few steps of
    the iterative eigensolver (LOBPCG), started from the previous round; graphs of up to 1,000 nodes
    are solved exactly.
    """
    nodes = adjacency.nodes
    if not 2 <= clusters <= nodes // 5:
        raise ConfigError(
            f"HAM takes from 2 clusters up to a fifth of the nodes, {nodes // 5:,} here; "
            f"{clusters} were asked for."
        )
    linked = adjacency.degrees > 0
    transition = baselines.transition_matrix(adjacency)
    L = sp.csr_array(sp.eye_array(nodes) - transition)
    F = np.linalg.qr(np.random.default_rng(seed).standard_normal((nodes, clusters)))[0]
    if nodes > _DENSE_NODES:
        F = _smoothed(transition, F, linked)
    before = np.inf
    for _ in range(_ROUNDS):
        norms = np.linalg.norm(L @ F, axis=1)
        total = float(norms.sum())
        if abs(before - total) <= _TOLERANCE * total:
            break
        before = total
        Q = 0.5 / (norms + _EPSILON * np.sqrt(clusters / nodes))
        F = _smallest_eigenvectors(L, Q, F)
    return np.where(linked, np.linalg.norm(F, axis=1), np.nan)


def _smoothed(transition: Any, vectors: Any, linked: Any) -> Any:
    """Initial vectors of the iterative solver: the constant one, and random ones, smoothed."""
    vectors[:, 0] = linked
    for _ in range(_SMOOTHING_STEPS):
        vectors[:, 1:] = np.linalg.qr(0.5 * (vectors + transition @ vectors))[0][:, 1:]
    return np.linalg.qr(vectors)[0]


def _smallest_eigenvectors(laplacian: Any, row_weights: Scores, start: Any) -> Any:
    """Eigenvectors of ``L^T Q L`` to its smallest eigenvalues, as many as `start` has columns."""
    nodes, columns = start.shape
    R = laplacian.T @ sp.diags_array(row_weights) @ laplacian
    if nodes <= _DENSE_NODES:
        return scipy.linalg.eigh(R.toarray(), subset_by_index=[0, columns - 1])[1]
    inverse_diagonal = sp.diags_array(1 / R.diagonal())
    with warnings.catch_warnings():
        # It need not converge: the next round continues with other weights.
        warnings.simplefilter("ignore", UserWarning)
        _, found = scipy.sparse.linalg.lobpcg(
            R, start, M=inverse_diagonal, tol=1e-9, maxiter=_EIGENSOLVER_STEPS, largest=False
        )
    return found


def his_scores(adjacency: Adjacency, labels: Labels, *, max_clusters: int = 64) -> Scores:
    """How important a node is in two clusters at once (HIS of Lou and Tang, WWW 2013).

    The importance ``I(v, C)`` of a node in a cluster starts as its PageRank, or 0 outside of its
    own. It grows to ``0.3 I(u, C) + b H(u, S)`` of a neighbour ``u`` and a set ``S`` of clusters
    with ``C`` in it, where ``H(u, S)`` is the least importance of ``u`` in them and
    ``b = 0.5 - 0.5^|S|``, until nothing changes. Here ``S`` is any pair of clusters, and no larger
    set: then ``b`` is 0.25, and the best pair is ``C`` with the other cluster in which ``u`` is
    most important. The score is the largest ``H(v, S)``: the second largest importance.
    """
    names, own = np.unique(labels, return_inverse=True)
    if not 2 <= names.size <= max_clusters:
        raise ConfigError(
            f"HIS takes from 2 to {max_clusters} clusters; {names.size:,} were given. Use fewer, "
            "or raise max_clusters: each takes 16 bytes a node."
        )
    importance = np.zeros((adjacency.nodes, names.size))
    importance[np.arange(adjacency.nodes), own] = baselines.pagerank(adjacency)
    linked = np.flatnonzero(np.diff(adjacency.starts))
    smallest_growth = 1e-9 * importance.max()
    growth = np.inf
    while growth > smallest_growth:
        passed_on, before = _passed_on(importance), importance.copy()
        for cluster in range(names.size):
            offered = passed_on[adjacency.neighbours, cluster]
            best = np.maximum.reduceat(offered, adjacency.starts[linked])
            importance[linked, cluster] = np.maximum(importance[linked, cluster], best)
        growth = float((importance - before).max())
    return np.partition(importance, -2, axis=1)[:, -2]


def _passed_on(importance: Scores) -> Scores:
    """Importance that each node passes to its neighbours, by cluster."""
    second, first = np.partition(importance, -2, axis=1)[:, -2:].T
    other = np.repeat(first[:, None], importance.shape[1], axis=1)
    other[np.arange(len(other)), importance.argmax(axis=1)] = second
    return np.asarray(_OWN_SHARE * importance + _PAIR_SHARE * np.minimum(importance, other))


def ap_bicc(adjacency: Adjacency, count: int, *, candidates: int | None = None) -> Nodes:
    """Articulation points, then the most central nodes (AP_BICC of Rezvani et al., CIKM 2015).

    The articulation points come first, ordered by the number of pairs of nodes that each
    separates. If there are fewer than asked for, nodes with the smallest mean distance to all
    others follow. It is computed for some candidates only: those with the lowest bound, in which
    all nodes more than two steps away count as three; by default ten for each that is asked for. On
    Zachary's karate club the choice is that of the FI-GRL paper's table; on large graphs it depends
    on how candidates are taken.
    """
    separated = separated_pairs(adjacency)
    points = lowest(np.where(separated > 0, -separated, np.nan), int((separated > 0).sum()))
    missing = count - points.size
    if missing <= 0:
        return points[:count]
    nodes, edges = adjacency.nodes, unweighted(adjacency)
    bounds = _distance_bounds(edges)
    bounds[points] = np.nan
    tried = lowest(bounds, min(candidates or 10 * missing, nodes - points.size))
    # An unreachable node counts as farther than any path: a small component is not central.
    order = lowest(baselines.distance_sums(edges, tried, unreachable=nodes), missing)
    return np.concatenate([points, tried[order]])


def _distance_bounds(edges: Any) -> Scores:
    """Lower bound of the sum of distances from each node: 3 for all beyond two steps."""
    nodes = edges.shape[0]
    near = np.diff(edges.indptr)
    within_two = np.empty(nodes, np.int64)
    for start in range(0, nodes, SLICE_ROWS):
        one = edges[start : start + SLICE_ROWS]
        own = sp.eye_array(one.shape[0], nodes, k=start, format="csr")
        within_two[start : start + SLICE_ROWS] = np.diff((one @ edges + one + own).indptr)
    sums = near + 2 * (within_two - 1 - near) + 3 * (nodes - within_two)
    return np.asarray(sums, np.float64)


def separated_pairs(adjacency: Adjacency) -> Scores:
    """Pairs of other nodes that a node separates: 0 unless it is an articulation point.

    Tarjan's low points: without a node, a subtree of the depth-first search is cut off if no edge
    leads from it above the node.
    """
    nodes, edges = adjacency.nodes, unweighted(adjacency)
    _, component = scipy.sparse.csgraph.connected_components(edges, directed=False)
    _, first = np.unique(component, return_index=True)
    # One more node, linked to one node of each component, so that one search covers them all.
    link = sp.coo_array((np.ones(first.size), (np.zeros_like(first), first)), shape=(1, nodes))
    rooted = sp.csr_array(sp.block_array([[edges, link.T], [link, None]]))
    order, parent = scipy.sparse.csgraph.depth_first_order(rooted, nodes, directed=True)
    turn = np.empty(nodes + 1, np.int64)
    turn[order] = np.arange(nodes + 1)
    back = rooted.indices != np.repeat(parent, np.diff(rooted.indptr))
    targets = np.where(back, turn[rooted.indices], nodes + 1)
    low = np.minimum(turn, np.minimum.reduceat(targets, rooted.indptr[:-1])).tolist()
    size, cut_off, squares = [1] * (nodes + 1), [0] * (nodes + 1), [0] * (nodes + 1)
    turns, parents = turn.tolist(), parent.tolist()
    for node in order[:0:-1].tolist():
        above = parents[node]
        size[above] += size[node]
        low[above] = min(low[above], low[node])
        if low[node] >= turns[above]:
            cut_off[above] += size[node]
            squares[above] += size[node] ** 2
    others = np.bincount(component)[component] - 1.0
    rest = others - np.array(cut_off[:nodes], np.float64)
    return np.asarray((others**2 - np.array(squares[:nodes], np.float64) - rest**2) / 2)
