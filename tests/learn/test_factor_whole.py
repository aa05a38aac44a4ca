"""Sketches with very many columns: their largest singular values, in one task."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import list_stages
from figrl.learn.factor import factor_stages
from figrl.learn.factor_whole import MANY_COLUMNS
from figrl.learn.lanczos import basis_columns, largest_eigenpairs
from figrl.learn.plan import imagined_graph, plan_embedding
from figrl.learn.setup import Geometry, Setup, Tiling
from figrl.learn.singular import projector
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.learn.tiled_gram import TiledGram
from figrl.store.arrays import load_zarr
from tests.learn.test_embed import random_edges
from tests.learn.test_factor import stored, with_spectrum
from tests.reference import DenseGraph, largest_angle

MANY = 300
"""In place of ten thousand columns."""


def setup_of(folder, shape, dim, threads=1):
    options = EmbedOptions(preset="paper", dim=dim, sketch_size=shape[1])
    spec = make_spec(options, nodes=shape[0], mean_degree=1.0)
    graph, tiling = imagined_graph(shape[0], shape[0]), Tiling(shape[1], shape[0])
    return Setup(graph, spec, Geometry(256, 256), tiling, tiling, threads, folder)


def factor(client, folder, matrix, dim, threads=1, chunk_rows=256):
    setup = setup_of(folder, matrix.shape, dim, threads)
    stored(setup.sketch, matrix, chunk_rows)
    runner = ClusterRunner(client, folder / "marks")
    solved = runner.run(factor_stages(setup, many_columns=MANY))
    values, right = (load_zarr(folder / "factor" / n) for n in ("singular_values", "right_vectors"))
    return solved, values, right


@pytest.fixture(scope="module")
def sketch():
    """The paper's sketch of a graph of some 750 nodes in three components."""
    graph = DenseGraph.of(random_edges(5, 250, weighted=True, parts=3))
    return (graph.normalised @ graph.projection(400, 0) / 20).astype(np.float32)


def test_it_is_the_dense_svd_of_a_graphs_sketch(client, tmp_path, sketch):
    solved, values, right = factor(client, tmp_path, sketch, 20)
    _, exact, rows = np.linalg.svd(sketch.astype(np.float64), full_matrices=False)
    assert (solved["method"], solved["rank"]) == ("gram-largest", 20)
    assert solved["residual"] <= 1e-5
    np.testing.assert_allclose(values, exact[:20], rtol=1e-5)
    # Vectors are as exact as the residual over the gap to the next value.
    gap = (exact[19] ** 2 - exact[20] ** 2) / exact[0] ** 2
    assert largest_angle(right, rows[:20].T) < 3e-5 / gap < 0.1
    left = sketch @ projector(tmp_path / "factor")
    np.testing.assert_allclose(left.T @ left, np.eye(20), atol=1e-4)


def test_bits_depend_on_neither_threads_nor_stored_chunks(client, tmp_path, sketch):
    _, *usual = factor(client, tmp_path / "usual", sketch, 20)
    for threads, chunk_rows in ((2, 256), (3, 1024)):
        folder = tmp_path / str(threads)
        _, *other = factor(client, folder, sketch, 20, threads, chunk_rows)
        for first, second in zip(usual, other, strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("smallest", [1e-3, 1e-4])
def test_small_singular_values_take_double_precision(client, tmp_path, smallest):
    spectrum = np.append(np.geomspace(1, smallest, 20), np.full(380, smallest / 10))
    matrix = with_spectrum(1000, spectrum).astype(np.float32)
    solved, values, _ = factor(client, tmp_path, matrix, 20)
    assert (solved["method"], solved["rank"]) == ("gram-double-largest", 20)
    exact = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(values, exact[:20], rtol=1e-5)


def test_noise_is_not_taken_for_a_direction(client, tmp_path):
    matrix = with_spectrum(1000, np.append([1.0, 0.5, 0.4], np.zeros(397))).astype(np.float32)
    solved, _, _ = factor(client, tmp_path, matrix, 20)
    assert (solved["method"], solved["rank"]) == ("gram-double-largest", 3)
    project = projector(tmp_path / "factor")
    assert project[:, :3].any(axis=0).all()
    assert not project[:, 3:].any()


def test_a_full_basis_is_restarted_from_its_best_vectors():
    size, count = 500, 10
    values = np.append(np.linspace(1, 0.951, count), np.linspace(0.95, 0, size - count))
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(size, size)))
    matrix = (turn * values) @ turn.T
    columns = 0

    def multiply(block):
        nonlocal columns
        columns += block.shape[1]
        return matrix @ block

    found, vectors, residual = largest_eigenpairs(multiply, size, count, tolerance=1e-9)
    assert columns > basis_columns(size, count), "the test should need a restart"
    assert residual <= 1e-9
    np.testing.assert_allclose(found, values[:count], rtol=1e-12)
    true = np.linalg.norm(matrix @ vectors - vectors * found, axis=0)
    assert true.max() < 1.1e-9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_are_the_gram_matrix(dtype):
    rng = np.random.default_rng(2)
    rows, block = rng.normal(size=(90, 70)).astype(np.float32), rng.normal(size=(70, 5))
    gram = TiledGram(70, dtype, 2, tile=32)
    gram.add(rows[:50])
    gram.add(rows[50:])
    wide = rows.astype(np.float64)
    error = 1e-12 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(gram.multiply(block), wide.T @ wide @ block, atol=error)


def test_the_stage_stays_within_its_memory(tmp_path):
    # Larger than what is read through the system's cache.
    matrix = np.random.default_rng(4).standard_normal((9000, 2000), np.float32)
    matrix[:, :20] *= np.linspace(5, 3, 20, dtype=np.float32)
    setup = setup_of(tmp_path, matrix.shape, 20, threads=2)
    stored(setup.sketch, matrix, 1024)
    del matrix
    first, _ = list_stages(factor_stages(setup, many_columns=MANY))
    tracemalloc.start()
    stats = first.function(*first.blocks[0].args)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stats["trusted"]
    assert 0.6 * first.memory.task_bytes < peak <= first.memory.task_bytes


def test_the_papers_setting_fits_four_gigabytes():
    options = EmbedOptions(preset="paper", dim=200, epsilon=0.1)
    memory = ClusterMemory(1, 2, 4_000_000_000)
    for nodes, edges in ((1_224, 16_715), (9_875, 25_973), (23_133, 93_439)):
        plan = plan_embedding(imagined_graph(nodes, edges), options, memory)
        assert plan.setup.columns == 20_000
        assert plan.peak_bytes <= memory.allowed_bytes, nodes


def test_fewer_columns_are_factored_as_ever(tmp_path):
    setup = setup_of(tmp_path, (2 * MANY_COLUMNS, MANY_COLUMNS), 100)
    names = {stage.name for stage in list_stages(factor_stages(setup))}
    assert {"factor-solve", "factor-qr"} <= names
    more = setup_of(tmp_path, (2 * MANY_COLUMNS, MANY_COLUMNS + 1), 100)
    assert [s.name for s in list_stages(factor_stages(more))] == ["factor", "factor-double"]
