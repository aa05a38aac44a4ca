"""The call that clusters the nodes of a run: centres first, then a label for every row."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import distributed
import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.api import PathLike, Session
from pipeline.blocks import Stats
from pipeline.cluster import client_at_hand
from pipeline.costs import RESERVED_BYTES
from pipeline.errors import ConfigError, ResourceError
from pipeline.files import (
    digest,
    load_array,
    read_json,
    remove,
    save_array,
    write_json,
    written_aside,
)
from pipeline.graph import Graph
from pipeline.job import Block
from pipeline.lock import locked
from pipeline.measure import human_bytes
from pipeline.run import ClusterJob, ClusterMemory, cluster_memory, map_once
from pipeline.serve.embedding import Embedding, open_store
from pipeline.serve.export import (
    check_target,
    deliver,
    forget_delivered,
    parts_beside,
)
from pipeline.store import StorePaths, existing_store
from pipeline.study.cluster_tasks import (
    ClusterTask,
    Method,
    centers_from_rough,
    centers_in_memory,
    cluster_sizes,
    clusters_schema,
    label_block,
)
from pipeline.study.clustering import (
    CANDIDATES_PER_CLUSTER,
    FEWEST_CENTERS,
    LARGEST_WARD,
    SAMPLE_PER_CLUSTER,
    fine_centers,
    kmeans_centers,
)
from pipeline.study.metrics import modularity

LIBRARY_BYTES = 150_000_000
"""Memory of scikit-learn and what it loads, in a worker that has not needed it before."""

_ROW_BYTES = 128
"""Memory that k-means takes for a row besides its vector and the copy of it."""

_CANDIDATE_BYTES = 32
"""Memory that ``k-means||`` takes for the distance of one row and one candidate."""

_LITTLE_BYTES = 16_000_000
"""Memory that is there even where the limit leaves none."""

_FEWEST_ROWS = 1 << 6


def find_clusters(
    store: PathLike,
    clusters: int,
    *,
    method: Method = "kmeans",
    run: str | None = None,
    out: PathLike | None = None,
    seed: int = 0,
    overwrite: bool = False,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
) -> Path:
    """Put the nodes of a run into clusters, and write them as Parquet: ``id``, ``cluster``.

    Parameters
    ----------
    store : path
    clusters : int
        How many; from 1 to the number of nodes.
    method : {"kmeans", "agglomerative"}
        Agglomerative is Ward's method.
    run : str, optional
        By default the published run.
    out : path, optional
        One Parquet file if it ends in ``.parquet``, else a folder of them; by default
        ``STORE/runs/RUN/clusters/METHOD-K.parquet``, which is replaced if it is there.
    seed : int
    overwrite : bool
        Whether `out` may be replaced.
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.

    Returns
    -------
    Path
        Of the Parquet. Labels in the order of rows lie in the run, as
        ``clusters/METHOD-K.npy`` (int32).
    """
    report = run_cluster(
        store,
        clusters,
        Session(client, memory_limit),
        method=method,
        run=run,
        out=None if out is None else Path(out),
        seed=seed,
        overwrite=overwrite,
    )
    return Path(report["out"])


def run_cluster(
    store: PathLike,
    clusters: int,
    session: Session,
    *,
    method: Method = "kmeans",
    run: str | None = None,
    out: Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Cluster and tell what happened; see `find_clusters`."""
    embedding = open_store(Path(store)).embedding(run)
    check_options(embedding.graph, clusters, method, seed)
    with clusters_locked(embedding, "cluster"):
        return cluster_run(
            existing_store(store),
            embedding,
            clusters,
            session,
            method=method,
            out=out,
            seed=seed,
            overwrite=overwrite,
        )


@contextmanager
def clusters_locked(embedding: Embedding, purpose: str) -> Iterator[None]:
    """Let one job at a time write clusters of a run, or rely on them."""
    with locked(embedding.path / "clusters", purpose):
        yield


