"""Structural holes as spanners of communities: HAM and HIS, from their definitions."""

from __future__ import annotations

import warnings
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg

from pipeline.errors import ConfigError
from pipeline.study.adjacency import Adjacency
from pipeline.study.rivals import Nodes, Scores, least, pagerank

_DENSE_NODES = 1000
"""Nodes up to which all eigenvectors are computed: it takes a second, and is exact."""

_SMOOTHINGS = 30
_OWN_SHARE = 0.3
_PAIR_SHARE = 0.5 - 0.5**2


def ham(adjacency: Adjacency, count: int, *, clusters: int, seed: int = 0) -> Nodes:
    """Nodes of the lowest `ham_scores`, the lowest first."""
    return least(ham_scores(adjacency, clusters, seed=seed), count)


def ham_scores(
    adjacency: Adjacency,
    clusters: int,
    *,
    rounds: int = 50,
    steps: int = 20,
    smoothing: float = 1e-4,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Scores:
    """How much a node is part of any cluster, by harmonic modularity (He et al., KDD 2016).

    An indicator ``F``, with a row for each node and a column for each cluster, is harmonic where
    a row is the mean of its neighbours' rows: ``L F = 0`` with ``L = I - D^-1 A``. HAM lets few
    nodes, those between clusters, be otherwise: it minimises ``||L F||_{2,1}``, the sum of the
    lengths of the rows, subject to ``F^T F = I``. In turn, ``Q_ii = 1 / (2 ||(L F)_i|| + eps)``
    and ``F`` is made of the eigenvectors of ``L^T Q L`` to the smallest eigenvalues. The score is
    the length of a node's row of ``F``: structural holes, which are between clusters, have the
    shortest. Nodes without edges have nan. The graph should be connected: parts that are not take
    the place of clusters.

    Parameters
    ----------
    adjacency : Adjacency
    clusters : int
    rounds, tolerance : int, float
        At most so many turns; fewer, once one changes the sum of lengths by less in proportion.
    steps : int
        Steps of the iterative eigensolver (LOBPCG) in each turn, from where the turn before
        ended. Graphs of up to 1,000 nodes are solved exactly.
    smoothing : float
        ``eps``, in units of the mean square length of a row of ``F``.
    """
    nodes = adjacency.nodes
    if not 2 <= clusters <= nodes // 5:
        raise ConfigError(
            f"HAM takes from 2 clusters up to a fifth of the nodes, {nodes // 5:,} here; "
            f"{clusters} were asked for."
        )
    degrees = adjacency.degrees
    per_degree = sp.diags_array(1 / np.where(degrees > 0, degrees, 1))
    walk = sp.csr_array(per_degree @ adjacency.matrix())
    L = sp.csr_array(sp.eye_array(nodes) - walk)
    F = np.linalg.qr(np.random.default_rng(seed).standard_normal((nodes, clusters)))[0]
    if nodes > _DENSE_NODES:
        F = _smoothed(walk, F, degrees > 0)
    before = np.inf
    for _ in range(rounds):
        lengths = np.linalg.norm(L @ F, axis=1)
        total = float(lengths.sum())
        if abs(before - total) <= tolerance * total:
            break
        before = total
        Q = 0.5 / (lengths + smoothing * np.sqrt(clusters / nodes))
        F = _smallest_eigenvectors(L, Q, F, steps)
    return np.where(degrees > 0, np.linalg.norm(F, axis=1), np.nan)


def _smoothed(walk: Any, vectors: Any, linked: Any) -> Any:
    """A start for the iterative solver: the constant vector, which is harmonic, and smooth ones."""
    vectors[:, 0] = linked
    for _ in range(_SMOOTHINGS):
        vectors[:, 1:] = np.linalg.qr(0.5 * (vectors + walk @ vectors))[0][:, 1:]
    return np.linalg.qr(vectors)[0]


def _smallest_eigenvectors(laplacian: Any, row_weights: Scores, start: Any, steps: int) -> Any:
    """Eigenvectors of ``L^T Q L`` to its smallest eigenvalues, as many as `start` has columns."""
    nodes, columns = start.shape
    R = laplacian.T @ sp.diags_array(row_weights) @ laplacian
    if nodes <= _DENSE_NODES:
        return scipy.linalg.eigh(R.toarray(), subset_by_index=[0, columns - 1])[1]
    inverse_diagonal = sp.diags_array(1 / R.diagonal())
    with warnings.catch_warnings():
        # It is stopped before it is exact: the next turn goes on, with other weights.
        warnings.simplefilter("ignore", UserWarning)
        _, found = scipy.sparse.linalg.lobpcg(
            R, start, M=inverse_diagonal, tol=1e-9, maxiter=steps, largest=False
        )
    return found


def his(
    adjacency: Adjacency, count: int, *, labels: npt.NDArray[Any], most_clusters: int = 64
) -> Nodes:
    """Nodes of the highest `his_scores`, the highest first."""
    return least(-his_scores(adjacency, labels, most_clusters=most_clusters), count)


def his_scores(
    adjacency: Adjacency,
    labels: npt.NDArray[Any],
    *,
    most_clusters: int = 64,
    tolerance: float = 1e-9,
) -> Scores:
    """How important a node is in two clusters at once (HIS of Lou and Tang, WWW 2013).

    The importance ``I(v, C)`` of a node in a cluster begins as its PageRank, or 0 outside of its
    own. It grows to ``0.3 I(u, C) + b H(u, S)`` of a neighbour ``u`` and a set ``S`` of clusters
    with ``C`` in it, where ``H(u, S)`` is the least importance of ``u`` in them and
    ``b = 0.5 - 0.5^|S|``, until nothing changes. Here ``S`` is any pair of clusters, and no larger
    set: then ``b`` is 0.25, and the best pair is ``C`` with the other cluster in which ``u`` is
    most important. The score is the largest ``H(v, S)``: the second largest importance.

    Parameters
    ----------
    adjacency : Adjacency
    labels : int array, shape (nodes,)
    most_clusters : int
        More are refused: two numbers are kept for each node and each cluster.
    tolerance : float
        Growth at which it ends, in proportion to the largest importance.
    """
    names, own = np.unique(labels, return_inverse=True)
    if not 2 <= names.size <= most_clusters:
        raise ConfigError(
            f"HIS takes from 2 to {most_clusters} clusters; {names.size:,} were given. Use fewer, "
            "or raise most_clusters: each takes 16 bytes a node."
        )
    importance = np.zeros((adjacency.nodes, names.size))
    importance[np.arange(adjacency.nodes), own] = pagerank(adjacency)
    least_growth = tolerance * importance.max()
    passed_on = np.empty_like(importance)
    growth = np.inf
    while growth > least_growth:
        growth = _pass_on(adjacency.starts, adjacency.neighbours, importance, passed_on)
    return np.partition(importance, -2, axis=1)[:, -2]


@numba.njit(nogil=True, cache=True)
def _pass_on(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    importance: npt.NDArray[np.float64],
    passed_on: npt.NDArray[np.float64],
) -> float:
    """Let each node take what its neighbours pass on, if it is more; return the largest growth."""
    nodes, clusters = importance.shape
    for node in range(nodes):
        best, first, second = 0, -1.0, -1.0
        for c in range(clusters):
            if importance[node, c] > first:
                best, first, second = c, importance[node, c], first
            else:
                second = max(second, importance[node, c])
        for c in range(clusters):
            paired = min(importance[node, c], second if c == best else first)
            passed_on[node, c] = _OWN_SHARE * importance[node, c] + _PAIR_SHARE * paired
    growth = 0.0
    for node in range(nodes):
        for entry in range(starts[node], starts[node + 1]):
            for c in range(clusters):
                more = passed_on[neighbours[entry], c] - importance[node, c]
                if more > 0.0:
                    importance[node, c] += more
                    growth = max(growth, more)
    return growth
