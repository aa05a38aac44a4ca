"""Tiles of a product, one after the other, against dense products."""

from __future__ import annotations

import numpy as np
import pytest

from figrl import ingest
from figrl.engine.worker import release_buffers, worker_state
from figrl.learn.operand import Columns, ProductTask
from figrl.learn.product import product_stage
from figrl.learn.setup import Geometry, Setup, Tiling
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.store.arrays import ArraySpec, create_array, open_zarr
from tests.learn.test_embed import random_edges
from tests.reference import DenseGraph, write_edges

SIZE = 22
SPEC = make_spec(
    EmbedOptions(preset="paper", dim=2, sketch_size=SIZE, seed=5), nodes=70, mean_degree=1.0
)


@pytest.fixture(scope="module")
def graphs(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sketch")
    edges = random_edges(9, 70, weighted=True, parts=2)
    path = write_edges(folder / "edges.parquet", edges)
    return ingest(path, store=folder / "store", client=client, block_rows=32), DenseGraph.of(edges)


def products(graph, folder, count, *, tiling, kept_bytes=0):
    """K_1 to K_count, as the tiles of a run would write them."""
    results, operand, before = [], None, None
    for t in range(1, count + 1):
        out = folder / f"z{t}"
        array = ArraySpec(out, (graph.nodes, SIZE), (16, tiling.slice_columns))
        create_array(array)
        setup = Setup(graph, SPEC, Geometry(16, 16), tiling, tiling, 1, folder, kept_bytes)
        factors = (1.0, 0.0) if before is None else (2.0, 1.0)
        task = ProductTask(setup, tiling, operand, Columns(out), SIZE, before, factors)
        stage = product_stage(task, "product", t, (array,))
        for block in stage.blocks:
            stage.function(*block.args)
        results.append(np.asarray(open_zarr(out)[...]))
        operand, before = Columns(out), operand
    release_buffers()
    return results


def test_products_are_those_of_the_dense_matrix(graphs, tmp_path):
    graph, dense = graphs
    start = dense.projection(SIZE, seed=5) / np.sqrt(SIZE)
    expected = [dense.normalised @ start, dense.normalised @ dense.normalised @ start]
    for _ in range(3):
        expected.append(2 * dense.normalised @ expected[-1] - expected[-2])
    found = products(graph, tmp_path, 5, tiling=Tiling(8, graph.nodes))
    for ours, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize(
    "tiling",
    [
        *(Tiling(4, 10**6), Tiling(22, 10**6)),
        # In the hands of one worker, read by blocks or held whole.
        *(Tiling(8, 10**6, chain=1), Tiling(20, 10**6, chain=1, holds_graph=True)),
        # A grid: the operand in parts, past one, two and three row groups.
        *(Tiling(8, 48), Tiling(20, 16, groups=2), Tiling(22, 30, groups=3)),
    ],
    ids=str,
)
def test_tiles_do_not_change_a_bit(graphs, tmp_path, tiling):
    graph, _ = graphs
    assert graph.blocks == 5
    usual = products(graph, tmp_path / "usual", 3, tiling=Tiling(8, graph.nodes))
    other = products(graph, tmp_path / "other", 3, tiling=tiling)
    for first, second in zip(usual, other, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kept_bytes", [500, 3_000, 10**9])
def test_a_graph_that_is_kept_in_part_does_not_change_a_bit(
    graphs, tmp_path, monkeypatch, kept_bytes
):
    graph, _ = graphs
    whole = type(graph).row_groups
    usual = products(graph, tmp_path / "usual", 2, tiling=Tiling(4, graph.nodes))

    def in_small_runs(self, block):
        for rows, columns, weights in whole(self, block):
            for start in range(0, rows.size, 10):
                part = slice(start, start + 10)
                yield rows[part], columns[part], weights[part]
                if start == 20:
                    # As another job on the same worker would when it ends.
                    worker_state().kept.release()

    monkeypatch.setattr(type(graph), "row_groups", in_small_runs)
    sizes = {"tiling": Tiling(4, graph.nodes), "kept_bytes": kept_bytes}
    for first, second in zip(usual, products(graph, tmp_path / "kept", 2, **sizes), strict=True):
        np.testing.assert_array_equal(first, second)