def cluster_run(
    paths: StorePaths,
    embedding: Embedding,
    clusters: int,
    session: Session,
    *,
    method: Method = "kmeans",
    out: Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Cluster a run whose clusters are locked."""
    started = time.perf_counter()
    graph = embedding.graph
    kept = _kept_labels(embedding, clusters, method, seed)
    target = kept.with_suffix(".parquet") if out is None else out.absolute()
    work = paths.work / f"cluster-{digest([embedding.run, method, clusters, seed, str(target)])}"
    check_target(target, work, overwrite=overwrite or out is None)
    task = ClusterTask(
        graph, embedding.path / "embedding", work, parts_beside(target, work), method, clusters
    )
    with client_at_hand(session.client, session.limit_bytes) as client:
        forget_delivered(work, task.parts)
        # From here on it is there until they are delivered, so that found centres are kept too.
        task.parts.mkdir(parents=True, exist_ok=True)
        job = ClusterJob(client, work / "marks", session.monitor)
        found = _find_centers(
            job, embedding, task, seed, cluster_memory(client, session.limit_bytes)
        )
        _ensure_labels_file(task.labels, graph.nodes)
        blocks = [Block(f"{block:06d}", (task, block)) for block in range(graph.blocks)]
        job.run("labels", label_block, blocks)
        sizes = map_once(client, cluster_sizes, [(task.labels, clusters)])[0]
        quality = modularity(graph, task.labels, client=client)
        kept.with_suffix(".json").unlink(missing_ok=True)
        deliver(job, task.parts, clusters_schema(graph), target)
        kept.parent.mkdir(parents=True, exist_ok=True)
        task.labels.replace(kept)
        report = {
            "store": str(paths.root),
            "run": embedding.run,
            "method": method,
            "by": found["by"],
            "clusters": clusters,
            "out": str(target),
            "labels": str(kept),
            "nodes": graph.nodes,
            "smallest_cluster": int(sizes[sizes > 0].min()),
            "largest_cluster": int(sizes.max()),
            "empty_clusters": int((sizes == 0).sum()),
            "modularity": round(quality, 6),
            "notes": [*found["notes"], *_overlay_notes(embedding)],
            "seconds": round(time.perf_counter() - started, 3),
            **job.describe(),
        }
        # Last: who finds it, finds the labels that it tells of.
        write_json(kept.with_suffix(".json"), report)
        remove(work)
    return report


def kept_clusters(
    embedding: Embedding, clusters: int, *, method: Method = "kmeans", seed: int = 0
) -> dict[str, Any] | None:
    """What was told of clusters that were found before, with their labels; None if there are none.

    Clusters of a run are locked.
    """
    labels = _kept_labels(embedding, clusters, method, seed)
    try:
        report: dict[str, Any] = read_json(labels.with_suffix(".json"))
        shape = load_array(labels, mapped=True).shape
    except (OSError, ValueError):
        # Not there, or cut off by a loss of power: they are found again.
        return None
    # The store may have been moved since.
    return {**report, "labels": str(labels)} if shape == (embedding.graph.nodes,) else None


def _kept_labels(embedding: Embedding, clusters: int, method: str, seed: int) -> Path:
    """File of the labels in the order of rows."""
    name = f"{method}-{clusters}" + (f"-seed-{seed}" if seed else "")
    return embedding.path / "clusters" / f"{name}.npy"


def check_options(graph: Graph, clusters: int, method: str, seed: int) -> None:
    """Refuse what cannot be clustered."""
    if not 1 <= clusters <= graph.nodes:
        raise ConfigError(
            f"--clusters is {clusters:,}; this graph has {graph.nodes:,} nodes, so it has to be "
            f"from 1 to {graph.nodes:,}."
        )
    if method not in get_args(Method):
        raise ConfigError(f"--method is '{method}'; it has to be {' or '.join(get_args(Method))}.")
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"--seed is {seed}; it has to be from 0 to {(1 << 32) - 1}.")


def _overlay_notes(embedding: Embedding) -> list[str]:
    if embedding.overlay is None or not len(embedding.overlay):
        return []
    return [
        f"{len(embedding.overlay):,} nodes that were folded in since the run was learnt are in no "
        "cluster."
    ]


def _find_centers(
    job: ClusterJob, embedding: Embedding, task: ClusterTask, seed: int, memory: ClusterMemory
) -> Stats:
    """Find the centres, in the memory of one worker if they fit; tell how, and what to know."""
    usable = max(memory.allowed_bytes - RESERVED_BYTES - LIBRARY_BYTES, 0)
    if task.method == "agglomerative" and 8 * task.clusters**2 > max(usable, _LITTLE_BYTES):
        raise ResourceError(
            f"Ward's method needs {human_bytes(8 * task.clusters**2)} for {task.clusters:,} "
            f"clusters, and {human_bytes(usable)} of a worker are free for it. Raise "
            "--memory-limit, lower --clusters, or take --method kmeans."
        )
    count = task.clusters
    if task.method == "agglomerative":
        count = min(fine_centers(task.clusters, LARGEST_WARD), task.graph.nodes)
    left = usable - kmeans_bytes(task.graph.nodes, embedding.dim, count)
    found_before = (job.marks / "centers" / "all.json").exists()
    if found_before or (left >= 0 and not task.rough.exists()):
        block = Block("all", (task, seed, math.isqrt(max(left, 0) // 8)))
        return job.run("centers", centers_in_memory, [block]).stats["all"]
    if not task.rough.exists():
        job.monitor.note("The vectors do not fit into the memory of a worker: k-means|| on Dask.")
        _find_rough_centers(job, embedding, task, seed, usable // memory.threads)
    return job.run("centers", centers_from_rough, [Block("all", (task,))]).stats["all"]


def kmeans_bytes(nodes: int, dim: int, clusters: int) -> int:
    """Memory that k-means in the memory of one worker needs, besides the library."""
    # The vectors and a copy of them; the sample that it begins with, and some copies of centres.
    sample = min(SAMPLE_PER_CLUSTER * clusters, nodes)
    return nodes * (8 * dim + _ROW_BYTES) + sample * (16 * dim + _ROW_BYTES) + 48 * clusters * dim


def _find_rough_centers(
    job: ClusterJob, embedding: Embedding, task: ClusterTask, seed: int, usable: int
) -> None:
    """Let dask-ml find centres, in pieces whose distances to all candidates fit into memory."""
    count = task.clusters
    if task.method == "agglomerative":
        largest = max(math.isqrt(usable // 8), FEWEST_CENTERS)
        count = min(fine_centers(task.clusters, largest), task.graph.nodes)
    fitting = usable // (_CANDIDATE_BYTES * CANDIDATES_PER_CLUSTER * count)
    vectors = embedding.vectors
    vectors = vectors.rechunk({0: min(max(fitting, _FEWEST_ROWS), vectors.chunksize[0])})
    job.everywhere(_one_thread_each)
    with job.client.as_current(), threadpool_limits(limits=1):
        save_array(task.rough, kmeans_centers(vectors, count, seed=seed))


def _one_thread_each() -> None:
    """Keep the bits of sums from depending on the number of cores, as it is for blocks."""
    import sklearn.cluster  # noqa: F401

    threadpool_limits(limits=1)


def _ensure_labels_file(path: Path, nodes: int) -> None:
    """Make the file that blocks write their rows to."""
    if not path.exists():
        with written_aside(path) as aside:
            np.lib.format.open_memmap(aside, "w+", np.int32, (nodes,)).flush()
