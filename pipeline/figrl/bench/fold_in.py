"""Fold-in: many new nodes at once, against the paper's formula node by node."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from dask.system import CPU_COUNT

from figrl.bench.harness import fastest, run_both
from figrl.bench.results import Comparison
from figrl.learn.kernels import accumulate
from figrl.learn.spec import DEFAULT_EPSILON, paper_sketch_size

_SIZES = {"known": 200_000, "new": 100_000, "degree": 10, "dim": 128}


def bench_fold_in() -> list[Comparison]:
    """Compare from edges in memory to vectors in memory; both may use all cores.

    The sketch has as many columns as the paper's rule asks for: its formula reads all of them for
    every node, while figrl's fold-in basis has only k.
    """
    size = paper_sketch_size(_SIZES["known"], dim=_SIZES["dim"], epsilon=DEFAULT_EPSILON)
    measured = run_both(ours, node_by_node, sketch_size=size, **_SIZES)
    first, second = (one.result["check"] for one in measured)
    if not np.isclose(first, second, rtol=1e-3):
        raise AssertionError(f"the vectors differ: {first} and {second}")
    what = f"fold-in: 100,000 new nodes of degree 10, k = 128, d = {size:,}"
    other = "the paper's formula in NumPy, node by node"
    return [Comparison.of(what, other, measured, wanted=100, memory=False)]


def _problem(
    known: int, new: int, degree: int, sketch_size: int, dim: int
) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(0)
    neighbours = np.sort(rng.integers(0, known, (new, degree)), axis=1)
    scale = rng.uniform(0.1, 1.0, known).astype(np.float32)
    projection = rng.standard_normal((known, sketch_size), np.float32)
    projector = rng.standard_normal((sketch_size, dim), np.float32) / sketch_size
    return neighbours, scale, projection, projector


def ours(known: int, new: int, degree: int, sketch_size: int, dim: int) -> dict[str, Any]:
    """Sum rows of the fold-in basis with the compiled product."""
    neighbours, scale, projection, projector = _problem(known, new, degree, sketch_size, dim)
    basis = projection @ projector / np.float32(np.sqrt(sketch_size))
    rows = np.repeat(np.arange(new), degree)
    columns = neighbours.reshape(-1)
    vectors = np.empty((new, dim), np.float32)
    cuts = np.linspace(0, new, CPU_COUNT + 1).astype(int)

    def fold(begin: int, end: int) -> None:
        vectors[begin:end] = 0
        entries = slice(begin * degree, end * degree)
        weights = scale[columns[entries]]
        accumulate(rows[entries], columns[entries], weights, basis, vectors)
        vectors[begin:end] *= np.float32(1 / degree)

    with ThreadPoolExecutor(CPU_COUNT) as threads:
        seconds = fastest(lambda: list(threads.map(fold, cuts[:-1], cuts[1:])))
    return {"seconds": seconds, "check": float(np.abs(vectors).sum())}


def node_by_node(known: int, new: int, degree: int, sketch_size: int, dim: int) -> dict[str, Any]:
    """Compute ``b = R l_j / sqrt(d)``, ``y_j = D_j^-1/2 b V S^-1`` for each node."""
    neighbours, scale, projection, projector = _problem(known, new, degree, sketch_size, dim)
    vectors = np.empty((new, dim), np.float32)
    root = np.float32(np.sqrt(degree))
    started = time.perf_counter()
    for node in range(new):
        entries = scale[neighbours[node]] / root
        compressed = entries @ projection[neighbours[node]] / np.float32(np.sqrt(sketch_size))
        vectors[node] = compressed @ projector / root
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": float(np.abs(vectors).sum())}
