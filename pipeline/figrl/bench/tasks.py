"""What people do with vectors, measured: clusters, classes, links, recommendations.

Pure functions of arrays. Nodes are numbered from 0 on, and pairs of nodes are rows of two numbers.
Where two nodes are compared, the score of a pair is the dot product of rows that `comparable` has
prepared for the metric of a method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse

from figrl.analyze.kmeans import kmeans_in_memory

# scikit-learn takes a second and 100 MB to load, so it is imported where it is used.

Metric = Literal["cosine", "dot"]
Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_CHUNK_ROWS = 256


def comparable(vectors: Floats, metric: Metric) -> Floats:
    """Vectors whose dot products are the metric: of length 1 for the cosine; zeros stay zeros."""
    if metric == "dot":
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1))


def pair_scores(vectors: Floats, pairs: Integers) -> Floats:
    """Dot product of the two vectors of each pair."""
    parts = [_row_products(vectors, pairs[rows]) for rows in _chunks(len(pairs), 1 << 16)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _row_products(vectors: Floats, pairs: Integers) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", vectors[pairs[:, 0]], vectors[pairs[:, 1]]))


def _chunks(rows: int, step: int = _CHUNK_ROWS) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, rows, step))


def cluster_labels(vectors: Floats, clusters: int, starts: int) -> Integers:
    """k-means clusters of the vectors as they are: the best of some starts, seed 0."""
    return kmeans_in_memory(vectors, min(clusters, len(vectors)), starts=starts)[0]


def edge_modularity(pairs: Integers, labels: Integers) -> float:
    """Newman's modularity of a partition; each undirected edge is one pair."""
    ends = labels[pairs]
    volumes = np.bincount(ends.ravel()) / ends.size
    return float((ends[:, 0] == ends[:, 1]).mean() - (volumes**2).sum())


def classify(vectors: Floats, classes: Booleans, *, seed: int) -> tuple[float, float]:
    """Micro- and macro-F1 of one-vs-rest logistic regression, learnt on half of the nodes.

    `classes` has a row a node and a column a class. A test node is given as many classes as it
    has, those with the largest scores, as is usual where nodes have several.
    """
    from sklearn.metrics import f1_score

    order = np.random.default_rng(seed).permutation(len(classes))
    train, test = np.split(order, [len(order) // 2])
    scores = _class_scores(vectors[train], classes[train], vectors[test])
    guessed = largest_scores(scores, classes[test].sum(axis=1))
    micro, macro = (
        float(f1_score(classes[test], guessed, average=average, zero_division=0))
        for average in ("micro", "macro")
    )
    return micro, macro


def _class_scores(vectors: Floats, classes: Booleans, others: Floats) -> Floats:
    """Score of each class for other vectors; a class that the examples cannot tell is last."""
    from sklearn.linear_model import LogisticRegression

    scores = np.full((len(others), classes.shape[1]), -np.inf)
    for place in np.flatnonzero(classes.any(axis=0) & ~classes.all(axis=0)):
        model = LogisticRegression(solver="liblinear", random_state=0)
        scores[:, place] = model.fit(vectors, classes[:, place]).decision_function(others)
    return scores


def largest_scores(scores: Floats, counts: Integers) -> Booleans:
    """Mark the largest scores of each row, as many as `counts` says."""
    places = np.argsort(-scores, axis=1, kind="stable")
    marked = np.zeros(scores.shape, bool)
    np.put_along_axis(marked, places, np.arange(scores.shape[1]) < counts[:, None], axis=1)
    return marked


def area_under_curve(positive: Floats, negative: Floats) -> float:
    """Probability that a positive score is above a negative one; a tie counts half."""
    from sklearn.metrics import roc_auc_score

    truth = np.repeat([1, 0], [positive.size, negative.size])
    return float(roc_auc_score(truth, np.concatenate([positive, negative])))


def hit_share(vectors: Floats, pairs: Integers, others: Integers, *, top: int) -> float:
    """Share of pairs whose second node is among the `top` best partners of the first.

    It competes with the nodes in its row of `others`; one that scores the same counts half.
    """
    hits = 0
    for rows in _chunks(len(pairs)):
        own = pair_scores(vectors, pairs[rows])[:, None]
        rivals = np.einsum("ij,ikj->ik", vectors[pairs[rows, 0]], vectors[others[rows]])
        ranks = 1 + (rivals > own).sum(axis=1) + (rivals == own).sum(axis=1) / 2
        hits += int((ranks <= top).sum())
    return hits / len(pairs)


def recommend(
    users: Floats, items: Floats, seen: scipy.sparse.csr_array, wanted: scipy.sparse.csr_array
) -> tuple[float, float]:
    """Recall and NDCG of the 20 best items that a user has not seen, means over users.

    `seen` and `wanted` have a row a user and a column an item; users who want nothing are left
    out.
    """
    top = 20
    asking = np.flatnonzero(np.diff(wanted.indptr))
    discounts = 1 / np.log2(np.arange(2, top + 2))
    recall, gain = 0.0, 0.0
    for rows in _chunks(asking.size):
        scores = users[asking[rows]] @ items.T
        scores[seen[asking[rows]].toarray() > 0] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        sought = wanted[asking[rows]].toarray() > 0
        found = np.take_along_axis(sought, best, axis=1)
        numbers = sought.sum(axis=1)
        recall += float((found.sum(axis=1) / numbers).sum())
        ideal = np.cumsum(discounts)[np.minimum(numbers, top) - 1]
        gain += float((found @ discounts[: best.shape[1]] / ideal).sum())
    return recall / asking.size, gain / asking.size


def mean_length(vectors: Floats) -> float:
    """Length of the mean of the unit vectors: 1 if all are parallel, near 0 if spread evenly."""
    return float(np.linalg.norm(comparable(vectors, "cosine").mean(axis=0, dtype=np.float64)))
