"""Modularity and permanence against networkx and against the definitions, spelt out."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from figrl import ingest
from figrl.analyze.metrics import agreement, modularity
from figrl.analyze.permanence import permanence, row_groups
from figrl.errors import BadInputError, ConfigError
from tests.reference import write_edges


def node_permanence(graph: nx.Graph, label: dict, node: object) -> float:
    """The formula of Chakraborty et al. for one node, word by word."""
    inside = [other for other in graph[node] if label[other] == label[node]]
    outside = Counter(label[other] for other in graph[node] if label[other] != label[node])
    most = max(outside.values(), default=1)
    pairs = list(itertools.combinations(inside, 2))
    linked = sum(graph.has_edge(a, b) for a, b in pairs)
    clustering = linked / len(pairs) if pairs else 0.0
    return len(inside) / (most * graph.degree(node)) - (1 - clustering)


def slow_permanence(graph: nx.Graph, label: dict) -> float:
    counted = [node for node in graph if graph.degree(node)]
    if not counted:
        return 0.0
    return sum(node_permanence(graph, label, node) for node in counted) / len(counted)


def stored(client, folder, edges, **options):
    return ingest(
        write_edges(folder / "e.parquet", edges), store=folder / "s", client=client, **options
    )


def labels_by_row(graph, label) -> np.ndarray:
    return np.array([label[node] for node in graph.index.ids_of(0, graph.nodes).to_pylist()])


def communities(label: dict) -> list[set]:
    found: dict = {}
    for node, cluster in label.items():
        found.setdefault(cluster, set()).add(node)
    return list(found.values())


@st.composite
def labelled_graphs(draw):
    nodes = draw(st.integers(2, 40))
    pairs = list(itertools.combinations(range(nodes), 2))
    # A node is met at least once; a loop gives a node that may have no edge.
    ends = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=200, unique=True))
    edges = [*ends, *((node, node) for node in range(nodes))]
    if draw(st.booleans()):
        weights = draw(
            st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=len(edges), max_size=len(edges))
        )
        edges = [(a, b, w) for (a, b), w in zip(edges, weights, strict=True)]
    label = draw(st.lists(st.integers(0, draw(st.integers(0, 6))), min_size=nodes, max_size=nodes))
    return edges, dict(enumerate(label))


def network_of(edges, nodes) -> nx.Graph:
    network = nx.Graph()
    network.add_nodes_from(nodes)
    network.add_weighted_edges_from((*e, 1.0) if len(e) == 2 else e for e in edges if e[0] != e[1])
    return network


@given(labelled_graphs())
def test_both_metrics_are_their_definitions(client, case):
    edges, label = case
    network = network_of(edges, label)
    with tempfile.TemporaryDirectory() as folder:
        graph = stored(client, Path(folder), edges, block_rows=8)
        rows = labels_by_row(graph, label)
        expected = nx.community.modularity(network, communities(label))
        assert modularity(graph, rows) == pytest.approx(expected, abs=1e-6)
        expected = slow_permanence(network, label)
        for entries in (1, 40, 10_000):
            found = permanence(graph, rows, group_entries=entries)
            assert found == pytest.approx(expected, abs=1e-12)


@pytest.fixture(scope="module")
def clustered(client, tmp_path_factory):
    """A graph with hubs and many triangles, its networkx twin, and clusters."""
    folder = tmp_path_factory.mktemp("clustered")
    network = nx.powerlaw_cluster_graph(800, 6, 0.7, seed=3)
    rng = np.random.default_rng(0)
    label = {node: int(c) for node, c in enumerate(rng.integers(0, 3, 800))}
    graph = stored(client, folder, list(network.edges), block_rows=64)
    path = folder / "labels.npy"
    np.save(path, labels_by_row(graph, label).astype(np.int32))
    return graph, network, label, path


def test_hubs_are_counted_right_whatever_the_groups(clustered):
    graph, network, label, path = clustered
    assert max(degree for _, degree in network.degree) > 8 * 10
    expected = slow_permanence(network, label)
    assert len(row_groups(graph, 1)) == graph.blocks == 13
    assert len(row_groups(graph, 3000)) == 4
    for entries in (1, 3000, 1 << 20):
        found = permanence(graph, path, group_entries=entries)
        assert found == pytest.approx(expected, abs=1e-12)


def test_groups_hold_all_blocks_once_and_no_more_entries_than_asked(clustered):
    graph = clustered[0]
    sizes = [sum(r.size for r, _, _ in graph.row_groups(b)) for b in range(graph.blocks)]
    for most in (1, 1500, 4000, 10**6):
        groups = row_groups(graph, most)
        assert [block for group in groups for block in group] == list(range(13))
        for group in groups:
            assert len(group) == 1 or sum(sizes[block] for block in group) <= most


def test_workers_find_the_same(client, clustered):
    graph, network, label, path = clustered
    expected = nx.community.modularity(network, communities(label))
    assert modularity(graph, path, client=client) == pytest.approx(expected, abs=1e-12)
    assert modularity(graph, path, client=client) == modularity(graph, path)
    alone = permanence(graph, path, group_entries=3000)
    assert permanence(graph, path, client=client, group_entries=3000) == alone


def test_the_example_of_the_authors():
    """Figure 2 of the paper: I = 4, D = 7, Emax = 2, c_in = 5/6, so 0.12."""
    edges = [("v", other) for other in "abcdxyz"]
    edges += [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")]
    label = dict.fromkeys("vabcd", 0) | {"x": 1, "y": 1, "z": 2}
    found = node_permanence(nx.Graph(edges), label, "v")
    assert found == pytest.approx(4 / (2 * 7) - (1 - 5 / 6))


def test_nodes_that_the_formula_says_nothing_of(client, tmp_path):
    """A clique by itself has 1, an edge by itself 0, a node of a cluster of its own -1."""
    edges = [(0, 1), (0, 2), (1, 2), (3, 4), (5, 6), (7, 7)]
    graph = stored(client, tmp_path, edges)
    assert graph.nodes == 8
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 4])
    assert permanence(graph, labels) == pytest.approx((3 * 1 + 2 * 0 + 2 * -1) / 7)
    assert modularity(graph, labels) == pytest.approx(4 / 5 - 0.36 - 0.04 - 2 * 0.01)


def test_a_graph_without_edges_has_none(client, tmp_path):
    graph = stored(client, tmp_path, [(1, 1), (2, 2)])
    assert permanence(graph, np.array([0, 1])) == modularity(graph, np.array([0, 1])) == 0.0


def test_karate_has_the_values_that_are_known(client, tmp_path):
    network = nx.karate_club_graph()
    graph = stored(client, tmp_path, list(network.edges), block_rows=8)
    club = {node: int(network.nodes[node]["club"] == "Officer") for node in network}
    rows = labels_by_row(graph, club)
    assert modularity(graph, rows) == pytest.approx(0.3582347140039448)
    # The best that there is, by exhaustive search (Brandes et al. 2008).
    best = {0: "0 1 2 3 7 11 12 13 17 19 21", 1: "4 5 6 10 16", 2: "23 24 25 27 28 31"}
    four = dict.fromkeys(network, 3)
    four |= {int(node): c for c, nodes in best.items() for node in nodes.split()}
    assert modularity(graph, labels_by_row(graph, four)) == pytest.approx(0.4197896120973044)
    assert permanence(graph, rows) == pytest.approx(slow_permanence(network, club), abs=1e-12)
    assert permanence(graph, rows) == pytest.approx(0.507822884, abs=1e-9)
    assert permanence(graph, labels_by_row(graph, four)) == pytest.approx(0.312191630, abs=1e-9)


def test_agreement_is_normalised_mutual_information():
    rng = np.random.default_rng(1)
    one, two = rng.integers(0, 5, 300), rng.integers(0, 4, 300)
    assert agreement(one, two) == pytest.approx(normalized_mutual_info_score(two, one))
    assert agreement(one, (one + 2) % 5) == pytest.approx(1.0)
    assert agreement(one, two) < 0.1


@pytest.mark.parametrize("metric", [modularity, permanence])
def test_labels_that_do_not_fit_are_refused(client, clustered, metric):
    graph = clustered[0]
    with pytest.raises(BadInputError, match=r"shape \(3,\) .* needs 800 integers"):
        metric(graph, np.zeros(3, np.int64))
    with pytest.raises(BadInputError, match="type float64"):
        metric(graph, np.zeros(800))
    with pytest.raises(BadInputError, match="hold -1; clusters are numbered from 0"):
        metric(graph, np.full(800, -1))
    with pytest.raises(ConfigError, match=r"numpy\.save"):
        metric(graph, np.zeros(800, np.int64), client=client)
