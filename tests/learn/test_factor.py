"""The d x d factor: its methods, and where the first ones have to give up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl.engine.reduce import FAN_IN, Partials
from figrl.engine.runner import ClusterRunner
from figrl.learn.factor import (
    FactorTask,
    decompose,
    factor_group,
    factor_stages,
)
from figrl.learn.plan import imagined_graph
from figrl.learn.setup import Geometry, Setup, Tiling
from figrl.learn.singular import fix_signs, projector
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.store.arrays import ArraySpec, create_array, open_zarr, write_rows


def stored(path, matrix, chunk_rows):
    create_array(ArraySpec(path, matrix.shape, (chunk_rows, matrix.shape[1])))
    write_rows(open_zarr(path), 0, matrix.astype(np.float32))
    return path


def with_spectrum(rows, values, seed=0):
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(rows, len(values))))
    right, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return (left * values) @ right.T


def partial_factor(tmp_path, matrix, method, *, chunk_rows=8, group_rows=16, stored_rows=None):
    sketch = stored(tmp_path / f"sketch-{method}", matrix, stored_rows or chunk_rows)
    partials = Partials(tmp_path)
    task = FactorTask(sketch, partials, chunk_rows, group_rows, method)
    groups = -(-matrix.shape[0] // group_rows)
    parts = []
    for group in range(groups):
        factor_group(task, group)
        parts.append(np.load(partials.path(group)))
    return parts


def factor_sketch(client, folder, sketch, shape, rows, dim):
    """Run the stages of a factor on a sketch in groups of `rows` rows."""
    options = EmbedOptions(preset="paper", dim=dim, sketch_size=shape[1])
    spec = make_spec(options, nodes=shape[0], mean_degree=1.0)
    graph, tiling = imagined_graph(shape[0], shape[0]), Tiling(shape[1], shape[0])
    setup = Setup(graph, spec, Geometry(rows, rows), tiling, tiling, 1, folder)
    assert sketch == setup.sketch
    return ClusterRunner(client, folder / "marks").run(factor_stages(setup))


@pytest.mark.parametrize(("method", "error"), [("gram", 1e-6), ("gram-double", 1e-13)])
def test_gram_partials_add_up_to_the_gram_matrix(tmp_path, method, error):
    matrix = np.random.default_rng(1).normal(size=(50, 7)).astype(np.float32)
    total = sum(np.triu(part) for part in partial_factor(tmp_path, matrix, method))
    wide = matrix.astype(np.float64)
    np.testing.assert_allclose(total, np.triu(wide.T @ wide), atol=50 * error)


@pytest.mark.parametrize("method", ["gram", "gram-double", "qr"])
def test_how_tall_stored_chunks_are_does_not_change_a_bit(tmp_path, method):
    matrix = np.random.default_rng(1).normal(size=(1000, 32)).astype(np.float32)
    sizes = {"chunk_rows": 32, "group_rows": 128}
    usual = partial_factor(tmp_path / "usual", matrix, method, **sizes)
    for stored_rows in (64, 256, 1024):
        tall = partial_factor(
            tmp_path / str(stored_rows), matrix, method, stored_rows=stored_rows, **sizes
        )
        for first, second in zip(usual, tall, strict=True):
            np.testing.assert_array_equal(first, second)


def test_qr_partials_have_the_same_gram_matrix(tmp_path):
    matrix = np.random.default_rng(1).normal(size=(50, 7)).astype(np.float32)
    parts = partial_factor(tmp_path, matrix, "qr")
    wide = matrix.astype(np.float64)
    np.testing.assert_allclose(sum(p.T @ p for p in parts), wide.T @ wide, rtol=1e-12, atol=1e-12)
    assert all(np.allclose(part, np.triu(part)) for part in parts)


@given(seed=st.integers(0, 1000), columns=st.integers(1, 12), decay=st.floats(0.3, 1.0))
def test_both_ways_give_the_same_decomposition(seed, columns, decay):
    matrix = with_spectrum(40, decay ** np.arange(columns), seed)
    gram_values, gram_vectors = decompose(matrix.T @ matrix, "gram")
    qr_values, qr_vectors = decompose(np.linalg.qr(matrix)[1], "qr")
    exact = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(gram_values, exact, rtol=1e-5)
    np.testing.assert_allclose(qr_values, exact, rtol=1e-10)
    if decay < 0.9:
        overlap = np.abs((gram_vectors * qr_vectors).sum(axis=0))
        np.testing.assert_allclose(overlap, 1, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "method"),
    [
        (np.linspace(1, 0.1, 12), "gram"),
        (np.logspace(0, -3, 12), "gram-double"),
        # Squares of these do not fit float64 beside 1: only QR can tell them from rounding.
        (np.logspace(0, -6.5, 12), "qr"),
    ],
)
def test_ill_conditioned_sketches_take_a_method_to_trust(client, tmp_path, values, method):
    matrix = with_spectrum(4000, values)
    sketch = stored(tmp_path / "sketch", matrix, 128)
    solved = factor_sketch(client, tmp_path, sketch, matrix.shape, 128, 10)
    assert solved["method"] == method
    assert solved["rank"] == 10
    found = np.asarray(open_zarr(tmp_path / "factor" / "singular_values")[...])
    exact = np.linalg.svd(matrix.astype(np.float32).astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(found[:10], exact[:10], rtol=1e-5)
    assert FAN_IN < 4000 / 128, "the test should need a level of combining"


def test_noise_is_not_taken_for_a_direction(client, tmp_path):
    matrix = with_spectrum(500, np.array([1.0, 0.5, 0, 0]))
    sketch = stored(tmp_path / "sketch", matrix, 64)
    solved = factor_sketch(client, tmp_path, sketch, matrix.shape, 64, 4)
    assert (solved["rank"], solved["method"]) == (2, "qr")
    project = projector(tmp_path / "factor")
    assert not project[:, 2:].any()
    left = matrix @ project[:, :2]
    np.testing.assert_allclose(left.T @ left, np.eye(2), atol=1e-5)


def test_the_sign_rule_makes_the_largest_entry_positive():
    vectors = np.array([[0.6, -0.1], [-0.8, 0.2], [0.0, -0.9]])
    flipped = vectors * [1.0, -1.0]
    fix_signs(vectors)
    fix_signs(flipped)
    np.testing.assert_array_equal(vectors, flipped)
    np.testing.assert_array_equal(vectors, [[-0.6, 0.1], [0.8, -0.2], [0.0, 0.9]])
