"""Neighbour lists of stored graphs and of matrices, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from figrl import ingest
from figrl.analyze import adjacency
from figrl.analyze.adjacency import open_adjacency, write_adjacency
from figrl.serve.embedding import open_store
from tests.analyze.lists import adjacency_of
from tests.reference import DenseGraph, write_edges


def some_edges(*, weighted: bool) -> list[tuple]:
    """Edges of 150 nodes, some twice, some loops, so that some nodes have none but a loop."""
    rng = np.random.default_rng(5)
    ends = [(int(a), int(b)) for a, b in rng.integers(0, 150, (400, 2))]
    ends += [(200, 200), (201, 201)]
    if weighted:
        return [(a, b, float(w)) for (a, b), w in zip(ends, rng.random(402) + 0.5, strict=True)]
    return ends


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stored_graph_comes_back_whole(client, tmp_path, weighted):
    edges = some_edges(weighted=weighted)
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client, block_rows=32)
    graph = open_store(tmp_path / "store").graph
    assert graph.blocks > 3
    dense = DenseGraph.of(edges)

    folder = write_adjacency(graph, tmp_path / "lists")
    lists = open_adjacency(folder)
    assert (lists.weights is None) != weighted
    assert lists.nodes == len(dense.ids)
    assert lists.starts.dtype == np.int64
    assert lists.neighbours.dtype == np.int32
    np.testing.assert_allclose(lists.matrix().toarray(), dense.weights, rtol=1e-6)
    np.testing.assert_allclose(lists.degrees, dense.degrees, rtol=1e-6)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_what_is_there_is_not_written_again(client, tmp_path):
    path = write_edges(tmp_path / "edges.parquet", some_edges(weighted=False))
    ingest(path, store=tmp_path / "store", client=client)
    graph = open_store(tmp_path / "store").graph
    folder = write_adjacency(graph, tmp_path / "lists")
    before = (folder / "starts.npy").stat().st_mtime_ns
    assert write_adjacency(graph, folder) == folder
    assert (folder / "starts.npy").stat().st_mtime_ns == before


def test_a_matrix_loses_its_diagonal_and_nothing_else():
    matrix = np.array([[7.0, 1, 0, 0], [1, 0, 2.5, 0], [0, 2.5, 0, 0], [0, 0, 0, 3]])
    lists = adjacency_of(sp.coo_array(matrix))
    np.testing.assert_array_equal(lists.starts, [0, 1, 3, 4, 4])
    np.testing.assert_array_equal(lists.neighbours, [1, 0, 2, 1])
    np.testing.assert_array_equal(lists.weights, np.float32([1, 1, 2.5, 2.5]))
    np.testing.assert_array_equal(lists.degrees, [1, 3.5, 2.5, 0])
    assert adjacency_of(sp.csr_matrix(matrix[:2, :2])).weights is None


def test_lists_that_are_written_twice_at_once_are_whole(client, tmp_path, monkeypatch):
    """Whoever comes second finds them done."""
    path = write_edges(tmp_path / "e.parquet", [(1, 2), (2, 3), (3, 1), (3, 4)])
    graph = ingest(path, store=tmp_path / "s", client=client)
    folder = tmp_path / "lists"
    fill = adjacency.fill_lists

    def fill_after_another(*args):
        monkeypatch.undo()
        write_adjacency(graph, folder)
        fill(*args)

    monkeypatch.setattr(adjacency, "fill_lists", fill_after_another)
    assert write_adjacency(graph, folder) == folder
    assert open_adjacency(folder).starts.tolist() == [0, 2, 4, 7, 8]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
