"""k-means, in memory and out of core, and Ward's agglomerative method, on vectors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from figrl.analyze.deviation import cluster_means

# scikit-learn takes a second and 100 MB to load, so it is imported where it is used.

Labels = npt.NDArray[np.int64]
Centers = npt.NDArray[np.floating[Any]]

LARGEST_WARD = 25_000
"""Rows up to which Ward's method is applied to the vectors themselves.

It holds all distances: 8 bytes times the square of the rows, 0.8 GB and 8 s for 10,000 rows.
scikit-learn calls the same SciPy code and takes as long."""

CENTERS_PER_CLUSTER = 10
FEWEST_CENTERS, MOST_CENTERS = 1_000, 4_000
CANDIDATES_PER_CLUSTER = 10
"""Candidates of ``k-means||``: two per cluster in each of five rounds."""

MOST_DISTANCES, SAMPLE_PER_CLUSTER = 200_000_000, 50
"""Rows times clusters above which k-means in memory is initialised from a sample of the rows."""

_ROW_BYTES = 128
"""Memory of k-means per row, besides its vector and a copy of it."""


@dataclass(frozen=True)
class Clustering:
    """A clustering of vectors.

    `centers`: means of the clusters, or the k-means centres that Ward's method joined. `groups`:
    cluster of each centre. `by`: name of the method. `note`: approximation that the user should
    know of.
    """

    labels: Labels
    centers: Centers
    groups: Labels
    by: str
    note: str | None = None


def kmeans(vectors: da.Array, clusters: int, *, seed: int = 0) -> tuple[da.Array, Centers]:
    """Cluster lazy vectors out of core, initialised by ``k-means||``.

    The vectors are scaled to a mean square of 1: dask-ml initialises in as many rounds as the
    logarithm of the cost, which are none for small vectors.
    """
    from dask_ml.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(
        n_clusters=clusters,
        init="k-means||",
        init_max_iter=CANDIDATES_PER_CLUSTER // 2,
        # dask-ml takes it as the number of points per round, not as a multiple of the clusters.
        oversampling_factor=2 * clusters,
        random_state=seed,
        max_iter=20,
    )
    with warnings.catch_warnings():
        # dask-ml divides by zero when it infers the type of its result from empty blocks.
        warnings.simplefilter("ignore", RuntimeWarning)
        # Fewer distinct vectors than clusters is a valid result.
        warnings.simplefilter("ignore", ConvergenceWarning)
        square = float((vectors.astype(np.float64) ** 2).mean().compute())
        scale = 1.0 / np.sqrt(square) if square > 0 else 1.0
        model.fit(vectors * np.float32(scale))
    return model.labels_, np.asarray(model.cluster_centers_ / scale)


def kmeans_in_memory(
    vectors: npt.NDArray[Any], clusters: int, *, seed: int = 0, starts: int = 1
) -> tuple[Labels, Centers]:
    """Cluster vectors in memory: k-means++, 25 iterations, the best of several starts.

    A single start with very many rows and clusters is initialised from a sample of the rows.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    sampled = len(vectors) * clusters > MOST_DISTANCES and starts == 1
    start = _centers_of_sample(vectors, clusters, seed) if sampled else "k-means++"
    model = KMeans(clusters, init=start, n_init=starts, max_iter=25, random_state=seed)
    # The products of k-means++ are too small for threads of BLAS.
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        # Fewer distinct vectors than clusters is a valid result.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(vectors)
    return np.asarray(model.labels_, np.int64), np.asarray(model.cluster_centers_)


def kmeans_bytes(rows: int, dim: int, clusters: int) -> int:
    """Memory of `kmeans_in_memory`, besides the library."""
    # The vectors and a copy of them; the sample; some copies of the centres.
    sample = min(SAMPLE_PER_CLUSTER * clusters, rows)
    return rows * (8 * dim + _ROW_BYTES) + sample * (16 * dim + _ROW_BYTES) + 48 * clusters * dim


