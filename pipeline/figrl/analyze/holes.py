"""Structural holes of a stored graph: the nodes that bridge clusters, and their influence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
from pydantic import Field

from figrl.analyze.adjacency import lists_stage
from figrl.analyze.centers import ClusterOptions, Seed, usable_bytes
from figrl.analyze.clusters import cluster_embedding, clusters_locked, saved_clusters
from figrl.analyze.deviation import DeviationTask, deviation_memory, deviation_stages
from figrl.analyze.influence import InfluenceTask, Shii, influence_memory, influence_stages
from figrl.analyze.live_edges import MODELS
from figrl.config import Options, make_options
from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.stage import RESERVED_BYTES, Stages, Stats
from figrl.engine.worker import release_buffers
from figrl.errors import ConfigError, ResourceError
from figrl.serve.embedding import open_store
from figrl.store.files import delete, digest, list_prefix
from figrl.store.graph import Graph
from figrl.store.ids import parquet_id_type
from figrl.store.layout import PathLike, StorePaths, existing_store
from figrl.units import human_bytes

DEFAULT_CLUSTERS = 100
_REPORTED_PATHS = ("store", "out", "labels")

_LITTLE_BYTES = 50_000_000
"""Memory that is assumed even where the limit leaves none."""


class HoleOptions(Options):
    """Options of a search for structural holes."""

    count: int = 10
    clusters: int | None = Field(
        None, description="Clusters of k-means; default: 100, or a tenth of the nodes if less."
    )
    runs: int = Field(
        0, ge=0, description="Simulations of each hole's influence; the paper has 10,000."
    )
    probability: float = Field(
        0.1, ge=0, le=1, description="Probability that an edge activates a node (IC model)."
    )
    seed: Seed = Field(0, description="Seed of k-means and of the simulations.")

    def check(self, nodes: int) -> HoleOptions:
        """Refuse what a graph does not have; choose the number of clusters if it is not given."""
        if not 1 <= self.count <= nodes:
            raise ConfigError(
                f"-n is {self.count}. Allowed are 1 to {nodes:,}, the nodes of the graph."
            )
        clusters = self.clusters
        if clusters is None:
            clusters = min(DEFAULT_CLUSTERS, max(nodes // 10, 2))
        if not 2 <= clusters <= nodes:
            raise ConfigError(
                f"--clusters is {clusters}. A hole lies between clusters: allowed are 2 to "
                f"{nodes:,}."
            )
        return self.model_copy(update={"clusters": clusters})


def find_holes(
    store: PathLike,
    *,
    run: str | None = None,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> pa.Table:
    """Find the nodes that bridge clusters, by the relative deviation score.

    Parameters
    ----------
    store : path
    run : str, optional
        By default the published run.
    client : distributed.Client, optional
        By default Dask's current client, or a local cluster.
    memory_limit : str or int, optional
        Memory limit of each worker process, such as ``"2GB"``; by default the worker's own.
    **options
        Fields of `figrl.analyze.holes.HoleOptions`: ``count`` (of nodes, 10), ``clusters``,
        ``runs`` (simulations), ``probability``, ``seed``.

    Returns
    -------
    pyarrow.Table
        ``id``, ``side`` where nodes have sides, ``rank`` from 1 on, ``score``, ``cluster``,
        ``toward`` (the cluster that attracts it); with simulations, ``shii_lt`` and ``shii_ic``.
    """
    report = run_holes(store, Session(client, memory_limit), run=run, **options)
    kind = parquet_id_type(open_store(store).embedding(report["run"]).graph.id_kind)
    ids = pa.array([hole.pop("id") for hole in report["holes"]], kind)
    return pa.Table.from_pylist(report["holes"]).add_column(0, "id", ids)


def run_holes(
    store: PathLike, session: Session, *, run: str | None = None, **given: Any
) -> dict[str, Any]:
    """Find structural holes and return a report; see `find_holes`."""
    started = time.perf_counter()
    paths = existing_store(store)
    embedding = open_store(store).embedding(run)
    graph = embedding.graph
    options = make_options(HoleOptions, given).check(graph.nodes)
    by_kmeans = ClusterOptions(clusters=options.clusters, seed=options.seed)
    with session.open() as client, clusters_locked(embedding, "holes"):
        memory = session.memory(client)
        _check_memory(graph, embedding.dim, options, memory)
        clustered = saved_clusters(embedding, by_kmeans)
        if clustered is None:
            inner = Session(client, session.memory_limit, session.monitor)
            clustered = cluster_embedding(paths, embedding, by_kmeans, inner)
        work = _work_folder(paths, embedding.run, clustered, options)
        vectors, labels = embedding.path / "embedding", Path(clustered["labels"])
        sizes = (embedding.dim, by_kmeans.clusters, options.count)
        task = DeviationTask(graph, vectors, labels, work, *sizes)
        runner = ClusterRunner(client, work / "marks", session.monitor, memory)
        found, influences = runner.run(hole_stages(task, options))
        runner.on_every_worker(release_buffers)
        delete(work)
    rows = np.array([node["row"] for node in found], np.int64)
    ids, sides = embedding.ids_at(rows), embedding.sides_at(rows)
    return {
        "store": str(paths.root),
        "run": embedding.run,
        "clusters": by_kmeans.clusters,
        "modularity": clustered["modularity"],
        "clustered_by": clustered["by"],
        "runs": options.runs,
        "probability": options.probability,
        "holes": [
            {
                "id": name,
                **({} if sides is None else {"side": sides[place]}),
                "rank": place + 1,
                **{key: node[key] for key in ("score", "cluster", "toward")},
                **{f"shii_{model}": holes[place].mean for model, holes in influences.items()},
            }
            for place, (name, node) in enumerate(zip(ids, found, strict=True))
        ],
        "seconds": round(time.perf_counter() - started, 3),
        **runner.describe(),
    }


def hole_stages(
    task: DeviationTask, options: HoleOptions
) -> Stages[tuple[list[Stats], dict[str, list[Shii]]]]:
    """Find the holes, then simulate their influence if asked to."""
    highest = yield from deviation_stages(task)
    influences: dict[str, list[Shii]] = {}
    if options.runs:
        graph, lists = task.graph, task.work / "lists"
        yield lists_stage(graph, lists)
        holes, drawn = task.result("highest"), (options.seed, options.probability)
        sizes = {"runs": options.runs, "nodes": graph.nodes, "members": highest["members"]}
        memory = influence_memory(graph.nodes, graph.edges, weighted=graph.weighted)
        for model in MODELS:
            of_model = InfluenceTask(lists, task.labels, holes, model, *drawn)
            simulated = yield from influence_stages(of_model, **sizes, memory=memory)
            influences[model] = simulated.holes
    return highest["nodes"], influences


def _work_folder(
    paths: StorePaths, run: str, clustered: dict[str, Any], options: HoleOptions
) -> Path:
    """Folder of unfinished work on these very clusters; that of other searches is deleted."""
    # Reports of other clusters differ, if only by their seconds; a store may be moved.
    report = {name: value for name, value in clustered.items() if name not in _REPORTED_PATHS}
    significant = [report, options.count, options.seed, options.probability]
    work = paths.work / f"holes-{run}-{digest(significant)}"
    for other in list_prefix(paths.work, f"holes-{run}-*"):
        if other != work:
            delete(other)
    return work


def _check_memory(graph: Graph, dim: int, options: HoleOptions, memory: ClusterMemory) -> None:
    """Refuse what does not fit into a worker, before anything is done."""
    clusters = options.clusters or DEFAULT_CLUSTERS
    what, remedy = f"the centres of {clusters:,} clusters", "ask for fewer --clusters"
    stages = [(deviation_memory(clusters, dim, options.count), what, remedy)]
    if options.runs:
        what = f"the neighbours of all {graph.nodes:,} nodes, and some numbers for each thread"
        held = influence_memory(graph.nodes, graph.edges, weighted=graph.weighted)
        stages.append((held, what, "leave out --runs: holes are found without it"))
    usable = max(usable_bytes(memory), _LITTLE_BYTES)
    for held, what, remedy in stages:
        needed = held.peak_bytes(memory.threads) - RESERVED_BYTES
        if needed > usable:
            raise ResourceError(
                f"Finding holes needs {human_bytes(needed)} in a worker for {what}; "
                f"{human_bytes(usable)} are free for it ({memory.describe()}). Give workers more "
                f"memory or fewer threads, or {remedy}."
            )
