"""The sparse projection: its rows, and its product against the dense one."""

from __future__ import annotations

import numpy as np
import pytest

from figrl.learn.sparse_sign import (
    accumulate_packed,
    codes_in_row,
    expand,
    fill_packed,
    packed_width,
)


def rows_of_r(count: int, size: int, *, probes: int = 0, seed: int = 0):
    packed = np.empty((count, packed_width(size, probes)), np.float32)
    keys = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    fill_packed(keys, seed=seed, size=size, scale=np.ones(count, np.float32), out=packed)
    dense = np.empty((count, size + probes), np.float32)
    expand(packed, size, dense)
    return packed, dense


@pytest.mark.parametrize("size", [3, 8, 50, 1000])
def test_rows_have_a_few_entries_of_one_size(size):
    _, dense = rows_of_r(500, size)
    codes = codes_in_row(size)
    assert (np.count_nonzero(dense, axis=1) == codes).all()
    np.testing.assert_allclose(np.abs(dense[dense != 0]), np.sqrt(size / codes), rtol=1e-6)
    np.testing.assert_allclose((dense**2).sum(axis=1), size, rtol=1e-5)


def test_rows_are_uncorrelated_and_columns_are_used_alike():
    _, dense = rows_of_r(20_000, 64)
    inner = dense[:2000].astype(np.float64) @ dense[2000:4000].T / 64
    assert abs(inner.mean()) < 5e-4
    assert inner.std() == pytest.approx(1 / 8, rel=0.02)
    used = np.count_nonzero(dense, axis=0)
    assert np.abs(used - 2500).max() < 250
    assert np.abs(np.sign(dense).sum(axis=0)).max() < 250


def test_probes_are_normal_and_do_not_depend_on_the_codes():
    _, dense = rows_of_r(20_000, 32, probes=16)
    probes = dense[:, 32:]
    assert abs(probes.mean()) < 0.01
    assert probes.std() == pytest.approx(1, rel=0.01)
    correlation = np.corrcoef(dense.T)[:32, 32:]
    assert np.abs(correlation).max() < 0.04


def test_the_product_with_codes_is_that_with_dense_rows():
    packed, dense = rows_of_r(60, 40, probes=4)
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((25, 60)) < 0.3, rng.random((25, 60)), 0).astype(np.float32)
    rows, columns = np.nonzero(matrix)
    for first, last in ((0, 60), (10, 47)):
        out = np.zeros((25, 44), np.float32)
        accumulate_packed(
            rows + 100,
            columns,
            matrix[rows, columns],
            packed[first:last],
            out,
            size=40,
            first_row=100,
            first_column=first,
        )
        expected = matrix[:, first:last] @ dense[first:last]
        np.testing.assert_allclose(out, expected, atol=1e-4)


def test_another_seed_gives_other_rows():
    first, second = rows_of_r(50, 64)[1], rows_of_r(50, 64, seed=1)[1]
    assert not (first == second).all(axis=1).any()
