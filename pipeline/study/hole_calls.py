"""The call that finds structural holes of a stored graph, and how far their influence goes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa

from pipeline.api import PathLike, Session
from pipeline.cluster import client_at_hand
from pipeline.costs import RESERVED_BYTES
from pipeline.errors import ConfigError, ResourceError
from pipeline.files import digest, remove, save_array
from pipeline.graph import Graph
from pipeline.ingest.arrow import parquet_id_type
from pipeline.job import Block
from pipeline.measure import human_bytes
from pipeline.run import ClusterJob, ClusterMemory, cluster_memory, map_once
from pipeline.serve.embedding import open_store
from pipeline.store import StorePaths, existing_store
from pipeline.study.adjacency import lists_block
from pipeline.study.cluster_calls import (
    LIBRARY_BYTES,
    check_options,
    cluster_run,
    clusters_locked,
    kept_clusters,
)
from pipeline.study.cluster_tasks import cluster_sizes
from pipeline.study.deviation import DeviationTask, deviation_bytes, highest_deviation
from pipeline.study.diffusion import InfluenceTask, influence, influence_bytes
from pipeline.study.draws import MODELS

DEFAULT_CLUSTERS = 100

_PATHS_TOLD = ("store", "out", "labels")

_LITTLE_BYTES = 50_000_000
"""Memory that is there even where the limit leaves none."""


def find_holes(
    store: PathLike,
    *,
    count: int = 10,
    clusters: int | None = None,
    run: str | None = None,
    runs: int = 0,
    probability: float = 0.1,
    seed: int = 0,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
) -> pa.Table:
    """Find the nodes that hold clusters together, by the relative deviation score.

    Parameters
    ----------
    store : path
    count : int
        Nodes that are wanted.
    clusters : int, optional
        Clusters of k-means; by default 100, or a tenth of the nodes of a small graph.
    run : str, optional
        By default the published run.
    runs : int
        How often the influence of each hole is simulated; 0 leaves that out.
    probability : float
        Of the independent cascade model: that a node passes on what it has along an edge.
    seed : int
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    memory_limit : str or int, optional

    Returns
    -------
    pyarrow.Table
        ``id``, ``rank`` from 1 on, ``score``, ``cluster``, ``toward`` (the cluster that draws it);
        with simulations, ``shii_lt`` and ``shii_ic``.
    """
    report = run_holes(
        store,
        Session(client, memory_limit),
        count=count,
        clusters=clusters,
        run=run,
        runs=runs,
        probability=probability,
        seed=seed,
    )
    kind = parquet_id_type(open_store(Path(store)).embedding(report["run"]).graph.id_kind)
    ids = pa.array([hole["id"] for hole in report["holes"]], kind)
    table = pa.Table.from_pylist([_without_id(hole) for hole in report["holes"]])
    return table.add_column(0, "id", ids)


def _without_id(hole: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hole.items() if name != "id"}


def run_holes(
    store: PathLike,
    session: Session,
    *,
    count: int = 10,
    clusters: int | None = None,
    run: str | None = None,
    runs: int = 0,
    probability: float = 0.1,
    seed: int = 0,
) -> dict[str, Any]:
    """Find structural holes and tell what happened; see `find_holes`."""
    started = time.perf_counter()
    paths = existing_store(store)
    embedding = open_store(Path(store)).embedding(run)
    graph = embedding.graph
    wanted = min(DEFAULT_CLUSTERS, max(graph.nodes // 10, 2)) if clusters is None else clusters
    _check_options(graph.nodes, count, wanted, runs, probability)
    check_options(graph, wanted, "kmeans", seed)
    with (
        client_at_hand(session.client, session.limit_bytes) as client,
        clusters_locked(embedding, "holes"),
    ):
        memory = cluster_memory(client, session.limit_bytes)
        _check_memory(graph, embedding.dim, wanted, memory, simulated=runs > 0)
        inner = Session(client, session.memory_limit, session.monitor)
        clustered = kept_clusters(embedding, wanted, seed=seed)
        if clustered is None:
            clustered = cluster_run(paths, embedding, wanted, inner, seed=seed)
        labels = Path(clustered["labels"])
        work = _work_folder(paths, embedding.run, clustered, [count, seed, probability])
        task = DeviationTask(graph, embedding.path / "embedding", labels, work, wanted, count)
        job = ClusterJob(client, work / "marks", session.monitor)
        found = highest_deviation(job, task)
        influences = {}
        if runs:
            save_array(work / "holes.npy", np.array([node["row"] for node in found]))
            of_model = InfluenceTask(
                work / "lists", labels, work / "holes.npy", "lt", seed, probability
            )
            job.run("lists", lists_block, [Block("all", (graph, of_model.lists))])
            sizes = map_once(client, cluster_sizes, [(labels, wanted)])[0]
            members = int(sum(sizes[int(node["cluster"])] for node in found))
            for model in MODELS:
                of_model = replace(of_model, model=model)
                simulated = influence(job, of_model, runs=runs, nodes=graph.nodes, members=members)
                influences[model] = simulated.holes
        remove(work)
    ids = embedding.ids_at(np.array([node["row"] for node in found], np.int64))
    return {
        "store": str(paths.root),
        "run": embedding.run,
        "clusters": wanted,
        "modularity": clustered["modularity"],
        "clustered_by": clustered["by"],
        "runs": runs,
        "probability": probability,
        "holes": [
            {
                "id": name,
                "rank": place + 1,
                "score": node["score"],
                "cluster": int(node["cluster"]),
                "toward": int(node["toward"]),
                **{f"shii_{model}": holes[place].mean for model, holes in influences.items()},
            }
            for place, (name, node) in enumerate(zip(ids, found, strict=True))
        ],
        "seconds": round(time.perf_counter() - started, 3),
        **job.describe(),
    }


def _work_folder(
    paths: StorePaths, run: str, clustered: dict[str, Any], options: list[float]
) -> Path:
    """Folder of unfinished work on these very clusters; what is left of other searches is deleted.

    What was told of other clusters differs, if only by its seconds. Paths do not count: a store
    may be moved.
    """
    told = {name: value for name, value in clustered.items() if name not in _PATHS_TOLD}
    work = paths.work / f"holes-{run}-{digest([told, *options])}"
    for other in paths.work.glob(f"holes-{run}-*"):
        if other != work:
            remove(other)
    return work


def _check_memory(
    graph: Graph, dim: int, clusters: int, memory: ClusterMemory, *, simulated: bool
) -> None:
    """Refuse what does not fit a worker, before anything is done."""
    usable = max(memory.allowed_bytes - RESERVED_BYTES - LIBRARY_BYTES, _LITTLE_BYTES)
    needed = deviation_bytes(clusters, dim, memory.threads)
    what, remedy = f"the centres of {clusters:,} clusters", "ask for fewer --clusters"
    if simulated:
        of_runs = influence_bytes(
            graph.nodes, graph.edges, weighted=graph.weighted, threads=memory.threads
        )
        if of_runs > needed:
            needed, remedy = of_runs, "leave out --runs: holes are found without it"
            what = f"the neighbours of all {graph.nodes:,} nodes, and some numbers for each thread"
    if needed > usable:
        raise ResourceError(
            f"Finding holes needs {human_bytes(needed)} in a worker for {what}; "
            f"{human_bytes(usable)} are free for it ({memory.describe()}). Give workers more "
            f"memory or fewer threads, or {remedy}."
        )


def _check_options(nodes: int, count: int, clusters: int, runs: int, probability: float) -> None:
    if not 1 <= count <= nodes:
        raise ConfigError(f"-n is {count}. Allowed are 1 to {nodes:,}, the nodes of the graph.")
    if not 2 <= clusters <= nodes:
        raise ConfigError(
            f"--clusters is {clusters}. A hole lies between clusters: allowed are 2 to {nodes:,}."
        )
    if runs < 0:
        raise ConfigError(f"--runs is {runs}. Give 0 for none, or how often to simulate.")
    if not 0 <= probability <= 1:
        raise ConfigError(f"--probability is {probability}. Allowed are 0 to 1.")
