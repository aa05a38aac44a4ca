"""Projection: a sparse random matrix against a Gaussian one, in time and in what it costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from pipeline.api import Session, run_embed
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig
from pipeline.files import remove
from pipeline.serve.embedding import open_store
from pipeline.study.bench.embed import read_matrix
from pipeline.study.bench.lines import Figure, Line
from pipeline.study.bench.process import run_apart

_EDGES_PER_NODE = (10, 50)
"""A sparse sketch saves on edges, but has as many rows to write."""

_OPTIONS = {"power_iterations": 0, "regularization": 0, "representation": "degree"}


def bench_projection(
    data: Path, *, edges: int = 20_000_000, sketch_size: int = 1000, dim: int = 100
) -> list[Line | Figure]:
    """Compare the sketch stage on large graphs, and the projection cost on ca-HepTh."""
    prepare = "pipeline.study.bench.embed:prepare"
    lines: list[Line | Figure] = []
    for per_node in _EDGES_PER_NODE:
        seconds = {}
        with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
            make = {"folder": folder, "edges": edges, "ids": "int", "per_node": per_node}
            run_apart("pipeline.study.bench.ingest:make", **make)
            store = f"{folder}/store"
            run_apart(prepare, edges=f"{folder}/edges/known", store=store)
            sizes = {"store": store, "sketch_size": sketch_size, "dim": dim}
            for projection in ("gaussian", "sparse-sign"):
                done = run_apart(f"{__name__}:sketch_seconds", projection=projection, **sizes)
                seconds[projection] = done.result["sketch"]
        what = (
            f"sparse-sign: sketch stage, {edges / 1e6:.0f} M edges, {per_node} of a node, "
            f"d = {sketch_size:,}"
        )
        lines.append(Line(what, "gaussian", seconds["sparse-sign"], seconds["gaussian"], wanted=4))
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart(prepare, edges=str(data / "ca-HepTh.txt.gz"), store=folder)
        sizes = {"store": folder, "sketch_size": sketch_size, "dim": dim}
        costs = run_apart(f"{__name__}:relative_costs", **sizes).result
    ratio = costs["sparse-sign"] / costs["gaussian"]
    detail = f"sparse-sign {costs['sparse-sign']:.4f}, gaussian {costs['gaussian']:.4f}"
    of_cost = (
        f"sparse-sign: relative projection cost on ca-HepTh, d = {sketch_size:,}, over gaussian"
    )
    return [*lines, Figure(of_cost, ratio, 1.05, "x", False, detail)]


def sketch_seconds(store: str, projection: str, sketch_size: int, dim: int) -> dict[str, Any]:
    """Seconds of the sketch stage of the paper's method."""
    sizes = {"dim": dim, "sketch_size": sketch_size, "projection": projection}
    with connect(ClusterConfig()) as client:
        report = run_embed(store, EmbedConfig(preset="paper", **sizes), Session(client))
    remove(open_store(store).embedding(report["run"]).path)
    return {stage["name"]: stage["seconds"] for stage in report["stages"]}


def relative_costs(store: str, sketch_size: int, dim: int) -> dict[str, Any]:
    """Relative projection cost of both, the mean of three seeds, against an exact decomposition."""
    matrix = scipy.sparse.csr_matrix(read_matrix(open_store(store).graph), dtype=np.float64)
    # Dense: the many pieces of the graph make many eigenvalues of 1, which Lanczos cannot separate.
    squares = np.sort(scipy.linalg.eigvalsh(matrix.toarray(), overwrite_a=True) ** 2)
    least = float(squares[:-dim].sum())
    found: dict[str, float] = {}
    with connect(ClusterConfig()) as client:
        for projection in ("gaussian", "sparse-sign"):
            costs = []
            for seed in range(3):
                sizes = {"dim": dim, "sketch_size": sketch_size, "seed": seed}
                config = EmbedConfig(projection=projection, **sizes, **_OPTIONS)
                certificate = run_embed(store, config, Session(client))["certificate"]
                costs.append(certificate["square_norm"] - certificate["captured"])
            found[projection] = sum(costs) / len(costs) / least - 1
    return found
