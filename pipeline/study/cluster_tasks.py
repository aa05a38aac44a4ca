"""The blocks of clustering: centres in the memory of a worker, and a label for every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from pipeline.arrays import open_zarr
from pipeline.blocks import Stats
from pipeline.files import load_array, remove, save_array, written_aside
from pipeline.graph import Graph
from pipeline.ingest.arrow import parquet_id_type
from pipeline.serve.export import part_path
from pipeline.study.clustering import (
    LARGEST_WARD,
    agglomerative,
    joined_note,
    kmeans_in_memory,
    nearest_center,
    ward,
)

Method = Literal["kmeans", "agglomerative"]

_DISTANCES_AT_A_TIME = 1 << 22
_COUNTED_ROWS = 1 << 22


def clusters_schema(graph: Graph) -> pa.Schema:
    """Columns of the clusters."""
    return pa.schema({"id": parquet_id_type(graph.id_kind), "cluster": pa.int32()})


@dataclass(frozen=True)
class ClusterTask:
    """What every block has to know."""

    graph: Graph
    embedding: Path
    work: Path
    parts: Path
    method: Method
    clusters: int

    @property
    def centers(self) -> Path:
        """Centres that rows are compared with."""
        return self.work / "centers.npy"

    @property
    def groups(self) -> Path:
        """Cluster of each centre."""
        return self.work / "groups.npy"

    @property
    def rough(self) -> Path:
        """Centres that were found out of core, before clusters are made of them."""
        return self.work / "rough.npy"

    @property
    def known(self) -> Path:
        """Labels that came with the centres, where there are any."""
        return self.work / "known.npy"

    @property
    def labels(self) -> Path:
        """Cluster of each row."""
        return self.work / "labels.npy"


def centers_in_memory(task: ClusterTask, seed: int, fitting: int) -> Stats:
    """Cluster all vectors in the memory of this worker, which `fitting` rows of Ward's fit too."""
    remove(task.known)
    vectors = np.asarray(open_zarr(task.embedding)[...])
    with threadpool_limits(limits=1):
        if task.method == "kmeans":
            _, centers = kmeans_in_memory(vectors, task.clusters, seed=seed)
            return _save_centers(task, centers, np.arange(task.clusters), "scikit-learn", [])
        largest = min(LARGEST_WARD, fitting)
        made = agglomerative(vectors, task.clusters, largest=largest, seed=seed)
    if made.note is None:
        # The mean of another cluster may lie nearer to a vector than that of its own.
        save_array(task.known, made.labels.astype(np.int32))
    notes = [] if made.note is None else [made.note]
    return _save_centers(task, made.centers, made.groups, made.by, notes)


def centers_from_rough(task: ClusterTask) -> Stats:
    """Make clusters of centres that were found out of core."""
    remove(task.known)
    centers = load_array(task.rough)
    by = "dask-ml k-means||"
    notes = [f"The vectors do not fit into the memory of a worker: centres were found by {by}."]
    groups = np.arange(len(centers))
    if task.method == "agglomerative":
        groups = ward(centers, task.clusters)
        by = "Ward on k-means centres"
        notes.append(joined_note(task.graph.nodes, len(centers)))
    return _save_centers(task, centers, groups, by, notes)


def _save_centers(
    task: ClusterTask,
    centers: npt.NDArray[Any],
    groups: npt.NDArray[np.int64],
    by: str,
    notes: list[str],
) -> Stats:
    save_array(task.centers, centers.astype(np.float32))
    save_array(task.groups, groups.astype(np.int32))
    return {"by": by, "notes": notes, "written_bytes": 4 * centers.size + 4 * groups.size}


def label_block(task: ClusterTask, block: int) -> Stats:
    """Give the rows of a block the cluster of their nearest centre; write labels and Parquet."""
    start, stop = task.graph.block_range(block)
    labels = _labels_of(task, start, stop)
    # Not through a map: between machines a file system keeps what others wrote to the same page
    # only if each writes no more than its own bytes.
    offset = load_array(task.labels, mapped=True).offset  # type: ignore[attr-defined]
    with task.labels.open("r+b") as file:
        file.seek(offset + start * labels.itemsize)
        file.write(labels.tobytes())
    schema = clusters_schema(task.graph)
    ids = task.graph.index.ids_of(start, stop).cast(schema.field("id").type)
    path = part_path(task.parts, block)
    with written_aside(path) as aside:
        pq.write_table(pa.table([ids, pa.array(labels)], schema), aside, use_dictionary=False)
    return {"rows": stop - start, "written_bytes": labels.nbytes + path.stat().st_size}


def _labels_of(task: ClusterTask, start: int, stop: int) -> npt.NDArray[np.int32]:
    if task.known.exists():
        return np.array(load_array(task.known, mapped=True)[start:stop])
    embedding = open_zarr(task.embedding)
    centers, groups = load_array(task.centers), load_array(task.groups)
    rows = max(min(embedding.chunks[0], _DISTANCES_AT_A_TIME // len(centers)), 1)
    labels = np.empty(stop - start, np.int32)
    for begin in range(start, stop, rows):
        end = min(begin + rows, stop)
        nearest = nearest_center(np.asarray(embedding[begin:end]), centers)
        labels[begin - start : end - start] = groups[nearest]
    return labels


def cluster_sizes(labels: Path, clusters: int) -> npt.NDArray[np.int64]:
    """Nodes of each cluster."""
    found = load_array(labels, mapped=True)
    sizes = np.zeros(clusters, np.int64)
    for start in range(0, found.size, _COUNTED_ROWS):
        sizes += np.bincount(found[start : start + _COUNTED_ROWS], minlength=clusters)
    return sizes
