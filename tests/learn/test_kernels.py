"""The sparse product against a dense one, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl.learn.kernels import accumulate


def random_entries(rng: np.random.Generator, nodes: int, entries: int) -> tuple[np.ndarray, ...]:
    cells = np.sort(rng.choice(nodes * nodes, size=min(entries, nodes * nodes), replace=False))
    weights = rng.uniform(0.5, 2, cells.size).astype(np.float32)
    return cells // nodes, cells % nodes, weights


@given(
    seed=st.integers(0, 1000),
    nodes=st.integers(1, 40),
    width=st.integers(1, 19) | st.integers(315, 400),
    degree=st.integers(1, 20),
    weighted=st.booleans(),
)
def test_it_is_the_dense_product(seed, nodes, width, degree, weighted):
    rng = np.random.default_rng(seed)
    rows, columns, weights = random_entries(rng, nodes, degree * nodes)
    dense = np.zeros((nodes, nodes))
    dense[rows, columns] = weights if weighted else 1.0
    operand = rng.normal(size=(nodes, width)).astype(np.float32)
    out = np.zeros((nodes, width), np.float32)
    accumulate(rows, columns, weights if weighted else None, operand, out)
    np.testing.assert_allclose(out, dense @ operand, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("columns_in_all", [9, 330])
@given(seed=st.integers(0, 1000), part=st.integers(1, 30), width=st.integers(1, 330))
def test_blocks_and_slices_do_not_change_a_bit(seed, part, width, weighted, columns_in_all):
    rng = np.random.default_rng(seed)
    nodes = 30
    rows, columns, weights = random_entries(rng, nodes, 400)
    chosen = weights if weighted else None
    operand = rng.normal(size=(nodes, columns_in_all)).astype(np.float32)
    whole = np.zeros_like(operand)
    accumulate(rows, columns, chosen, operand, whole)
    pieces = np.zeros_like(operand)
    for low in range(0, columns_in_all, width):
        out = np.zeros((nodes, min(width, columns_in_all - low)), np.float32)
        for start in range(0, nodes, part):
            held = np.ascontiguousarray(operand[start : start + part, low : low + width])
            accumulate(rows, columns, chosen, held, out, first_column=start)
        pieces[:, low : low + width] = out
    np.testing.assert_array_equal(pieces, whole)
