"""Ways to choose structural holes: against networkx, against dense algebra, and on known graphs."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import figrl.study.baselines_holes
from figrl.analyze.adjacency import Adjacency
from figrl.errors import ConfigError
from figrl.study.baselines import (
    betweenness,
    constraint,
    lowest,
    pagerank,
)
from figrl.study.baselines_holes import ap_bicc, ham_scores, his_scores, separated_pairs
from tests.analyze.lists import adjacency_of


def random_graph(seed: int, *, weighted: bool) -> nx.Graph:
    """Sixty nodes in parts that are not connected, some without any edge."""
    rng = np.random.default_rng(seed)
    graph = nx.Graph()
    graph.add_nodes_from(range(60))
    for a, b in [*rng.integers(0, 50, (90, 2)).tolist(), [52, 53], [53, 54], [55, 56]]:
        if a != b:
            # Quarters are the same in the 32 bits that are stored.
            graph.add_edge(a, b, weight=rng.integers(1, 12) / 4 if weighted else 1)
    return graph


def lists_of(graph: nx.Graph, *, weight: str | None = "weight") -> Adjacency:
    nodes = sorted(graph)
    return adjacency_of(nx.to_scipy_sparse_array(graph, nodes, weight=weight, dtype=float))


def by_node(scores: dict[int, float]) -> np.ndarray:
    return np.array([scores[node] for node in sorted(scores)])


KARATE = nx.karate_club_graph()
CLUB = lists_of(KARATE, weight=None)
FACTIONS = np.array([KARATE.nodes[node]["club"] == "Officer" for node in sorted(KARATE)])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_networkx(seed, weighted):
    graph = random_graph(seed, weighted=weighted)
    lists = lists_of(graph)
    assert (lists.weights is None) != weighted
    expected = by_node(slow_constraint(graph))
    np.testing.assert_allclose(constraint(lists), expected, rtol=1e-12)
    expected = by_node(nx.pagerank(graph, tol=1e-14, max_iter=1000))
    np.testing.assert_allclose(pagerank(lists, tolerance=1e-13), expected, rtol=1e-9)
    expected = by_node(nx.pagerank(graph, alpha=0.5, tol=1e-14, max_iter=1000))
    np.testing.assert_allclose(pagerank(lists, damping=0.5), expected, rtol=1e-8)
    expected = by_node(nx.betweenness_centrality(graph, normalized=False))
    np.testing.assert_allclose(betweenness(lists), expected, rtol=1e-12, atol=1e-12)


def slow_constraint(graph: nx.Graph) -> dict[int, float]:
    """networkx's way node by node: its way for all nodes divides by the degree of lone ones."""
    return nx.constraint(graph, nodes=list(graph), weight="weight")


def test_constraint_of_a_lone_node_is_nan_and_never_chosen():
    lists = lists_of(nx.Graph([(0, 1), (1, 2), (3, 3)]))
    found = constraint(lists)
    np.testing.assert_allclose(found[:3], [1, 0.5, 1])
    assert np.isnan(found[3])
    np.testing.assert_array_equal(lowest(constraint(lists), 3), [1, 0, 2])
    with pytest.raises(ConfigError, match="there are 3 that have a score"):
        lowest(constraint(lists), 4)


def test_sampled_betweenness_is_scaled_seeded_and_near():
    graph = nx.barabasi_albert_graph(400, 3, seed=1)
    lists = lists_of(graph)
    exact = betweenness(lists)
    sampled = betweenness(lists, samples=200, seed=3)
    np.testing.assert_array_equal(sampled, betweenness(lists, samples=200, seed=3))
    assert not np.array_equal(sampled, betweenness(lists, samples=200, seed=4))
    assert sampled.sum() == pytest.approx(exact.sum(), rel=0.05)
    top = exact.argsort()[-5:]
    np.testing.assert_allclose(sampled[top], exact[top], rtol=0.25)
    np.testing.assert_array_equal(betweenness(lists, samples=400), exact)


def test_pagerank_that_does_not_converge_says_so():
    with pytest.raises(ConfigError, match="did not converge"):
        pagerank(CLUB, max_steps=2)


def test_the_choices_on_karate_are_those_of_the_paper():
    """Table of the paper's section on structural holes; its ids begin with 1."""
    np.testing.assert_array_equal(lowest(constraint(CLUB), 3) + 1, [1, 34, 3])
    np.testing.assert_array_equal(lowest(-pagerank(CLUB), 3) + 1, [34, 1, 33])
    np.testing.assert_array_equal(lowest(-betweenness(CLUB), 3) + 1, [1, 34, 33])
    np.testing.assert_array_equal(lowest(ham_scores(CLUB, 2), 3) + 1, [3, 20, 9])
    np.testing.assert_array_equal(ap_bicc(CLUB, 3) + 1, [1, 3, 34])
    # Four are equal; the paper has three of them.
    assert set(lowest(-his_scores(CLUB, FACTIONS), 4) + 1) == {9, 14, 20, 32}
    assert np.ptp(his_scores(CLUB, FACTIONS)[[8, 13, 19, 31]]) < 1e-15


def cliques_and_a_bridge(size: int) -> Adjacency:
    """Two cliques and one node, the last, with an edge into each."""
    graph = nx.disjoint_union(nx.complete_graph(size), nx.complete_graph(size))
    graph.add_edges_from([(0, 2 * size), (size, 2 * size)])
    return lists_of(graph)


