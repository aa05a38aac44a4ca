"""Measures of vectors against values by hand, scikit-learn, networkx and brute force."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics import ndcg_score

from figrl.bench import tasks


def test_cosine_is_the_dot_product_of_unit_rows():
    vectors = np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    pairs = np.array([[0, 1], [1, 1], [0, 2]])
    cosine = tasks.pair_scores(tasks.comparable(vectors, "cosine"), pairs)
    assert cosine == pytest.approx([0.8, 1.0, 0.0])
    dot = tasks.pair_scores(tasks.comparable(vectors, "dot"), pairs)
    assert dot == pytest.approx([8.0, 4.0, 0.0])


def test_modularity_is_that_of_networkx():
    graph = nx.karate_club_graph()
    labels = np.arange(34) % 4
    found = tasks.edge_modularity(np.array(graph.edges), labels)
    parts = [set(np.flatnonzero(labels == label).tolist()) for label in range(4)]
    assert found == pytest.approx(nx.community.modularity(graph, parts, weight=None))


def test_clusters_are_found():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    labels = tasks.cluster_labels(vectors, 3, starts=2)
    assert [np.unique(labels[5 * i : 5 * i + 5]).size for i in range(3)] == [1, 1, 1]
    assert np.unique(labels).size == 3


def test_as_many_classes_as_a_node_has_are_predicted():
    scores = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [1.0, 2.0, 3.0]])
    marked = tasks.largest_scores(scores, np.array([2, 1, 0]))
    assert marked.tolist() == [[False, True, True], [True, False, False], [False] * 3]


def test_classes_that_the_vectors_tell_are_predicted():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 200)
    vectors = np.eye(3)[kind] + 0.01 * rng.standard_normal((200, 3))
    # A second class for some: it comes with the first, so that both can be told.
    classes = np.concatenate([np.eye(3)[kind], kind[:, None] == 1], axis=1) > 0
    assert tasks.classify(vectors, classes, seed=1) == (1.0, 1.0)
    micro, macro = tasks.classify(rng.standard_normal((200, 3)), classes, seed=1)
    assert 0.2 < micro < 0.7
    assert macro < 0.7


def test_a_class_without_examples_is_never_predicted_and_counts_for_macro():
    classes = np.zeros((8, 3), bool)
    classes[np.arange(8), np.arange(8) % 2] = True
    vectors = np.eye(2)[np.arange(8) % 2]
    micro, macro = tasks.classify(vectors, classes, seed=0)
    assert (micro, macro) == (1.0, pytest.approx(2 / 3))


def test_area_under_the_curve_counts_pairs():
    positive, negative = np.array([0.9, 0.5, 0.2]), np.array([0.5, 0.1])
    # Of six pairs four are right, and one is a tie.
    wins = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    assert tasks.area_under_curve(positive, negative) == pytest.approx(np.mean(wins))


def test_hits_are_ranks_among_candidates():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 4))
    pairs = rng.integers(0, 50, (600, 2))
    others = rng.integers(0, 50, (600, 20))
    expected = []
    for (first, second), row in zip(pairs, others, strict=True):
        own = vectors[first] @ vectors[second]
        rivals = np.array([vectors[first] @ vectors[other] for other in row if other != second])
        ties = (row == second).sum()
        expected.append(1 + (rivals > own).sum() + ties / 2 <= 5)
    assert tasks.hit_share(vectors, pairs, others, top=5) == pytest.approx(np.mean(expected))
    same = np.ones((50, 4))
    assert tasks.hit_share(same, pairs, others, top=10) == 0
    assert tasks.hit_share(same, pairs, others, top=11) == 1


def test_recommendations_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((300, 6)), rng.standard_normal((40, 6))
    seen = rng.random((300, 40)) < 0.2
    wanted = (rng.random((300, 40)) < 0.1) & ~seen
    wanted[7] = False
    recall, gain = tasks.recommend(
        users, items, scipy.sparse.csr_array(seen), scipy.sparse.csr_array(wanted)
    )
    asking = wanted.any(axis=1)
    scores = np.where(seen, -1e9, users @ items.T)
    best = np.argsort(-scores, axis=1)[:, :20]
    hits = np.take_along_axis(wanted, best, axis=1).sum(axis=1)
    assert recall == pytest.approx((hits[asking] / wanted[asking].sum(axis=1)).mean())
    assert gain == pytest.approx(ndcg_score(wanted[asking], scores[asking], k=20))


def test_one_recommendation_by_hand():
    # The best item is seen already; the wanted one is second of the others: log2(3).
    user, items = np.array([[1.0]]), np.array([[3.0], [2.0], [1.0]])
    seen, wanted = (scipy.sparse.csr_array([row]) for row in ([1, 0, 0], [0, 0, 1]))
    recall, gain = tasks.recommend(user, items, seen, wanted)
    assert (recall, gain) == (1.0, pytest.approx(1 / np.log2(3)))


def test_the_mean_of_parallel_vectors_has_length_one():
    assert tasks.mean_length(np.array([[2.0, 0.0], [5.0, 0.0]])) == pytest.approx(1)
    assert tasks.mean_length(np.array([[2.0, 0.0], [-5.0, 0.0]])) == pytest.approx(0)
