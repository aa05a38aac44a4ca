"""Sketch: regenerating R, and the sparse product, per core."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from figrl.bench.harness import fastest, real_store, run_both
from figrl.bench.results import Comparison
from figrl.learn.kernels import accumulate
from figrl.learn.projection import fill_projection
from figrl.serve.embedding import open_store
from figrl.study.graphs import read_adjacency


def bench_regenerate() -> list[Comparison]:
    """Compare rows of R regenerated from keys with NumPy's fastest normals."""
    what = "R made again from seeds, 100,000 x 1,000, one core"
    other = "NumPy Philox standard_normal float32"
    return [Comparison.of(what, other, run_both(regenerate, philox), wanted=8, memory=False)]


def bench_product(data: Path) -> list[Comparison]:
    """Compare the sparse product with scipy's, on com-dblp."""
    found = []
    with real_store(data, "com-dblp") as store:
        for width, wanted in ((128, 1.5), (1000, 3.0)):
            measured = run_both(product, scipy_product, store=store, width=width)
            what = f"sparse product, com-dblp, d = {width:,}, one core"
            other = "scipy csr @ dense"
            found.append(Comparison.of(what, other, measured, wanted=wanted, memory=False))
    return found


def regenerate() -> dict[str, Any]:
    """Regenerate a block of R."""
    keys = np.arange(100_000, dtype=np.uint64)
    scale = np.ones(keys.size, np.float32)
    out = np.empty((keys.size, 1000), np.float32)
    fill = partial(fill_projection, keys, seed=0, first_column=0, scale=scale, out=out)
    return {"seconds": fastest(fill)}


def philox() -> dict[str, Any]:
    """Draw as many normals with NumPy."""
    rng = np.random.Generator(np.random.Philox(0))
    out = np.empty((100_000, 1000), np.float32)
    return {"seconds": fastest(lambda: rng.standard_normal(out=out, dtype=np.float32))}


def product(store: str, width: int) -> dict[str, Any]:
    """Multiply with figrl's kernel."""
    matrix = read_adjacency(open_store(store).graph)
    nodes, columns = matrix.shape[0], matrix.indices.astype(np.int64)
    rows = np.repeat(np.arange(nodes), np.diff(matrix.indptr))
    operand = np.random.default_rng(0).standard_normal((nodes, width), np.float32)
    out = np.zeros((nodes, width), np.float32)

    def call() -> None:
        out[:] = 0
        accumulate(rows, columns, None, operand, out)

    return {"seconds": fastest(call)}


def scipy_product(store: str, width: int) -> dict[str, Any]:
    """Multiply with scipy."""
    matrix = read_adjacency(open_store(store).graph)
    operand = np.random.default_rng(0).standard_normal((matrix.shape[0], width), np.float32)
    return {"seconds": fastest(lambda: matrix @ operand)}