def test_all_that_look_for_bridges_find_the_bridge():
    lists = cliques_and_a_bridge(8)
    labels = np.repeat([3, 9, 3], [8, 8, 1])
    assert lowest(ham_scores(lists, 2), 1)[0] == 16
    assert set(ap_bicc(lists, 3)) == {0, 8, 16}
    assert ap_bicc(lists, 1)[0] == 16
    # It is in one of the clusters: most important in both are its ends.
    assert {0, 8, 16} >= set(lowest(-his_scores(lists, labels), 2))
    assert lowest(-betweenness(lists), 1)[0] == 16


def slow_ham(matrix: np.ndarray, clusters: int, rounds: int) -> tuple[np.ndarray, float]:
    walk = np.eye(len(matrix)) - matrix / matrix.sum(axis=1, keepdims=True)
    rows = np.linalg.qr(np.random.default_rng(0).random((len(matrix), clusters)))[0]
    for _ in range(rounds):
        weights = 0.5 / (np.linalg.norm(walk @ rows, axis=1) + 1e-5)
        rows = np.linalg.eigh(walk.T @ np.diag(weights) @ walk)[1][:, :clusters]
    return np.linalg.norm(rows, axis=1), np.linalg.norm(walk @ rows, axis=1).sum()


def test_ham_does_not_depend_on_its_start():
    expected, _ = slow_ham(CLUB.matrix().toarray(), 2, 60)
    for seed in (1, 2):
        np.testing.assert_allclose(ham_scores(CLUB, 2, seed=seed), expected, atol=2e-3)


def test_ham_of_a_large_graph_is_near_the_exact_one(monkeypatch):
    """The iterative solver, on a graph that the exact one does too: three blocks and bridges."""
    graph = nx.random_partition_graph([60, 60, 60], 0.3, 0.0, seed=2)
    for bridge, (a, b) in zip((180, 181, 182), itertools.combinations(range(3), 2), strict=True):
        graph.add_edges_from((bridge, 60 * part + i) for part in (a, b) for i in range(4))
    lists = lists_of(graph)
    exact = ham_scores(lists, 3)
    monkeypatch.setattr(figrl.study.baselines_holes, "_DENSE_NODES", 10)
    iterated = ham_scores(lists, 3)
    assert set(lowest(iterated, 3)) == set(lowest(exact, 3)) == {180, 181, 182}
    np.testing.assert_allclose(iterated, exact, atol=0.01)


def test_ham_never_chooses_lone_nodes_and_refuses_too_many_clusters():
    matrix = np.zeros((36, 36))
    matrix[:34, :34] = CLUB.matrix().toarray()
    lists = adjacency_of(sp.csr_array(matrix))
    assert np.isnan(ham_scores(lists, 2)[34:]).all()
    np.testing.assert_array_equal(lowest(ham_scores(lists, 2), 3) + 1, [3, 20, 9])
    with pytest.raises(ConfigError, match="up to a fifth of the nodes, 7 here; 8 were"):
        ham_scores(lists, 8)


def slow_his(graph: nx.Graph, labels: list[int], start: np.ndarray) -> np.ndarray:
    """The definition, word by word: every pair of clusters, every neighbour."""
    clusters = sorted(set(labels))
    pairs = list(itertools.combinations(clusters, 2))
    importance = {(v, c): start[v] * (labels[v] == c) for v in graph for c in clusters}
    for _ in range(200):
        shared = {(v, s): min(importance[v, c] for c in s) for v in graph for s in pairs}
        importance = {
            (v, c): max(
                [importance[v, c]]
                + [
                    0.3 * importance[u, c] + 0.25 * shared[u, s]
                    for u in graph[v]
                    for s in pairs
                    if c in s
                ]
            )
            for v, c in importance
        }
    return np.array([max(min(importance[v, c] for c in s) for s in pairs) for v in sorted(graph)])


@pytest.mark.parametrize("clusters", [2, 4])
def test_his_is_what_its_definition_says(clusters):
    graph = random_graph(7, weighted=False)
    labels = np.random.default_rng(1).integers(0, clusters, 60)
    lists = lists_of(graph)
    expected = slow_his(graph, labels.tolist(), pagerank(lists))
    np.testing.assert_allclose(his_scores(lists, labels), expected, rtol=1e-6)


def test_his_refuses_many_clusters():
    with pytest.raises(ConfigError, match="2 to 64 clusters; 70 were given"):
        his_scores(lists_of(nx.path_graph(70)), np.arange(70))
    with pytest.raises(ConfigError, match="1 were given"):
        his_scores(CLUB, np.zeros(34, int))


@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_a_node_separates(seed):
    graph = random_graph(seed, weighted=False)
    found = separated_pairs(lists_of(graph))
    for node in graph:
        others = nx.node_connected_component(graph, node) - {node}
        parts = [len(part) for part in nx.connected_components(graph.subgraph(others))]
        assert found[node] == sum(a * b for a, b in itertools.combinations(parts, 2))
    assert set(np.flatnonzero(found)) == set(nx.articulation_points(graph))


def test_ap_bicc_goes_on_with_the_nodes_that_are_nearest_to_all():
    graph = nx.barabasi_albert_graph(80, 3, seed=4)
    assert not list(nx.articulation_points(graph))
    closeness = by_node(nx.closeness_centrality(graph))
    found = ap_bicc(lists_of(graph), 6)
    np.testing.assert_allclose(closeness[found], np.sort(closeness)[::-1][:6])
    # Parts that cannot be reached are far: a pair of its own is not near to all.
    graph.add_edge(80, 81)
    np.testing.assert_array_equal(ap_bicc(lists_of(graph), 6, candidates=82), found)
