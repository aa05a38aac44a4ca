"""Embed: from the stored graph to the stored vectors, against the paper in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

from pipeline.api import Session, run_embed, run_ingest
from pipeline.cluster import ClusterConfig, LocalCluster, connect
from pipeline.config import EmbedConfig, IngestConfig
from pipeline.files import open_zarr
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


def bench_limit(data: Path, *, sketch_size: int = 2000, dim: int = 100) -> list[Line]:
    """Compare a memory limit of an eighth of the sketch with no limit: same bits."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        for part in ("free", "limited"):
            store = f"{folder}/{part}"
            run_apart(f"{__name__}:prepare", edges=str(data / "com-dblp.txt.gz"), store=store)
        sizes = {"sketch_size": sketch_size, "dim": dim}
        nodes = open_store(f"{folder}/free").graph.nodes
        limit = nodes * sketch_size * 4 // 8
        free = run_apart(f"{__name__}:ours", store=f"{folder}/free", **sizes)
        tight = run_apart(f"{__name__}:ours", store=f"{folder}/limited", limit_bytes=limit, **sizes)
        first, second = (
            np.asarray(open_store(f"{folder}/{part}").embedding().vectors)
            for part in ("free", "limited")
        )
    if not np.array_equal(first, second):
        raise AssertionError("a memory limit changed the vectors")
    what = f"limit: com-dblp, d = {sketch_size:,}, workers limited to an eighth of the sketch"
    return [Line.of(what, "the same without a limit", tight, free, wanted=1 / 1.5)]


def bench_workers(data: Path, *, sketch_size: int = 1000) -> list[Line]:
    """Compare two workers of one thread with one, on the sketch stage."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        for workers in (1, 2):
            store = f"{folder}/{workers}"
            run_apart(f"{__name__}:prepare", edges=str(data / "com-dblp.txt.gz"), store=store)
            done = run_apart(
                f"{__name__}:ours", store=store, sketch_size=sketch_size, dim=100, workers=workers
            )
            seconds[workers] = done.result["stages"]["sketch"]
    what = f"two workers: sketch stage of com-dblp, d = {sketch_size:,}"
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
        config = EmbedConfig(dim=dim, sketch_size=sketch_size)
        report = run_embed(store, config, Session(client, limit_bytes))
    return {"stages": {stage["name"]: stage["seconds"] for stage in report["stages"]}}


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


def read_matrix(graph: Graph) -> scipy.sparse.csr_matrix:
    """The normalised matrix of an unweighted graph, in memory."""
    runs = [run for block in range(graph.blocks) for run in graph.edge_runs(block)]
    rows, columns = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    root = 1 / np.sqrt(np.asarray(open_zarr(graph.degrees_path)[...]))
    values = (root[rows] * root[columns]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(graph.nodes, graph.nodes))
