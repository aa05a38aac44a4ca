"""Held-out edges, random pairs, and the double of a directed graph."""

from __future__ import annotations

import numpy as np

from figrl.bench import split


def random_pairs(nodes: int, edges: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, nodes, (edges, 2))


def test_edges_are_undirected_without_loops():
    found = split.undirected(np.array([[3, 1], [1, 3], [2, 2], [0, 3]]))
    assert found.tolist() == [[0, 3], [1, 3]]


def test_nodes_are_numbered_in_the_order_of_their_ids():
    pairs, ids = split.numbered(np.array([[70, 5], [5, 9]]))
    assert pairs.tolist() == [[2, 0], [0, 1]]
    assert ids.tolist() == [5, 9, 70]


def test_no_node_disappears_where_edges_are_held_out():
    pairs, _ = split.numbered(split.undirected(random_pairs(200, 500)))
    learnt, held = split.hold_out(pairs, 0.2, np.random.default_rng(1))
    assert np.unique(learnt).tolist() == np.unique(pairs).tolist()
    assert len(held) == round(0.2 * len(pairs))
    both = np.concatenate([learnt, held])
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, pairs.tolist()))
    # A star has no edge to spare.
    star = np.stack([np.zeros(5, np.int64), np.arange(1, 6)], axis=1)
    assert len(split.hold_out(star, 0.2, np.random.default_rng(0))[1]) == 0


def test_random_partners_are_not_linked():
    pairs = split.undirected(random_pairs(20, 120))
    links = split.both_ways(pairs)
    sources = np.repeat(np.arange(20)[:, None], 30, axis=1)
    drawn = split.draw_unlinked(sources, np.arange(20), links, np.random.default_rng(0))
    linked = set(map(tuple, links.tolist()))
    found = set(zip(sources.ravel().tolist(), drawn.ravel().tolist(), strict=True))
    assert not found & linked
    assert all(first != second for first, second in found)
    assert len(found) > 100


def test_the_double_has_a_node_for_each_kind_of_end():
    pairs, sources, targets = split.bipartite_double(np.array([[7, 7], [2, 7], [7, 4]]))
    assert (sources.tolist(), targets.tolist()) == ([2, 7], [4, 7])
    assert pairs.tolist() == [[1, 3], [0, 3], [1, 2]]