def _centers_of_sample(vectors: npt.NDArray[Any], clusters: int, seed: int) -> Centers:
    """Centres that k-means++ chooses from a sample of the rows.

    k-means++ computes the distance of all rows to every centre, and scikit-learn copies the rows to
    double precision each time: 1,000 centres took six minutes from 317,080 rows, and eleven seconds
    from 50,000 of them, for clusters of the same quality.
    """
    from sklearn.cluster import kmeans_plusplus

    count = min(SAMPLE_PER_CLUSTER * clusters, len(vectors))
    rows = np.random.default_rng(seed).choice(len(vectors), count, replace=False)
    sample = vectors[np.sort(rows)].astype(np.float64)
    with threadpool_limits(limits=1, user_api="blas"):
        centers, _ = kmeans_plusplus(sample, clusters, random_state=seed)
    return np.asarray(centers, vectors.dtype)


def agglomerative(
    vectors: npt.NDArray[Any], clusters: int, *, largest: int = LARGEST_WARD, seed: int = 0
) -> Clustering:
    """Cluster vectors by Ward's method, which joins the two clusters that add least variance.

    `clusters`: equal vectors stay together, so the result may have fewer. `largest`: with more rows
    than this, the centres of a finer k-means are joined instead, with equal weight, and a vector
    gets the cluster of its centre. `seed`: seed of that k-means; Ward's method itself is
    deterministic.
    """
    rows = len(vectors)
    if rows <= largest:
        labels = ward(vectors, clusters)
        means = cluster_means(vectors, labels)
        return Clustering(labels, means, np.arange(len(means)), "Ward")
    fine, centers = kmeans_in_memory(vectors, fine_centers(clusters, largest), seed=seed)
    groups = ward(centers, clusters)
    note = joined_note(rows, len(centers))
    return Clustering(groups[fine], centers, groups, "Ward on k-means centres", note)


def fine_centers(clusters: int, largest: int) -> int:
    """Number of k-means centres for Ward's method where there are too many vectors."""
    # The time of k-means is proportional to the centres: for many clusters, two each are enough.
    wanted = max(min(CENTERS_PER_CLUSTER * clusters, MOST_CENTERS), 2 * clusters, FEWEST_CENTERS)
    return max(min(wanted, largest), clusters)


def joined_note(rows: int, centers: int) -> str:
    """Note that Ward's method was not applied to the vectors themselves."""
    return (
        f"Ward's method would hold the distances of all pairs of {rows:,} vectors. It was applied "
        f"to {centers:,} centres of a k-means instead, and each node got the cluster of its centre."
    )


def ward(vectors: npt.NDArray[Any], clusters: int) -> Labels:
    """Labels of Ward's method, numbered by the first row of each cluster.

    The tree is cut at exactly `clusters`, whatever ties there are, except that equal vectors, which
    are joined first, are never separated.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = len(vectors)
    if rows < 2:
        return np.zeros(rows, np.int64)
    tree = linkage(np.asarray(vectors, np.float64), "ward")
    joins = max(rows - clusters, int((tree[:, 2] == 0).sum()))
    total = rows + joins
    made, joined = np.repeat(np.arange(rows, total), 2), tree[:joins, :2].astype(np.int64).ravel()
    forest = coo_array((np.ones(made.size, np.int8), (made, joined)), shape=(total, total))
    found = np.asarray(connected_components(forest, directed=False)[1], np.int64)
    # Rows come before joins, so the first node of each component is a row.
    _, first, labels = np.unique(found[:rows], return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[labels], np.int64)


def nearest_center(vectors: npt.NDArray[np.float32], centers: Centers) -> Labels:
    """Index of the nearest centre of each vector."""
    distances = (centers**2).sum(axis=1) - 2.0 * vectors @ centers.T
    return np.asarray(distances.argmin(axis=1), np.int64)
