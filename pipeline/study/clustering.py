"""Clusters of vectors, and how well they agree with what is known."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from sklearn.metrics import normalized_mutual_info_score

Labels = npt.NDArray[np.int64]
Centers = npt.NDArray[np.floating[Any]]


def kmeans(
    vectors: da.Array, clusters: int, *, seed: int = 0
) -> tuple[Labels, npt.NDArray[np.floating[Any]]]:
    """Cluster lazy vectors out of core (``k-means||``).

    The vectors are scaled to a mean square of 1 for the time being: the number of rounds in which
    dask-ml chooses centres is the logarithm of the cost, and none for vectors that are small.

    Returns
    -------
    labels : int64 array, shape (rows,)
    centers : float array, shape (clusters, dim)
    """
    from dask_ml.cluster import KMeans

    model = KMeans(
        n_clusters=clusters,
        init="k-means||",
        init_max_iter=5,
        # dask-ml takes it for the number of points of a round, not for a multiple of the clusters.
        oversampling_factor=2 * clusters,
        random_state=seed,
        max_iter=20,
    )
    with warnings.catch_warnings():
        # Upstream: its meta computation divides empty blocks.
        warnings.simplefilter("ignore", RuntimeWarning)
        square = (vectors.astype(np.float64) ** 2).mean().compute()
        scale = 1.0 / np.sqrt(square)
        model.fit(vectors * np.float32(scale))
    labels = np.asarray(model.labels_.compute(), np.int64)
    return labels, model.cluster_centers_ / scale


def kmeans_in_memory(
    vectors: npt.NDArray[Any], clusters: int, *, seed: int = 0, starts: int = 1
) -> tuple[Labels, Centers]:
    """Cluster vectors that fit into memory: k-means++, 25 rounds, the best of some starts.

    Returns
    -------
    labels : int64 array, shape (rows,)
    centers : float array, shape (clusters, dim)
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(clusters, init="k-means++", n_init=starts, max_iter=25, random_state=seed)
    with warnings.catch_warnings():
        # Fewer distinct vectors than clusters is a result too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(vectors)
    return np.asarray(model.labels_, np.int64), np.asarray(model.cluster_centers_)


def nearest_center(vectors: npt.NDArray[np.float32], centers: Centers) -> Labels:
    """Cluster of each vector: the centre that lies nearest."""
    distances = (centers**2).sum(axis=1) - 2.0 * vectors @ centers.T
    return np.asarray(distances.argmin(axis=1), np.int64)


def agreement(labels: Labels, truth: Labels) -> float:
    """Normalised mutual information of two ways to split the same nodes: 0 to 1."""
    return float(normalized_mutual_info_score(truth, labels))
