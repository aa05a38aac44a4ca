"""R: a node's row depends on nothing but the node and the seed, and it is normal noise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from figrl.learn.projection import fill_projection, quantile_table
from figrl.store.ids import node_keys


def block(keys: np.ndarray, columns: int, *, seed: int = 0, first: int = 0) -> np.ndarray:
    out = np.empty((keys.size, columns), np.float32)
    ones = np.ones(keys.size, np.float32)
    fill_projection(keys, seed=seed, first_column=first, scale=ones, out=out)
    return out


@given(
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=30, unique=True),
    order=st.randoms(use_true_random=False),
    columns=st.integers(1, 40),
    cut=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_row_does_not_depend_on_order_block_or_other_nodes(ids, order, columns, cut, seed):
    keys = node_keys(pa.array(ids, pa.int64()))
    whole = block(keys, columns, seed=seed)
    places = list(range(len(ids)))
    order.shuffle(places)
    np.testing.assert_array_equal(block(keys[places], columns, seed=seed), whole[places])
    np.testing.assert_array_equal(block(keys[:1], columns, seed=seed), whole[:1])
    first = min(4 * cut, columns // 4 * 4)
    if first < columns:
        part = block(keys, columns - first, seed=seed, first=first)
        np.testing.assert_array_equal(part, whole[:, first:])


@given(texts=st.lists(st.text(max_size=12), min_size=2, max_size=20, unique=True))
def test_the_key_of_a_string_comes_from_its_text_alone(texts):
    together = node_keys(pa.array(texts, pa.large_string()))
    alone = [node_keys(pa.array([text], pa.large_string()))[0] for text in texts]
    assert together.tolist() == alone
    assert len(set(alone)) == len(texts)


def test_rows_are_the_same_on_every_machine_and_version():
    values = block(node_keys(pa.array([0, 1, -1], pa.int64())), 5, seed=7)
    expected = block(node_keys(pa.array([0, 1, -1], pa.int64())), 5, seed=7)
    np.testing.assert_array_equal(values, expected)
    table = quantile_table()
    assert np.isin(values, table).all()


def test_the_scale_multiplies_rows():
    keys = node_keys(pa.array(range(5), pa.int64()))
    out = np.empty((5, 8), np.float32)
    scale = np.array([0, 1, 2, 4, 0.5], np.float32)
    fill_projection(keys, seed=3, first_column=0, scale=scale, out=out)
    np.testing.assert_array_equal(out, block(keys, 8, seed=3) * scale[:, None])


def test_a_block_may_only_begin_where_a_mix_begins():
    with pytest.raises(AssertionError, match="column 6"):
        block(np.zeros(1, np.uint64), 4, first=6)


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return block(node_keys(pa.array(range(4000), pa.int64())), 256, seed=11).astype(np.float64)


def test_moments_are_those_of_a_normal_variable(noise):
    count = noise.size
    assert abs(noise.mean()) < 4 / np.sqrt(count)
    assert abs(noise.var() - 1) < 4 * np.sqrt(2 / count)
    assert abs(scipy.stats.skew(noise, axis=None)) < 4 * np.sqrt(6 / count)
    assert abs(scipy.stats.kurtosis(noise, axis=None)) < 4 * np.sqrt(24 / count) + 2e-3


def test_the_distribution_is_normal(noise):
    assert scipy.stats.kstest(noise.ravel()[:200_000], "norm").pvalue > 1e-3
    edges = scipy.stats.norm.ppf(np.linspace(0, 1, 201))
    counts, _ = np.histogram(noise, edges)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_neighbouring_rows_and_columns_are_independent(noise, step):
    pairs = noise[:, :-step].ravel(), noise[:, step:].ravel()
    rows = noise[:-step].ravel(), noise[step:].ravel()
    for a, b in (pairs, rows):
        bound = 4.5 / np.sqrt(a.size)
        assert abs(np.mean(a * b)) < bound
        # Squares would show a dependence that signs hide.
        assert abs(np.mean((a**2 - 1) * (b**2 - 1))) / 2 < bound


def test_rows_of_all_pairs_of_nodes_are_nearly_orthogonal(noise):
    gram = noise[:500] @ noise[:500].T / noise.shape[1]
    off = gram[~np.eye(500, dtype=bool)]
    assert np.abs(off).max() < 6 / np.sqrt(noise.shape[1])
    assert abs(off.std() * np.sqrt(noise.shape[1]) - 1) < 0.02


def test_another_seed_gives_independent_rows(noise):
    other = block(node_keys(pa.array(range(4000), pa.int64())), 256, seed=12)
    assert abs(np.mean(noise * other)) < 4.5 / np.sqrt(noise.size)


def test_neighbouring_seeds_do_not_swap_rows():
    keys = node_keys(pa.array(range(64), pa.int64()))
    rows = np.concatenate([block(keys, 8, seed=seed) for seed in range(16)])
    assert len(np.unique(rows, axis=0)) == rows.shape[0]
