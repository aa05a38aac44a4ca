"""Clusters of vectors, and how well they agree with what is known."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

# scikit-learn takes a second and 100 MB to load: it is imported where it is used.

Labels = npt.NDArray[np.int64]
Centers = npt.NDArray[np.floating[Any]]

LARGEST_WARD = 25_000
"""Rows up to which Ward's method is applied to the vectors themselves.

It holds all distances: 8 bytes times the square of the rows, 0.8 GB and 8 s for 10,000.
scikit-learn calls the same code of SciPy, and takes as long."""

CENTERS_PER_CLUSTER = 10
FEWEST_CENTERS, MOST_CENTERS = 1_000, 4_000
CANDIDATES_PER_CLUSTER = 10
"""Rows that ``k-means||`` chooses its centres from: two for a cluster in each of five rounds."""

MOST_LOOKS, SAMPLE_PER_CLUSTER = 200_000_000, 50
"""Rows times clusters above which k-means in memory begins with centres of a sample."""


@dataclass(frozen=True)
class Clustering:
    """Vectors, clustered.

    Attributes
    ----------
    labels : int64 array, shape (rows,)
    centers : float array, shape (centres, dim)
        What a vector can be compared with: the means of the clusters, or the k-means centres that
        Ward's method joined.
    groups : int64 array, shape (centres,)
        Cluster of each centre.
    by : str
        The method, in words.
    note : str or None
        What a person should know of the way it was done.
    """

    labels: Labels
    centers: Centers
    groups: Labels
    by: str
    note: str | None = None


def kmeans(
    vectors: da.Array, clusters: int, *, seed: int = 0
) -> tuple[Labels, npt.NDArray[np.floating[Any]]]:
    """Cluster lazy vectors out of core (``k-means||``).

    Returns
    -------
    labels : int64 array, shape (rows,)
    centers : float array, shape (clusters, dim)
    """
    model, scale = _fitted(vectors, clusters, seed)
    labels = np.asarray(model.labels_.compute(), np.int64)
    return labels, model.cluster_centers_ / scale


def kmeans_centers(vectors: da.Array, clusters: int, *, seed: int = 0) -> Centers:
    """Centres of `kmeans`, without the labels, which would have to fit into memory.

    Returns
    -------
    float array, shape (clusters, dim)
    """
    model, scale = _fitted(vectors, clusters, seed)
    return np.asarray(model.cluster_centers_ / scale)


def _fitted(vectors: da.Array, clusters: int, seed: int) -> tuple[Any, float]:
    """Fit dask-ml's model to vectors scaled to a mean square of 1; give it and the scale.

    The number of rounds in which dask-ml chooses centres is the logarithm of the cost, and none
    for vectors that are small.
    """
    from dask_ml.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(
        n_clusters=clusters,
        init="k-means||",
        init_max_iter=CANDIDATES_PER_CLUSTER // 2,
        # dask-ml takes it for the number of points of a round, not for a multiple of the clusters.
        oversampling_factor=2 * clusters,
        random_state=seed,
        max_iter=20,
    )
    with warnings.catch_warnings():
        # Upstream: its meta computation divides empty blocks.
        warnings.simplefilter("ignore", RuntimeWarning)
        # Fewer distinct vectors than clusters is a result too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        square = float((vectors.astype(np.float64) ** 2).mean().compute())
        scale = 1.0 / np.sqrt(square) if square > 0 else 1.0
        model.fit(vectors * np.float32(scale))
    return model, scale


def kmeans_in_memory(
    vectors: npt.NDArray[Any], clusters: int, *, seed: int = 0, starts: int = 1
) -> tuple[Labels, Centers]:
    """Cluster vectors that fit into memory: k-means++, 25 rounds, the best of some starts.

    A single start of very many rows and clusters takes its first centres from a sample.

    Returns
    -------
    labels : int64 array, shape (rows,)
    centers : float array, shape (clusters, dim)
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    sampled = len(vectors) * clusters > MOST_LOOKS and starts == 1
    start = _sampled_start(vectors, clusters, seed) if sampled else "k-means++"
    model = KMeans(clusters, init=start, n_init=starts, max_iter=25, random_state=seed)
    # The products of k-means++ are small: threads of BLAS would mostly wait for each other.
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        # Fewer distinct vectors than clusters is a result too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(vectors)
    return np.asarray(model.labels_, np.int64), np.asarray(model.cluster_centers_)


