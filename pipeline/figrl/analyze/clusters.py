"""Clusters of the nodes of a run: the call, the labels of all rows, and clusters found before."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.analyze.centers import ClusterOptions, ClusterTask, Method, prepare_centers
from figrl.analyze.kmeans import LARGEST_WARD, nearest_center
from figrl.analyze.metrics import modularity
from figrl.config import make_options
from figrl.engine.runner import ClusterRunner, map_on_workers
from figrl.engine.session import Session
from figrl.engine.stage import Memory, Stage, Stages, Stats, numbered
from figrl.errors import DamagedError
from figrl.serve.delivery import deliver, rows_of_parts
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.output import check_output, marked, output_locked, part_path
from figrl.store import files
from figrl.store.arrays import open_zarr
from figrl.store.checksums import file_crc
from figrl.store.contents import LABELS_CRC
from figrl.store.graph import Graph
from figrl.store.layout import PathLike, StorePaths, existing_store
from figrl.store.lock import Lock, locked
from figrl.store.places import local_path

_DISTANCES_AT_A_TIME = _ROWS_AT_A_TIME = 1 << 22

_ROW_BYTES = 128
"""Memory of a row while its block is written: the id, its label, and both as Parquet."""

_OVERLAY_NOTE = "{:,} nodes that were folded in since the run was learnt are in no cluster."


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
    """Cluster the nodes of a run by their vectors, and write Parquet: ``id``, ``cluster``.

    Parameters
    ----------
    store : path
    clusters : int
        Number of clusters, from 1 to the number of nodes.
    method : {"kmeans", "agglomerative"}
        Agglomerative is Ward's method.
    run : str, optional
        By default the published run.
    out : path, optional
        One Parquet file if it ends in ``.parquet``, else a folder of them; by default
        ``STORE/runs/RUN/clusters/METHOD-K.parquet``, which is replaced if it exists.
    seed : int
    overwrite : bool
        Whether `out` may be replaced.
    client : distributed.Client, optional
        By default Dask's current client, or a local cluster.
    memory_limit : str or int, optional
        Memory limit of each worker process, such as ``"2GB"``; by default the worker's own.

    Returns
    -------
    Path
        The Parquet. Labels in row order are saved in the run, as ``clusters/METHOD-K.npy``
        (int32).
    """
    session, target = Session(client, memory_limit), None if out is None else local_path(out)
    report = run_cluster(
        store, clusters, session, run=run, out=target, overwrite=overwrite, method=method, seed=seed
    )
    return Path(report["out"])


def run_cluster(
    store: PathLike,
    clusters: int,
    session: Session,
    *,
    run: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Cluster the nodes of a run and return a report; see `find_clusters`."""
    asked = make_options(ClusterOptions, {"clusters": clusters, **options})
    paths, embedding = existing_store(store), open_store(store).embedding(run)
    asked.check(embedding.graph)
    if out is not None:
        out = check_output(out, store=paths.root)
    with clusters_locked(embedding, "cluster"):
        return cluster_embedding(paths, embedding, asked, session, out=out, overwrite=overwrite)


def clusters_locked(embedding: Embedding, purpose: str) -> AbstractContextManager[Lock]:
    """Let one job at a time write or use the clusters of a run."""
    return locked(embedding.path / "clusters", purpose)


