"""Bipartite and directed graphs after ingest: vectors, lookup, export, neighbours and fold-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import figrl
from figrl.analyze.clusters import find_clusters
from figrl.engine.session import Session
from figrl.errors import ConfigError
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.index import build_index
from figrl.serve.overlay_update import run_fold_publish
from tests.learn.test_embed import embed, random_edges
from tests.reference import DenseGraph, DensePaper, largest_angle, write_edges
from tests.serve.test_neighbors import brute_force

SIDES = ("source", "target")
DIM, SKETCH = 5, 40


@dataclass(frozen=True)
class Learnt:
    """A store with one run, and the same graph dense."""

    store: Path
    kind: str
    edges: list[tuple[Any, ...]]

    @property
    def run(self) -> Embedding:
        return open_store(self.store).embedding()

    @property
    def graph(self) -> DenseGraph:
        return DenseGraph.with_sides(self.edges, self.kind)

    def own_edges(self, side: str) -> list[tuple[Any, ...]]:
        """Merged edges of all nodes of a side: node, node of the other side, weight."""
        graph, cut = self.graph, self.graph.target_start
        rows, columns = np.nonzero(graph.weights)
        here = (rows < cut) == (side == "source")
        return [
            (graph.ids[i], graph.ids[j], graph.weights[i, j])
            for i, j in zip(rows[here], columns[here], strict=True)
        ]


def learn(client: Any, folder: Path, kind: str, edges: list[tuple[Any, ...]], **ingest: Any) -> Any:
    path = write_edges(folder / "edges.parquet", edges)
    figrl.ingest(path, store=folder / "store", client=client, kind=kind, **ingest)
    embed(folder / "store", dim=DIM, sketch_size=SKETCH, client=client)
    return Learnt(folder / "store", kind, edges)


def plays() -> list[tuple[Any, ...]]:
    """Weighted edges; ids 0 to 49 on the source side, 20 to 69 on the target side."""
    edges = [(a, b + 20, w) for a, b, w in random_edges(5, 50, weighted=True)]
    return edges + [(i, i + 20, 1.0) for i in range(50)]


@pytest.fixture(scope="module", params=["bipartite", "directed"])
def learnt(client, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param)
    return learn(client, folder, request.param, plays(), block_rows=16)


@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["bipartite", "directed"]),
    weighted=st.booleans(),
    block_bits=st.integers(0, 7),
)
def test_it_is_the_paper_on_the_bipartite_double(
    client, tmp_path_factory, seed, kind, weighted, block_bits
):
    edges = random_edges(seed, 25, weighted=weighted)
    folder = tmp_path_factory.mktemp("paper")
    found = learn(client, folder, kind, edges, block_rows=1 << block_bits)
    graph = found.graph
    paper = DensePaper.of(graph, dim=DIM, sketch_size=SKETCH)
    exact = paper.singular_values
    run = found.run
    assert run.ids().to_pylist() == graph.ids
    np.testing.assert_allclose(run.singular_values, exact[:DIM], rtol=1e-5, atol=1e-6)
    if exact[DIM - 1] - exact[DIM] > 0.02 * exact[0]:
        left = (
            np.asarray(run.vectors)
            / np.where(graph.inverse_root > 0, graph.inverse_root, 1)[:, None]
        )
        assert largest_angle(left, paper.left) < 1e-3


def test_bits_do_not_depend_on_blocks_or_workers(client, single, learnt, tmp_path):
    again = learn(single, tmp_path, learnt.kind, learnt.edges, block_rows=16)
    np.testing.assert_array_equal(np.asarray(again.run.vectors), np.asarray(learnt.run.vectors))
    cut = learn(client, tmp_path / "cut", learnt.kind, learnt.edges, block_rows=64)
    np.testing.assert_allclose(
        np.asarray(cut.run.vectors), np.asarray(learnt.run.vectors), rtol=1e-3, atol=1e-5
    )


def test_lookup_says_which_side(learnt):
    run, vectors = learnt.run, np.asarray(learnt.run.vectors)
    cut = run.graph.target_start
    sources, targets = (run.ids(side=side).to_pylist() for side in SIDES)
    assert sources + targets == run.ids().to_pylist() == learnt.graph.ids
    assert run.ids(1, 3, side="target").to_pylist() == targets[1:3]
    for node in (30, 41):
        source, target = sources.index(node), cut + targets.index(node)
        assert run.rows_of([node, node], "source").tolist() == [source, source]
        np.testing.assert_array_equal(run.lookup([node], side="target")[0], vectors[target])
        np.testing.assert_array_equal(run[node, "source"], vectors[source])
        assert not np.array_equal(vectors[source], vectors[target])
    assert run.sides_at(np.array([0, cut - 1, cut])) == ["source", "source", "target"]
    with pytest.raises(
        ConfigError, match=r"Id 30 is on both sides.*--side source or --side target"
    ):
        run.lookup([30])
    with pytest.raises(ConfigError, match=r"side is 'left'\. Allowed are 'source' and 'target'"):
        run.lookup([30], side="left")
    with pytest.raises(KeyError, match=r"not in the graph as a target: 999"):
        run.lookup([30, 999], side="target")
    if learnt.kind == "bipartite":
        assert run.rows_of([3, 65]).tolist() == [3, cut + targets.index(65)]
        with pytest.raises(KeyError, match=r"as a target: 3"):
            run.lookup([3], side="target")


def test_a_node_that_is_never_a_target_has_zeros_there(client, tmp_path):
    found = learn(client, tmp_path, "directed", [(1, 2), (1, 3), (2, 3), (4, 2), (4, 4)])
    assert found.run.graph.nodes == 8
    assert not found.run[1, "target"].any()
    assert not found.run[3, "source"].any()
    assert found.run[1, "source"].any()


def test_undirected_graphs_have_no_sides(client, tmp_path):
    path = write_edges(tmp_path / "e.parquet", random_edges(5, 30, weighted=False))
    figrl.ingest(path, store=tmp_path / "store", client=client)
    run = embed(tmp_path / "store", dim=3, sketch_size=12, client=client)
    assert run.sides_at(np.array([0])) is None
    message = r"this graph is undirected: its nodes have no sides\. Leave {} out"
    with pytest.raises(ConfigError, match=message.format("side")):
        run.lookup([1], side="source")
    with pytest.raises(ConfigError, match=message.format("among")):
        figrl.neighbors(tmp_path / "store", [1], among="target")
    with pytest.raises(ConfigError, match=message.format("side")):
        figrl.fold_in(
            tmp_path / "store", path, out=tmp_path / "v.parquet", side="target", client=client
        )
    assert figrl.neighbors(tmp_path / "store", [1], among="all").column_names == [
        *("id", "rank", "neighbor", "cosine")
    ]
    figrl.export(tmp_path / "store", out=tmp_path / "x.parquet", client=client)
    assert pq.read_schema(tmp_path / "x.parquet").names == ["id", "vector"]


def test_export_and_clusters_have_a_side_column(client, learnt, tmp_path):
    run, graph = learnt.run, learnt.graph
    sides = ["source"] * graph.target_start + ["target"] * (len(graph.ids) - graph.target_start)
    out = figrl.export(learnt.store, out=tmp_path / "v.parquet", client=client)
    table = pq.read_table(out)
    assert table.schema.names == ["id", "side", "vector"]
    assert table.schema.field("side").type == pa.string()
    assert table["id"].to_pylist() == graph.ids
    assert table["side"].to_pylist() == sides
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), run.vectors)
    clusters = pq.read_table(find_clusters(learnt.store, 4, client=client))
    assert clusters.schema.names == ["id", "side", "cluster"]
    assert clusters["side"].to_pylist() == sides
    holes = figrl.find_holes(learnt.store, count=3, clusters=4, client=client)
    assert holes.column_names[:2] == ["id", "side"]
    assert set(holes["side"].to_pylist()) <= set(SIDES)


@pytest.mark.parametrize("among", [None, "source", "target", "all"])
@pytest.mark.parametrize("approximate", [False, True])
def test_neighbours_are_searched_on_the_other_side_or_where_asked(
    client, learnt, tmp_path, among, approximate
):
    run, vectors = learnt.run, np.asarray(learnt.run.vectors)
    if approximate:
        pytest.importorskip("usearch")
        build_index(client, run, tmp_path / "index", Session(client))
    cut, nodes = run.graph.target_start, run.graph.nodes
    ranges = {"source": (0, cut), "target": (cut, nodes), "all": (0, nodes)}
    ids = learnt.graph.ids
    for side, other in (SIDES, SIDES[::-1]):
        found = figrl.neighbors(
            learnt.store, [30, 41], count=6, side=side, among=among, approximate=approximate
        )
        assert found.column_names == [
            *("id", "side", "rank", "neighbor", "neighbor_side", "cosine")
        ]
        assert set(found["side"].to_pylist()) == {side}
        start, stop = ranges[among or other]
        for node in (30, 41):
            own = int(run.rows_of([node], side)[0])
            order, cosines = brute_force(vectors, vectors[[own]], nodes)
            expected = [row for row in order[0] if row != own and start <= row < stop][:6]
            rows = found.filter(np.asarray(found["id"]) == node)
            atol = 1e-2 if approximate else 1e-6
            np.testing.assert_allclose(rows["cosine"], cosines[0, expected], atol=atol)
            assert rows["rank"].to_pylist() == [1, 2, 3, 4, 5, 6]
            for name, at in zip(
                rows["neighbor"].to_pylist(), rows["neighbor_side"].to_pylist(), strict=True
            ):
                row = int(run.rows_of([name], at)[0])
                assert start <= row < stop
                assert ids[row] == name


def test_queries_of_both_sides_each_search_the_other(learnt):
    if learnt.kind == "directed":
        pytest.skip("every id is on both sides")
    found = figrl.neighbors(learnt.store, [3, 65], count=2)
    assert found["side"].to_pylist() == ["source", "source", "target", "target"]
    assert found["neighbor_side"].to_pylist() == ["target", "target", "source", "source"]


@pytest.mark.parametrize("side", SIDES)
def test_a_seen_node_with_its_own_edges_gets_its_own_vector(client, learnt, tmp_path, side):
    own = learnt.own_edges(side)
    folded = figrl.fold_in(
        learnt.store,
        write_edges(tmp_path / "own.parquet", own),
        out=tmp_path / "v.parquet",
        degrees="stored",
        known="recompute",
        side=side,
        client=client,
    )
    table = folded.table()
    assert table.schema.names == ["id", "side", "vector"]
    assert set(table["side"].to_pylist()) == {side}
    ids = table["id"].to_pylist()
    assert sorted(ids) == sorted({node for node, _, _ in own})
    stored = learnt.run.lookup(ids, side)
    np.testing.assert_allclose(
        table["vector"].to_pylist(), stored, rtol=1e-4, atol=1e-4 * np.abs(stored).max()
    )


@pytest.mark.parametrize("side", SIDES)
def test_every_odd_edge_has_an_outcome_and_a_count(client, learnt, tmp_path, side):
    """Against the paper's formula; degrees of known nodes count the new edges."""
    graph, other = learnt.graph, SIDES[side == "source"]
    known_ids = learnt.run.ids(side=other).to_pylist()
    a, b = known_ids[4], known_ids[9]
    seen = learnt.run.ids(side=side).to_pylist()[7]
    edges = [
        (900, a, 1.0),
        (900, b, 2.0),
        (900, b, 0.5),  # the same edge again: weights are summed
        (901, b, 3.0),
        (900, 12345, 1.0),  # to an unknown node
        (902, 902, 1.0),  # a self-loop if directed, else an edge to an unknown node
        (seen, a, 1.0),  # a node that is known already
    ]
    path, out = write_edges(tmp_path / "new.parquet", edges), tmp_path / "v.parquet"
    with pytest.warns(UserWarning, match="1 of 3 new nodes .* its vector is zero"):
        folded = figrl.fold_in(learnt.store, path, out=out, side=side, client=client)
    loops = int(learnt.kind == "directed")
    assert folded.counts == {
        "nodes_folded_in": 3,
        "known_nodes_skipped": 1,
        "known_nodes_recomputed": 0,
        "nodes_without_known_neighbour": 1,
        "edges_between_new_nodes": 0,
        "edges_to_unknown_nodes": 2 - loops,
        "edges_between_known_nodes": 1,
        "unknown_nodes": 2,
        "rows_read": 7,
        "rows_rejected": 0,
        "self_loops_dropped": loops,
        "repeated_edges_merged": 1,
    }
    paper = DensePaper.of(graph, dim=DIM, sketch_size=SKETCH)
    rows = {node: int(learnt.run.rows_of([node], other)[0]) for node in (a, b)}
    degree = {a: graph.degrees[rows[a]] + 1.0, b: graph.degrees[rows[b]] + 5.5}
    basis = {node: paper.basis[row] / np.sqrt(degree[node]) for node, row in rows.items()}
    expected = {900: (basis[a] + 2.5 * basis[b]) / 3.5, 901: basis[b], 902: np.zeros(DIM)}
    table = folded.table()
    found = dict(zip(table["id"].to_pylist(), table["vector"].to_pylist(), strict=True))
    assert found.keys() == expected.keys()
    for node, vector in expected.items():
        np.testing.assert_allclose(found[node], vector, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("side", [None, "target"])
def test_published_nodes_are_served_on_their_side(client, tmp_path, side):
    found = learn(client, tmp_path, "bipartite", plays(), block_rows=32)
    new = write_edges(
        tmp_path / "new.parquet", [(30 if side is None else 5, 41, 1.0), (900, 42, 1.0)]
    )
    run_fold_publish(found.store, new, FoldInOptions(side=side), Session(client))
    run = found.run
    served = side or "source"
    row = run.graph.nodes + (1 if side else 0)
    assert run.rows_of([900]).tolist() == run.rows_of([900], served).tolist() == [row]
    assert run.sides_at(np.array([0, row])) == ["source", served]
    assert run.ids_at(np.array([row])) == [900]
    if side:
        # 5 is known as a source, and new as a target.
        assert run.rows_of([5], "source").tolist() == [5]
        assert run.rows_of([5], "target").tolist() == [row - 1]
    with pytest.raises(KeyError, match="not in the graph"):
        run.lookup([900], side="source" if side else "target")
    other = "source" if side else "target"
    near = figrl.neighbors(found.store, [41], side=other, count=run.graph.nodes)
    assert 900 in near["neighbor"].to_pylist()
    away = figrl.neighbors(found.store, [41], side=other, among=other, count=run.graph.nodes)
    assert 900 not in away["neighbor"].to_pylist()
    table = pq.read_table(figrl.export(found.store, out=tmp_path / "v.parquet", client=client))
    assert table["side"].to_pylist()[-1] == served
    assert table["id"].to_pylist()[-1] == 900
    # An explicit default is the same option; another side is another one.
    again = FoldInOptions(side=served)
    assert run_fold_publish(found.store, new, again, Session(client))["already_done"]
    with pytest.raises(ConfigError, match="with other options before"):
        run_fold_publish(found.store, new, FoldInOptions(side=other), Session(client))
