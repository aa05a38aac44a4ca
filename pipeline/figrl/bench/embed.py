"""Embed: the paper in memory, and memory limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from figrl.bench.harness import local_session, planted_store, real_store, run_both
from figrl.bench.results import Comparison
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.arrays import open_zarr
from figrl.store.files import delete, file_digest
from figrl.store.graph import Graph
from figrl.study.graphs import read_adjacency
from figrl.study.process import measure_in_process

_EDGES_PER_NODE = (10, 50)
"""A sparse sketch saves time per edge, but has as many rows to write."""


def bench_embed(data: Path, *, sketch_size: int = 1000, dim: int = 100) -> list[Comparison]:
    """Compare with the paper in memory on com-dblp; start-up of both is counted."""
    with real_store(data, "com-dblp") as store:
        measured = run_both(ours, in_memory, store=store, sketch_size=sketch_size, dim=dim)
    what = f"embed: com-dblp, d = {sketch_size:,}, k = {dim}, preset paper"
    other = "the paper in memory: scipy product, thin np.linalg.svd"
    return [Comparison.of(what, other, measured, wanted=8, wanted_memory=3)]


def bench_limit(
    *, edges: int = 20_000_000, sketch_size: int = 1000, dim: int = 100
) -> list[Comparison]:
    """Compare a memory limit of an eighth of the sketch with no limit: same bits."""
    with planted_store(edges) as store:
        nodes = open_store(store).graph.nodes
        limit = nodes * sketch_size * 4 // 8
        sizes: dict[str, Any] = {"store": store, "sketch_size": sketch_size, "dim": dim}
        free = measure_in_process(ours, **sizes)
        limited = measure_in_process(ours, limit_bytes=limit, **sizes)
    if free.result["vectors"] != limited.result["vectors"]:
        raise AssertionError("the vectors depend on the memory limit")
    what = (
        f"limit: {nodes / 1e6:.2g} M nodes, d = {sketch_size:,}, a worker limited to "
        f"{limit / 1e9:.2g} GB, an eighth of the sketch"
    )
    return [Comparison.of(what, "the same without a limit", (limited, free), wanted=1 / 1.5)]


def ours(
    store: str,
    sketch_size: int,
    dim: int,
    *,
    limit_bytes: int | None = None,
) -> dict[str, Any]:
    """Embed with figrl, cluster included.

    Returns digests of the vectors' chunks, and deletes the run.
    """
    started = time.perf_counter()
    config = EmbedOptions(preset="paper", dim=dim, sketch_size=sketch_size)
    with local_session(limit_bytes) as session:
        report = run_embed(store, config, session)
    seconds = time.perf_counter() - started
    run = open_store(store).embedding(report["run"]).path
    chunks = sorted((run / "embedding" / "c").rglob("*"))
    digests = [file_digest(chunk) for chunk in chunks if chunk.is_file()]
    delete(run)
    return {"seconds": seconds, "vectors": digests}


def in_memory(store: str, sketch_size: int, dim: int) -> None:
    """Compute the paper's method as in a notebook."""
    graph = open_store(store).graph
    matrix = read_matrix(graph)
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((graph.nodes, sketch_size), np.float32)
    sketch = matrix @ projection / np.float32(np.sqrt(sketch_size))
    del projection
    left, _, _ = np.linalg.svd(sketch, full_matrices=False)
    degrees = np.asarray(open_zarr(graph.degrees_path)[...])
    vectors = left[:, :dim] / np.sqrt(degrees)[:, None].astype(np.float32)
    np.save(Path(store) / "in-memory.npy", vectors)


def read_matrix(graph: Graph, regularization: float = 0.0) -> scipy.sparse.csr_matrix:
    """The normalised matrix of an unweighted graph, in memory."""
    matrix = read_adjacency(graph)
    root = 1 / np.sqrt(np.asarray(open_zarr(graph.degrees_path)[...]) + regularization)
    rows = np.repeat(np.arange(graph.nodes), np.diff(matrix.indptr))
    matrix.data = (root[rows] * root[matrix.indices]).astype(np.float32)
    return matrix
