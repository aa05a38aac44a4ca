"""Sketch: making R again, and the sparse product, per core."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from pipeline.learn.kernels import accumulate
from pipeline.learn.projection import fill_projection
from pipeline.rates import fastest
from pipeline.serve.embedding import open_store
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import run_apart


def bench_regenerate() -> list[Line]:
    """Compare rows of R made from keys with NumPy's fastest normals."""
    ours = run_apart(f"{__name__}:regenerate")
    other = run_apart(f"{__name__}:philox")
    return [
        Line(
            "R made again from seeds, 100,000 x 1,000, one core",
            "NumPy Philox standard_normal float32",
            ours.seconds,
            other.seconds,
            wanted=8,
        )
    ]


def bench_product(data: Path) -> list[Line]:
    """Compare the sparse product with scipy's, on com-dblp."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart(
            "pipeline.study.bench.embed:prepare", edges=str(data / "com-dblp.txt.gz"), store=folder
        )
        for width, wanted in ((128, 1.5), (1000, 3.0)):
            ours = run_apart(f"{__name__}:product", store=folder, width=width)
            other = run_apart(f"{__name__}:scipy_product", store=folder, width=width)
            what = f"sparse product, com-dblp, d = {width:,}, one core"
            lines.append(
                Line(what, "scipy csr @ dense", ours.seconds, other.seconds, wanted=wanted)
            )
    return lines


def regenerate() -> dict[str, Any]:
    """Make a block of R."""
    keys = np.arange(100_000, dtype=np.uint64)
    scale = np.ones(keys.size, np.float32)
    out = np.empty((keys.size, 1000), np.float32)
    return {
        "seconds": fastest(
            lambda: fill_projection(keys, seed=0, first_column=0, scale=scale, out=out)
        )
    }


def philox() -> dict[str, Any]:
    """Draw as many normals with NumPy."""
    rng = np.random.Generator(np.random.Philox(0))
    out = np.empty((100_000, 1000), np.float32)
    return {"seconds": fastest(lambda: rng.standard_normal(out=out, dtype=np.float32))}


def _entries(store: str) -> tuple[Any, Any, int]:
    graph = open_store(store).graph
    runs = [run for block in range(graph.blocks) for run in graph.edge_runs(block)]
    rows, columns = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    return rows, columns, graph.nodes


def product(store: str, width: int) -> dict[str, Any]:
    """Multiply with figrl's kernel."""
    rows, columns, nodes = _entries(store)
    operand = np.random.default_rng(0).standard_normal((nodes, width), np.float32)
    out = np.zeros((nodes, width), np.float32)

    def call() -> None:
        out[:] = 0
        accumulate(rows, columns, None, operand, out)

    return {"seconds": fastest(call)}


def scipy_product(store: str, width: int) -> dict[str, Any]:
    """Multiply with scipy."""
    rows, columns, nodes = _entries(store)
    ones = np.ones(rows.size, np.float32)
    matrix = scipy.sparse.csr_matrix((ones, (rows, columns)), shape=(nodes, nodes))
    operand = np.random.default_rng(0).standard_normal((nodes, width), np.float32)
    return {"seconds": fastest(lambda: matrix @ operand)}
