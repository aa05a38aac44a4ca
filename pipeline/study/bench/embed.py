"""Embed: from the stored graph to the stored vectors, against the paper in memory."""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse

from pipeline.api import Session, run_embed, run_ingest
from pipeline.arrays import open_zarr
from pipeline.cluster import ClusterConfig, LocalCluster, connect
from pipeline.config import EmbedConfig, IngestConfig
from pipeline.files import remove
from pipeline.graph import Graph
from pipeline.serve.embedding import open_store
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import run_apart


def bench_embed(data: Path, *, sketch_size: int = 1000, dim: int = 100) -> list[Line]:
    """Compare on com-dblp; start-up of both is counted."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart(f"{__name__}:prepare", edges=str(data / "com-dblp.txt.gz"), store=folder)
        sizes = {"store": folder, "sketch_size": sketch_size, "dim": dim}
        ours = run_apart(f"{__name__}:ours", **sizes)
        other = run_apart(f"{__name__}:in_memory", **sizes)
    what = f"embed: com-dblp, d = {sketch_size:,}, k = {dim}, preset paper"
    rival = "the paper in memory: scipy product, thin np.linalg.svd"
    return [Line.of(what, rival, ours, other, wanted=8, wanted_memory=3)]


def bench_limit(*, edges: int = 20_000_000, sketch_size: int = 1000, dim: int = 100) -> list[Line]:
    """Compare a memory limit of an eighth of the sketch with no limit: same bits."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart("pipeline.study.bench.ingest:make", folder=folder, edges=edges, ids="int")
        run_apart(f"{__name__}:prepare", edges=f"{folder}/edges/known", store=f"{folder}/store")
        nodes = open_store(f"{folder}/store").graph.nodes
        limit = nodes * sketch_size * 4 // 8
        sizes = {"store": f"{folder}/store", "sketch_size": sketch_size, "dim": dim}
        free = run_apart(f"{__name__}:ours_once", **sizes)
        tight = run_apart(f"{__name__}:ours_once", limit_bytes=limit, **sizes)
    if free.result["vectors"] != tight.result["vectors"]:
        raise AssertionError("a memory limit changed the vectors")
    what = (
        f"limit: {nodes / 1e6:.2g} M nodes, d = {sketch_size:,}, a worker limited to "
        f"{limit / 1e9:.2g} GB, an eighth of the sketch"
    )
    return [Line.of(what, "the same without a limit", tight, free, wanted=1 / 1.5)]


def bench_workers(*, edges: int = 20_000_000, sketch_size: int = 192) -> list[Line]:
    """Compare two workers of one thread with one, on the sketch stage."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart("pipeline.study.bench.ingest:make", folder=folder, edges=edges, ids="int")
        store = f"{folder}/store"
        run_apart(f"{__name__}:prepare", edges=f"{folder}/edges/known", store=store)
        for workers in (1, 2):
            sizes = {"store": store, "sketch_size": sketch_size, "dim": 128}
            done = run_apart(f"{__name__}:ours_once", workers=workers, **sizes)
            seconds[workers] = done.result["stages"]["sketch"]
    what = f"two workers: sketch stage, {edges / 1e6:.0f} M edges, d = {sketch_size:,}"
    return [Line(what, "one worker", seconds[2], seconds[1], wanted=1.7)]


def prepare(edges: str, store: str) -> None:
    """Ingest a graph."""
    with connect(ClusterConfig()) as client:
        run_ingest(edges, store, IngestConfig(), Session(client))


def ours(
    store: str,
    sketch_size: int,
    dim: int,
    limit_bytes: int | None = None,
    workers: int | None = None,
) -> dict[str, object]:
    """Embed with figrl, cluster included; with `workers`, each has one thread."""
    local = LocalCluster(workers=workers, threads_per_worker=1) if workers else LocalCluster()
    with connect(ClusterConfig(local=local), limit_bytes) as client:
        config = EmbedConfig(preset="paper", dim=dim, sketch_size=sketch_size)
        report = run_embed(store, config, Session(client, limit_bytes))
    return {"stages": {stage["name"]: stage["seconds"] for stage in report["stages"]}}


def ours_once(
    store: str,
    sketch_size: int,
    dim: int,
    limit_bytes: int | None = None,
    workers: int | None = None,
) -> dict[str, object]:
    """Embed, tell a digest of the vectors, and delete the run."""
    started = time.perf_counter()
    stages = ours(store, sketch_size, dim, limit_bytes, workers)
    seconds = time.perf_counter() - started
    run = open_store(store).embedding().path
    digest = hashlib.blake2b()
    for chunk in sorted((run / "embedding" / "c").rglob("*")):
        if chunk.is_file():
            digest.update(chunk.read_bytes())
    remove(run)
    return {**stages, "seconds": seconds, "vectors": digest.hexdigest()}


def in_memory(store: str, sketch_size: int, dim: int) -> None:
    """Do what the paper says, the way one would in a notebook."""
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
    runs = [run for block in range(graph.blocks) for run in graph.edge_runs(block)]
    rows, columns = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    root = 1 / np.sqrt(np.asarray(open_zarr(graph.degrees_path)[...]) + regularization)
    values = (root[rows] * root[columns]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(graph.nodes, graph.nodes))