def cluster_embedding(
    paths: StorePaths,
    embedding: Embedding,
    options: ClusterOptions,
    session: Session,
    *,
    out: Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Cluster a run whose clusters are locked by the caller."""
    started = time.perf_counter()
    graph, schema = embedding.graph, clusters_schema(embedding.graph)
    saved = _saved_labels(embedding, options)
    target = saved.with_suffix(".parquet") if out is None else out
    significant = [embedding.run, options.method, options.clusters, options.seed, str(target)]
    work = paths.work / f"cluster-{files.digest(significant)}"
    # The default place is the store's own.
    locked_output = output_locked(target, "cluster", overwrite=overwrite, ours=out is None)
    with locked_output as place, session.open() as client:
        parts = place.space / work.name
        place.begin(work, parts)
        task = ClusterTask(graph, embedding.path / "embedding", embedding.dim, work, parts, options)
        memory = session.memory(client)
        runner = ClusterRunner(client, work / "marks", session.monitor, memory)
        centers = prepare_centers(runner, embedding, task, memory)
        found, rows = runner.run(cluster_stages(task, centers))
        sizes = map_on_workers(client, cluster_sizes, [(task.file("labels"), options.clusters)])[0]
        quality = modularity(graph, task.file("labels"), client=client)
        files.delete(saved.with_suffix(".json"))
        deliver(runner, place, parts, schema, rows)
        files.move(task.file("labels"), saved)
        folded = 0 if embedding.overlay is None else len(embedding.overlay)
        report = {
            "store": str(paths.root),
            "run": embedding.run,
            "method": options.method,
            "by": found["by"],
            "clusters": options.clusters,
            "out": str(target),
            "labels": str(saved),
            "nodes": graph.nodes,
            "smallest_cluster": int(sizes[sizes > 0].min()),
            "largest_cluster": int(sizes.max()),
            "empty_clusters": int((sizes == 0).sum()),
            "modularity": round(quality, 6),
            "notes": [*found["notes"], *([_OVERLAY_NOTE.format(folded)] if folded else [])],
            "seconds": round(time.perf_counter() - started, 3),
            **runner.describe(),
        }
        # Last: where there is a report, its labels are complete.
        files.write_record(saved.with_suffix(".json"), {**report, LABELS_CRC: file_crc(saved)})
        files.delete(work)
    return report


def saved_clusters(embedding: Embedding, options: ClusterOptions) -> dict[str, Any] | None:
    """Report of clusters that were found before, which the caller has locked; None without."""
    labels = _saved_labels(embedding, options)
    try:
        report = files.read_record(labels.with_suffix(".json"))
        whole = report.pop(LABELS_CRC) == file_crc(labels)
    except DamagedError:
        # Missing, or cut off by a power failure: the clusters are computed again.
        return None
    # The store may have been moved since.
    return {**report, "labels": str(labels)} if whole else None


def _saved_labels(embedding: Embedding, options: ClusterOptions) -> Path:
    """File of the labels in row order."""
    return embedding.path / "clusters" / f"{options.name}.npy"


def clusters_schema(graph: Graph) -> pa.Schema:
    """Columns of the Parquet."""
    return marked(pa.schema({**graph.node_fields, "cluster": pa.int32()}), "clusters")


def cluster_stages(task: ClusterTask, centers: Stage) -> Stages[tuple[Stats, list[int]]]:
    """Find the centres and label all rows; return statistics of the centres, rows of parts."""
    found = yield centers
    count = task.count_centers(LARGEST_WARD)
    distances = 8 * max(_DISTANCES_AT_A_TIME, count) + 12 * count * task.dim
    rows = task.graph.block_rows * (12 * task.dim + _ROW_BYTES)
    memory = Memory(task_bytes=distances + rows)
    reads = (task.embedding, task.file("centers"), task.file("groups"))
    labelled = yield Stage("labels", label_block, numbered(task, task.graph.blocks), memory, reads)
    return found.only, rows_of_parts(labelled)


def label_block(task: ClusterTask, block: int) -> Stats:
    """Label the rows of a block by their nearest centre; write the labels and the Parquet."""
    start, stop = task.graph.block_range(block)
    labels = _labels_of(task, start, stop)
    files.write_stretch(task.file("labels"), start, labels)
    schema = clusters_schema(task.graph)
    columns = [*task.graph.node_columns(start, stop), pa.array(labels)]
    path = part_path(task.parts, block)
    with files.atomic_write(path) as aside:
        pq.write_table(pa.table(columns, schema), aside, use_dictionary=False)
    return {"rows": stop - start, "written_bytes": labels.nbytes + files.size_bytes(path)}


def _labels_of(task: ClusterTask, start: int, stop: int) -> npt.NDArray[np.int32]:
    if files.exists(task.file("known")):
        return np.array(files.load_array(task.file("known"), mapped=True)[start:stop])
    embedding = open_zarr(task.embedding)
    centers, groups = files.load_array(task.file("centers")), files.load_array(task.file("groups"))
    rows = max(min(embedding.chunks[0], _DISTANCES_AT_A_TIME // len(centers)), 1)
    labels = np.empty(stop - start, np.int32)
    for begin in range(start, stop, rows):
        end = min(begin + rows, stop)
        nearest = nearest_center(np.asarray(embedding[begin:end]), centers)
        labels[begin - start : end - start] = groups[nearest]
    return labels


def cluster_sizes(labels: Path, clusters: int) -> npt.NDArray[np.int64]:
    """Nodes of each cluster."""
    found = files.load_array(labels, mapped=True, checked=False)
    sizes = np.zeros(clusters, np.int64)
    for start in range(0, found.size, _ROWS_AT_A_TIME):
        sizes += np.bincount(found[start : start + _ROWS_AT_A_TIME], minlength=clusters)
    return sizes
