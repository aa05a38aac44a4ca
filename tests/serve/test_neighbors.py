"""Neighbours: equal to brute force, whatever the chunks; the index finds nearly all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed, ingest, neighbors
from figrl.engine.session import Session
from figrl.errors import BadInputError
from figrl.serve.embedding import open_store
from figrl.serve.index import build_index
from figrl.serve.search import normalised, search
from figrl.store.arrays import ArraySpec, create_array
from figrl.store.matrix import open_matrix
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges


def brute_force(vectors, queries, count):
    """All cosines in float64, sorted; equal ones by row."""

    def unit(rows):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)

    cosines = unit(queries.astype(np.float64)) @ unit(vectors.astype(np.float64)).T
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count], cosines


@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 300),
    chunk=st.sampled_from([4, 16, 64]),
    count=st.integers(1, 12),
)
def test_it_is_brute_force(tmp_path_factory, seed, rows, chunk, count):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((rows, 5)).astype(np.float32)
    vectors[rng.random(rows) < 0.1] = 0
    path = tmp_path_factory.mktemp("vectors") / "v"
    create_array(ArraySpec(path, vectors.shape, (chunk, 5)))
    for start in range(0, rows, chunk):
        open_matrix(path).write((start, 0), vectors[start : start + chunk])
    queries = rng.standard_normal((3, 5)).astype(np.float32)
    found = search(path, None, queries, count, "cosine")
    expected, cosines = brute_force(vectors, queries, count)
    kept = min(rows, count)
    assert (found.rows[:, kept:] == -1).all()
    found_cosines = np.take_along_axis(cosines, found.rows[:, :kept], axis=1)
    best = np.take_along_axis(cosines, expected, axis=1)
    # Cosines that agree to rounding may stand in either order.
    np.testing.assert_allclose(found_cosines, best, atol=1e-6)
    np.testing.assert_allclose(found.scores[:, :kept], best, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_rows_of_any_size_are_normalised(scale):
    rows = np.array([[3, 4], [0, 0]], np.float32) * np.float32(scale)
    assert normalised(rows) == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


def test_products_are_searched_by_dot_product(client, tmp_path):
    path = write_edges(tmp_path / "edges.parquet", planted_edges(6))
    ingest(path, store=tmp_path / "store", client=client, block_rows=64)
    run = embed(tmp_path / "store", dim=8, representation="product", client=client)
    assert run.metric == "dot"
    found = neighbors(tmp_path / "store", [7], count=5)
    assert found.column_names == ["id", "rank", "neighbor", "dot"]
    scores = np.asarray(run.vectors) @ run[7]
    ids = run.ids().to_pylist()
    scores[ids.index(7)] = -np.inf
    best = np.argsort(-scores)[:5]
    assert found["neighbor"].to_pylist() == [ids[row] for row in best]
    np.testing.assert_allclose(found["dot"], scores[best], rtol=1e-5)


@pytest.fixture(scope="module")
def learnt(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("neighbors")
    path = write_edges(folder / "edges.parquet", planted_edges(6))
    ingest(path, store=folder / "store", client=client, block_rows=64)
    return folder / "store", embed(folder / "store", dim=8, client=client)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_ids_are_those_of_the_graph_and_never_the_node_itself(client, learnt, on_cluster):
    store, run = learnt
    found = neighbors(store, [7, 130], count=5, client=client if on_cluster else None)
    ids, vectors = run.ids().to_pylist(), np.asarray(run.vectors)
    for node in (7, 130):
        rows = found.filter(np.asarray(found["id"]) == node)
        order, cosines = brute_force(vectors, vectors[[ids.index(node)]], len(ids))
        expected = [ids[row] for row in order[0] if ids[row] != node][:5]
        assert rows["rank"].to_pylist() == [1, 2, 3, 4, 5]
        by_id = {ids[row]: cosines[0, row] for row in order[0]}
        np.testing.assert_allclose(rows["cosine"], [by_id[n] for n in expected], atol=1e-6)
        assert node not in rows["neighbor"].to_pylist()


def test_a_node_that_is_not_there(learnt):
    with pytest.raises(KeyError, match="not in the graph"):
        neighbors(learnt[0], [123456])


def test_the_index_finds_what_comparing_all_finds(client, learnt, tmp_path):
    store, run = learnt
    with pytest.raises(BadInputError, match="has no index"):
        neighbors(store, [7], approximate=True)
    embedding = open_store(store).embedding()
    build_index(client, embedding, tmp_path / "index", Session(client))
    nodes = run.ids().to_pylist()[::5]
    exact = neighbors(store, nodes, count=10)
    close = neighbors(store, nodes, count=10, approximate=True)
    there, found = (
        {(row["id"], row["neighbor"]) for row in table.to_pylist()} for table in (exact, close)
    )
    assert len(there & found) >= 0.95 * len(there)
