"""Draws against the distributions that they are drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from figrl.analyze.adjacency import Adjacency
from figrl.errors import ConfigError
from figrl.study.rivals.sampling import (
    alias_table,
    draw_many,
    draw_neighbours,
    draw_walk_pairs,
    negative_table,
    seed_key,
)
from tests.study.rivals.planted import planted_lists


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda found: sum(found) > 1e-3))
def test_a_table_holds_exactly_its_distribution(values):
    weights = np.array(values)
    table = alias_table(weights)
    held = table.keep.copy()
    np.add.at(held, table.alias, 1 - table.keep)
    np.testing.assert_allclose(held / weights.size, weights / weights.sum(), atol=1e-12)


def test_draws_follow_the_table():
    weights = np.array([0.0, 1.0, 2.0, 3.0, 14.0])
    counts = np.bincount(draw_many(alias_table(weights), 100_000, seed_key(3, 1)), minlength=5)
    assert counts[0] == 0
    assert chisquare(counts[1:], 5000 * weights[1:]).pvalue > 0.001


def test_negatives_are_drawn_by_a_power_of_the_degree():
    degrees = np.array([16.0, 0.0, 1.0])
    table = negative_table(degrees)
    counts = np.bincount(draw_many(table, 90_000, seed_key(0, 0)), minlength=3)
    assert counts[1] == 0
    assert counts[0] / counts[2] == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [np.inf, 1.0]])
def test_what_is_no_distribution_is_refused(weights):
    with pytest.raises(ConfigError, match="not negative, and not all 0"):
        alias_table(np.array(weights))


def test_neighbours_are_drawn_uniformly():
    graph = planted_lists()
    node = 7
    own = graph.neighbours[graph.starts[node] : graph.starts[node + 1]]
    lists = graph.starts, graph.neighbours
    found = draw_neighbours(*lists, np.array([node, 8]), 20_000, seed_key(1, 1))
    places, counts = np.unique(found[0], return_counts=True)
    np.testing.assert_array_equal(places, own)
    assert chisquare(counts).pvalue > 0.001


def test_pairs_have_the_distribution_of_walks():
    graph = planted_lists()
    pairs = draw_walk_pairs(graph.starts, graph.neighbours, 200_000, 3, seed_key(5, 0))
    walk = graph.matrix().toarray() / graph.degrees[:, None]
    exact = sum(np.linalg.matrix_power(walk, steps) for steps in (1, 2, 3)) / 3
    np.fill_diagonal(exact, 0)
    counts = np.zeros_like(exact)
    np.add.at(counts, tuple(pairs.T), 1)
    # A pair of a node with itself is left after eight draws: hardly ever.
    assert np.trace(counts) < 10
    assert (counts[exact == 0].sum() - np.trace(counts)) == 0
    by_node = exact.sum(axis=0) / exact.sum()
    assert chisquare(counts.sum(axis=0), by_node * len(pairs)).pvalue > 0.001


def test_a_node_without_neighbours_stays_where_it_is():
    graph = Adjacency(np.array([0, 0, 1, 2]), np.array([2, 1], np.int32), None)
    found = draw_neighbours(graph.starts, graph.neighbours, np.array([0, 1]), 3, seed_key(0, 0))
    assert found.tolist() == [[0, 0, 0], [2, 2, 2]]
