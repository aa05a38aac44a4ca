"""Tiles of a product, one after the other, against dense products."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from pipeline import ingest
from pipeline.arrays import ensure_zarr, open_zarr
from pipeline.learn.buffers import kept, release_buffers
from pipeline.learn.sketch import SketchTask, sketch_tile
from tests.learn.test_embed import random_edges
from tests.reference import DenseGraph, write_edges

SIZE = 22


@pytest.fixture(scope="module")
def graphs(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sketch")
    edges = random_edges(9, 70, weighted=True, parts=2)
    path = write_edges(folder / "edges.parquet", edges)
    return ingest(path, store=folder / "store", client=client, block_rows=32), DenseGraph.of(edges)


def products(graph, folder, count, *, columns, operand_rows, kept_bytes=0):
    """Z_1 to Z_count, as the tiles of a run would write them."""
    results, operand = [], None
    for t in range(1, count + 1):
        out = folder / f"z{t}"
        ensure_zarr(out, shape=(graph.nodes, SIZE), chunks=(16, columns), dtype=np.float32)
        task = SketchTask(graph, operand, out, SIZE, columns, operand_rows, 5, kept_bytes)
        for slice_number, block in product(range(task.slices), range(graph.blocks)):
            sketch_tile(task, block, slice_number)
        results.append(np.asarray(open_zarr(out)[...]))
        operand = out
    release_buffers()
    return results


def test_products_are_those_of_the_dense_matrix(graphs, tmp_path):
    graph, dense = graphs
    expected = dense.projection(SIZE, seed=5) / np.sqrt(SIZE)
    for found in products(graph, tmp_path, 3, columns=8, operand_rows=graph.nodes):
        expected = dense.normalised @ expected
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("columns", "operand_rows"), [(4, 10**6), (22, 10**6), (8, 48), (20, 16)])
def test_tiles_do_not_change_a_bit(graphs, tmp_path, columns, operand_rows):
    graph, _ = graphs
    usual = products(graph, tmp_path / "usual", 3, columns=8, operand_rows=graph.nodes)
    other = products(graph, tmp_path / "other", 3, columns=columns, operand_rows=operand_rows)
    for first, second in zip(usual, other, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kept_bytes", [500, 3_000, 10**9])
def test_a_graph_that_is_kept_in_part_does_not_change_a_bit(
    graphs, tmp_path, monkeypatch, kept_bytes
):
    graph, _ = graphs
    whole = type(graph).edge_runs
    usual = products(graph, tmp_path / "usual", 2, columns=4, operand_rows=graph.nodes)

    def in_small_runs(self, block):
        for rows, columns, weights in whole(self, block):
            for start in range(0, rows.size, 10):
                part = slice(start, start + 10)
                yield rows[part], columns[part], weights[part]
                if start == 20:
                    # As another job on the same worker would when it ends.
                    kept.release()

    monkeypatch.setattr(type(graph), "edge_runs", in_small_runs)
    sizes = {"columns": 4, "operand_rows": graph.nodes, "kept_bytes": kept_bytes}
    for first, second in zip(usual, products(graph, tmp_path / "kept", 2, **sizes), strict=True):
        np.testing.assert_array_equal(first, second)