def _sampled_start(vectors: npt.NDArray[Any], clusters: int, seed: int) -> Centers:
    """Centres that k-means++ chooses of a sample of the rows.

    It looks at all rows once for every centre, and scikit-learn makes a copy of them in double
    precision each time: of 317,080 rows, 1,000 centres took six minutes, and of 50,000 of them
    eleven seconds, for clusters as good.
    """
    from sklearn.cluster import kmeans_plusplus

    rng = np.random.default_rng(seed)
    count = min(SAMPLE_PER_CLUSTER * clusters, len(vectors))
    rows = np.sort(rng.choice(len(vectors), count, replace=False))
    sample = vectors[rows].astype(np.float64)
    with threadpool_limits(limits=1, user_api="blas"):
        centers, _ = kmeans_plusplus(sample, clusters, random_state=seed)
    return np.asarray(centers, vectors.dtype)


def agglomerative(
    vectors: npt.NDArray[Any], clusters: int, *, largest: int = LARGEST_WARD, seed: int = 0
) -> Clustering:
    """Cluster vectors by Ward's method, which joins the two clusters that lose least by it.

    Parameters
    ----------
    vectors : float array, shape (rows, dim)
    clusters : int
        Equal vectors stay together, so there are fewer where fewer vectors are distinct.
    largest : int
        With more rows than this, the centres of a k-means with more clusters are joined instead,
        each counted once, and a vector gets the cluster of its centre.
    seed : int
        Of that k-means; Ward's method itself leaves nothing to chance.
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
    """Centres that Ward's method is given where the vectors are too many."""
    # k-means takes as long as it has centres: of many clusters, twice as many have to do.
    wanted = max(min(CENTERS_PER_CLUSTER * clusters, MOST_CENTERS), 2 * clusters, FEWEST_CENTERS)
    return max(min(wanted, largest), clusters)


def joined_note(rows: int, centers: int) -> str:
    """Say that Ward's method was not applied to the vectors themselves."""
    return (
        f"Ward's method would hold the distances of all pairs of {rows:,} vectors. It was applied "
        f"to {centers:,} centres of a k-means instead, and each node got the cluster of its centre."
    )


def ward(vectors: npt.NDArray[Any], clusters: int) -> Labels:
    """Labels of Ward's method, numbered in the order in which clusters are met.

    The tree is cut at exactly `clusters`, whatever ties there are; equal vectors, which it joins
    first, are never parted.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = len(vectors)
    if rows < 2:
        return np.zeros(rows, np.int64)
    tree = linkage(np.asarray(vectors, np.float64), "ward")
    joins = max(rows - clusters, int((tree[:, 2] == 0).sum()))
    made = np.repeat(np.arange(rows, rows + joins), 2)
    joined = tree[:joins, :2].astype(np.int64).reshape(-1)
    total = rows + joins
    forest = coo_array((np.ones(made.size, np.int8), (made, joined)), shape=(total, total))
    found = np.asarray(connected_components(forest, directed=False)[1], np.int64)
    # Numbers follow from the first row of each cluster, and those come before the joins.
    _, first, labels = np.unique(found[:rows], return_index=True, return_inverse=True)
    order = np.empty(first.size, np.int64)
    order[np.argsort(first)] = np.arange(first.size)
    return np.asarray(order[labels], np.int64)


def cluster_means(vectors: npt.NDArray[Any], labels: Labels) -> npt.NDArray[np.float64]:
    """Mean of the vectors of each cluster; no cluster is empty."""
    from scipy.sparse import csr_array

    rows = len(labels)
    member = csr_array((np.ones(rows), labels, np.arange(rows + 1)))
    sums = member.T @ np.asarray(vectors, np.float64)
    return np.asarray(sums / np.bincount(labels)[:, None])


def nearest_center(vectors: npt.NDArray[np.float32], centers: Centers) -> Labels:
    """Cluster of each vector: the centre that lies nearest."""
    distances = (centers**2).sum(axis=1) - 2.0 * vectors @ centers.T
    return np.asarray(distances.argmin(axis=1), np.int64)


def agreement(labels: Labels, truth: Labels) -> float:
    """Normalised mutual information of two ways to split the same nodes: 0 to 1."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(truth, labels))
