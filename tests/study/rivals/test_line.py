"""LINE: its step against finite differences, and its vectors on a planted graph."""

from __future__ import annotations

import numpy as np
import pytest

from figrl.analyze.adjacency import Adjacency
from figrl.errors import ConfigError
from figrl.study.rivals.line import LineOptions, line_vectors, step, train_order
from tests.study.rivals.planted import TRUTH, planted_lists, separation

SMALL = LineOptions(dim=16, samples=150_000)


def loss(vectors: np.ndarray, contexts: np.ndarray, source: int, chosen: np.ndarray) -> float:
    signs = np.where(np.arange(chosen.size) == 0, 1.0, -1.0)
    return float(np.log1p(np.exp(-signs * (contexts[chosen] @ vectors[source]))).sum())


@pytest.mark.parametrize("order", [1, 2])
def test_a_step_follows_the_gradient(order):
    rng = np.random.default_rng(order)
    vectors = rng.normal(size=(7, 5)).astype(np.float32)
    contexts = vectors if order == 1 else rng.normal(size=(7, 5)).astype(np.float32)
    chosen, source, rate, width = np.array([3, 1, 5, 0]), 2, 0.01, 1e-5
    after, after_contexts = vectors.copy(), contexts.copy()
    after_contexts = after if order == 1 else after_contexts
    step(after, after_contexts, source, chosen, rate, np.empty(5, np.float32))

    def moved(at: int, place: int, *, context: bool, by: float) -> float:
        exact = vectors.astype(float), contexts.astype(float)
        shifted = exact[1] if context else exact[0]
        shifted[at, place] += by
        if order == 1:
            exact = (shifted, shifted)
        return loss(*exact, source, chosen)

    for context, before, now in ((False, vectors, after), (True, contexts, after_contexts)):
        for at, place in np.ndindex(before.shape):
            ends = [moved(at, place, context=context, by=by) for by in (width, -width)]
            slope = (ends[0] - ends[1]) / (2 * width)
            assert now[at, place] - before[at, place] == pytest.approx(-rate * slope, abs=2e-6)


def test_planted_communities_are_separated():
    vectors = line_vectors(planted_lists(), SMALL)
    assert vectors.shape == (TRUTH.size, 16)
    for half in (vectors[:, :8], vectors[:, 8:]):
        np.testing.assert_allclose(np.linalg.norm(half, axis=1), 1, atol=1e-5)
    assert separation(vectors) > 0.9
    assert separation(vectors[:, :8]) > 0.8
    assert separation(vectors[:, 8:]) > 0.8


def test_the_second_order_joins_nodes_that_share_neighbours():
    # A complete bipartite graph: two nodes of a side are not linked, but have the same neighbours.
    side = np.repeat([0, 1], 10)
    lists = [np.flatnonzero(side != side[node]) for node in range(20)]
    graph = Adjacency(np.arange(0, 201, 10), np.concatenate(lists).astype(np.int32), None)
    options = LineOptions(samples=200_000, seed=2)
    vectors = train_order(graph, options, order=2, dim=8)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    same = side[:, None] == side
    assert cosines[same].mean() > cosines[~same].mean() + 0.5


def test_the_same_seed_gives_the_same_bits():
    graph = planted_lists()
    options = LineOptions(dim=6, samples=5000, seed=9)
    first = line_vectors(graph, options)
    np.testing.assert_array_equal(first, line_vectors(graph, options))
    other = line_vectors(graph, LineOptions(dim=6, samples=5000, seed=10))
    assert not np.array_equal(first, other)


def test_a_node_without_edges_has_no_vector():
    graph = Adjacency(np.array([0, 1, 2, 2]), np.array([1, 0], np.int32), None)
    vectors = line_vectors(graph, LineOptions(dim=3, samples=100))
    assert vectors.shape == (3, 3)
    assert not vectors[2].any()
    with pytest.raises(ConfigError, match="dim is 1, at least 2"):
        line_vectors(graph, LineOptions(dim=1))
