"""Fold-in: a seen node comes back to its own vector, and every odd edge has its outcome."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed as accurate
from figrl import fold_in, ingest
from figrl.errors import BadInputError, ConfigError
from figrl.store.arrays import open_zarr
from tests.learn.test_accurate import planted_edges
from tests.learn.test_embed import embed, random_edges
from tests.reference import DenseGraph, DensePaper, write_edges


def as_dict(folded):
    table = folded.table()
    return dict(zip(table["id"].to_pylist(), table["vector"].to_pylist(), strict=True))


@given(
    seed=st.integers(0, 10_000),
    weighted=st.booleans(),
    parts=st.integers(1, 2),
    block_bits=st.integers(2, 6),
)
def test_a_seen_node_with_its_own_edges_gets_its_own_vector(
    client, tmp_path_factory, seed, weighted, parts, block_bits
):
    folder = tmp_path_factory.mktemp("seen")
    edges = random_edges(seed, 40, weighted=weighted, parts=parts)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=1 << block_bits)
    run = embed(folder / "store", dim=6, sketch_size=32, client=client)
    merged = DenseGraph.of(edges)
    own = [
        (merged.ids[i], merged.ids[j], *([merged.weights[i, j]] if weighted else []))
        for i, j in zip(*np.nonzero(merged.weights), strict=True)
        if i < j
    ]
    both = own + [(b, a, *rest) for a, b, *rest in own]
    if weighted:  # both directions of an edge are one edge, so its weight is given in halves
        both = [(a, b, w / 2) for a, b, w in both]
    folded = fold_in(
        folder / "store",
        write_edges(folder / "own.parquet", both),
        out=folder / "folded.parquet",
        degrees="stored",
        known="recompute",
        client=client,
    )
    vectors = as_dict(folded)
    stored = run.lookup(list(vectors))
    np.testing.assert_allclose(
        np.array(list(vectors.values())), stored, rtol=1e-4, atol=1e-4 * np.abs(stored).max()
    )
    assert folded.counts["known_nodes_recomputed"] == len(vectors) > 0


@pytest.fixture(scope="module")
def learnt(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("learnt")
    edges = random_edges(3, 60, weighted=True)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=16)
    embed(folder / "store", dim=5, sketch_size=40, client=client)
    graph = DenseGraph.of(edges)
    return folder / "store", graph, DensePaper.of(graph, dim=5, sketch_size=40)


def by_the_paper(graph, paper, edges, *, extended=True):
    """The formula of the paper, a node at a time, on the extended graph."""
    place = {node: i for i, node in enumerate(graph.ids)}
    new = {a for a, _, _ in edges if a not in place}
    degrees = graph.degrees.copy()
    own = dict.fromkeys(new, 0.0)
    for a, b, weight in edges:
        if a in new and b in place:
            own[a] += weight
            degrees[place[b]] += weight if extended else 0
        elif a in new and b in new:
            own[a] += weight
            own[b] += weight
    vectors = {node: np.zeros(paper.basis.shape[1]) for node in new}
    for a, b, weight in edges:
        if a in new and b in place:
            entry = weight / np.sqrt(own[a] * degrees[place[b]])
            vectors[a] += entry * paper.basis[place[b]] / np.sqrt(own[a])
    return vectors


@pytest.mark.parametrize("degrees", ["extended", "stored"])
def test_new_nodes_get_the_vectors_of_the_papers_formula(client, learnt, tmp_path, degrees):
    store, graph, paper = learnt
    rng = np.random.default_rng(8)
    edges = [
        (1000 + int(new), graph.ids[int(known)], float(weight))
        for new, known, weight in zip(
            np.repeat(np.arange(20), 4),
            rng.permutation(np.tile(np.arange(40), 2)),
            rng.uniform(0.5, 2, 80),
            strict=True,
        )
    ]
    edges = [*{edge[:2]: edge for edge in edges}.values(), (1000, 1001, 2.0)]
    folded = fold_in(
        store,
        write_edges(tmp_path / "new.parquet", edges),
        out=tmp_path / "out",
        degrees=degrees,
        client=client,
    )
    expected = by_the_paper(graph, paper, edges, extended=degrees == "extended")
    found = as_dict(folded)
    assert found.keys() == expected.keys()
    scale = max(np.abs(vector).max() for vector in expected.values())
    for node, vector in expected.items():
        np.testing.assert_allclose(found[node], vector, rtol=1e-3, atol=1e-4 * scale)
    assert folded.counts["edges_between_new_nodes"] == 1
    assert folded.counts["nodes_folded_in"] == 20


def test_every_odd_edge_has_an_outcome_and_a_count(client, learnt, tmp_path):
    store, graph, paper = learnt
    a, b, c = graph.ids[:3]
    edges = [
        (900, a, 1.0),
        (900, b, 2.0),
        (900, 901, 1.0),  # between two new nodes
        (901, 900, 1.0),  # the same edge again: weights are summed
        (900, 12345, 1.0),  # to an unknown node
        (902, 12346, 1.0),  # a new node without a known neighbour
        (903, 903, 1.0),  # a new node with nothing but a self-loop
        (c, a, 1.0),  # a node that is known already
    ]
    path = write_edges(tmp_path / "new.parquet", edges)
    told = "3 of 4 new nodes have no edge to a node of the graph: their vectors are zeros, but for"
    with pytest.warns(UserWarning, match=told):
        folded = fold_in(store, path, out=tmp_path / "v.parquet", client=client)
    assert folded.counts == {
        "nodes_folded_in": 4,
        "known_nodes_skipped": 1,
        "known_nodes_recomputed": 0,
        "nodes_without_known_neighbour": 3,
        "edges_between_new_nodes": 1,
        "edges_to_unknown_nodes": 2,
        "edges_between_known_nodes": 1,
        "unknown_nodes": 2,
        "rows_read": 8,
        "rows_rejected": 0,
        "self_loops_dropped": 1,
        "repeated_edges_merged": 1,
    }
    found = as_dict(folded)
    assert sorted(found) == [900, 901, 902, 903]
    assert not np.any([found[901], found[902], found[903]])
    kept = [(900, a, 1.0), (900, b, 2.0), (900, 901, 2.0), (901, 901, 0.0)]
    expected = by_the_paper(graph, paper, kept)[900]
    np.testing.assert_allclose(found[900], expected, rtol=1e-3, atol=1e-6)
    assert "nodes folded in 4" in repr(folded)


@pytest.mark.parametrize(
    ("edges", "told"),
    [([(900, 12345, 1.0), (901, 900, 1.0)], "None of the 2 new"), (None, "The new node comes")],
)
def test_edges_that_link_no_new_node_to_a_known_one_are_refused(
    client, learnt, tmp_path, edges, told
):
    store, graph, _ = learnt
    edges = edges or [(graph.ids[0], 900, 1.0), (graph.ids[1], 900, 1.0)]
    path, out = write_edges(tmp_path / "new.parquet", edges), tmp_path / "v.parquet"
    with pytest.raises(BadInputError, match=told):
        fold_in(store, path, out=out, client=client)
    assert not out.exists()


def test_vectors_do_not_depend_on_how_the_edges_are_cut_into_files(client, learnt, tmp_path):
    store, graph, _ = learnt
    edges = [(500 + i % 30, graph.ids[(7 * i) % 50], 1.0 + i) for i in range(120)]
    one = fold_in(
        store,
        write_edges(tmp_path / "one.parquet", edges),
        out=tmp_path / "a.parquet",
        client=client,
    )
    for part in range(4):
        write_edges(tmp_path / "many" / f"{part}.parquet", edges[30 * part : 30 * part + 30])
    many = fold_in(store, tmp_path / "many", out=tmp_path / "b.parquet", client=client)
    assert as_dict(one) == as_dict(many)


def test_ids_of_another_type_are_refused(client, learnt, tmp_path):
    path = write_edges(tmp_path / "words.parquet", [("x", "y")])
    with pytest.raises(BadInputError, match=r"its ids are string, but those of the graph are int"):
        fold_in(learnt[0], path, out=tmp_path / "v.parquet", client=client)


def test_the_output_is_not_overwritten_unasked(client, learnt, tmp_path):
    store, graph, _ = learnt
    path = write_edges(tmp_path / "new.parquet", [(700, graph.ids[0])])
    out = tmp_path / "v.parquet"
    fold_in(store, path, out=out, client=client)
    with pytest.raises(ConfigError, match=r"v\.parquet is there already.*overwrite=True"):
        fold_in(store, path, out=out, client=client)
    assert fold_in(store, path, out=out, client=client, overwrite=True).table().num_rows == 1


def test_bad_rows_are_set_aside_beside_the_output(client, learnt, tmp_path):
    store, graph, _ = learnt
    path = write_edges(tmp_path / "new.parquet", [(700, graph.ids[0], 1.0), (701, None, 1.0)])
    with pytest.raises(BadInputError, match=r"new\.parquet, row 2: the target id is missing"):
        fold_in(store, path, out=tmp_path / "v.parquet", client=client)
    folded = fold_in(
        store, path, out=tmp_path / "v.parquet", client=client, on_bad_edges="quarantine"
    )
    assert folded.counts["rows_rejected"] == 1
    assert list((tmp_path / "v.parquet.quarantine").glob("*.parquet"))


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_smoothed_vectors_are_passed_on_between_new_nodes(client, tmp_path, monkeypatch, rounds):
    """Against the sums themselves; in small blocks, so that neighbours lie in others."""
    monkeypatch.setattr("figrl.serve.fold_in.BLOCK_ROWS", 4)
    path = write_edges(tmp_path / "edges.parquet", planted_edges(2, weighted=True))
    ingest(path, store=tmp_path / "store", client=client, block_rows=64)
    run = accurate(tmp_path / "store", dim=6, smoothing=3, client=client)
    basis = dict(zip(run.ids().to_pylist(), np.asarray(open_zarr(run.path / "basis")), strict=True))
    rng = np.random.default_rng(4)
    new = [2000 + i for i in range(14)]
    known = [(n, int(rng.integers(0, 240)), float(rng.uniform(0.5, 2))) for n in new[:8]]
    between = [(a, b, float(rng.uniform(0.5, 2))) for a, b in itertools.pairwise(new[:-1])]
    edges = [*known, *between, (new[-1], 9999, 1.0)]
    path, out = write_edges(tmp_path / "new.parquet", edges), tmp_path / "out.parquet"
    with pytest.warns(UserWarning, match="5 of 13 new nodes .* but for what new neighbours"):
        folded = fold_in(tmp_path / "store", path, out=out, rounds=rounds, client=client)
    sources = {a for a, _, _ in edges}
    vectors = {node: np.zeros(6) for node in sources}
    for number in range(rounds):
        sums = {node: np.zeros(6) for node in sources}
        for a, b, weight in edges:
            if b in basis:
                sums[a] += weight * basis[b]
            elif b in sources and number:
                sums[a] += weight * vectors[b]
                sums[b] += weight * vectors[a]
        vectors = {n: s / max(np.linalg.norm(s), 1e-30) for n, s in sums.items()}
    found = as_dict(folded)
    assert set(found) == sources
    for node in sources:
        np.testing.assert_allclose(found[node], vectors[node], atol=2e-6)
    reached = {node for node, vector in vectors.items() if np.any(vector)}
    assert len(reached) == 8 + rounds - 1, "a round reaches one node further along the chain"
    assert folded.counts["edges_between_new_nodes"] == len(
        [b for _, b, _ in between if b in sources]
    )
