"""Centres of the clusters of a run: in the memory of one worker, or out of core by dask-ml."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_limits

from figrl.analyze import kmeans
from figrl.config import Options
from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import RESERVED_BYTES, Block, Memory, Stage, Stats
from figrl.errors import ConfigError, ResourceError
from figrl.serve.embedding import Embedding
from figrl.store.arrays import open_zarr
from figrl.store.files import atomic_write, delete, exists, load_array, map_new_array, save_array
from figrl.store.graph import Graph
from figrl.units import human_bytes

LIBRARY_BYTES = 150_000_000
"""Memory of scikit-learn and its dependencies in a worker that has not loaded them before."""

Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
Method = Literal["kmeans", "agglomerative"]

FileName = Literal["rough", "centers", "groups", "known", "labels"]
"""Centres found out of core, before Ward's method; centres that rows are compared with; cluster of
each centre; labels that were found with the centres, if any; cluster of each row."""

_CANDIDATE_BYTES = 32
"""Memory of ``k-means||`` for the distance of one row and one candidate."""

_LITTLE_BYTES = 16_000_000
"""Memory that is assumed even where the limit leaves none."""

_FEWEST_ROWS = 1 << 6


class ClusterOptions(Options):
    """Options of a clustering."""

    clusters: int
    method: Method = Field("kmeans", description="k-means, or Ward's agglomerative method.")
    seed: Seed = Field(0, description="Seed of k-means.")

    def check(self, graph: Graph) -> None:
        """Refuse more clusters than nodes."""
        if not 1 <= self.clusters <= graph.nodes:
            raise ConfigError(
                f"--clusters is {self.clusters:,}; this graph has {graph.nodes:,} nodes, so it has "
                f"to be from 1 to {graph.nodes:,}."
            )

    @property
    def name(self) -> str:
        """Name of the clustering within its run."""
        return f"{self.method}-{self.clusters}" + (f"-seed-{self.seed}" if self.seed else "")

    @property
    def agglomerative(self) -> bool:
        """Whether the method is Ward's."""
        return self.method == "agglomerative"


@dataclass(frozen=True)
class ClusterTask:
    """Parameters shared by all blocks; `work` and `parts` hold arrays, and Parquet of blocks."""

    graph: Graph
    embedding: Path
    dim: int
    work: Path
    parts: Path
    options: ClusterOptions

    def file(self, name: FileName) -> Path:
        """Array file of an intermediate result."""
        return self.work / f"{name}.npy"

    def count_centers(self, largest_ward: int) -> int:
        """Centres of k-means: one per cluster, or as many as Ward's method is to join."""
        if not self.options.agglomerative:
            return self.options.clusters
        return min(kmeans.fine_centers(self.options.clusters, largest_ward), self.graph.nodes)


def usable_bytes(memory: ClusterMemory) -> int:
    """Memory of a worker that is left beside the process and scikit-learn."""
    return max(memory.allowed_bytes - RESERVED_BYTES - LIBRARY_BYTES, 0)


def prepare_centers(
    runner: ClusterRunner, embedding: Embedding, task: ClusterTask, memory: ClusterMemory
) -> Stage:
    """Return the stage of the centres; where the vectors do not fit a worker, run dask-ml first."""
    usable, clusters = usable_bytes(memory), task.options.clusters
    if task.options.agglomerative and 8 * clusters**2 > max(usable, _LITTLE_BYTES):
        raise ResourceError(
            f"Ward's method needs {human_bytes(8 * clusters**2)} for {clusters:,} clusters, and "
            f"{human_bytes(usable)} of a worker are free for it. Raise --memory-limit, lower "
            "--clusters, or take --method kmeans."
        )
    count = task.count_centers(kmeans.LARGEST_WARD)
    needed = kmeans.kmeans_bytes(task.graph.nodes, task.dim, count)
    ward_rows = min(kmeans.LARGEST_WARD, math.isqrt(max(usable - needed, 0) // 8))
    joined = 8 * min(ward_rows, task.graph.nodes) ** 2 if task.options.agglomerative else 0
    in_memory = Stage(
        "centers",
        centers_in_memory,
        [Block("all", (task, ward_rows))],
        Memory(task_bytes=LIBRARY_BYTES + needed + joined),
        reads=(task.embedding,),
        expected={"by": "", "notes": []},
    )
    rough = task.file("rough")
    found_before = exists(runner.mark_path(in_memory, "all"))
    if found_before or (needed <= usable and not exists(rough)):
        return in_memory
    if not exists(rough):
        runner.monitor.note("The vectors do not fit into a worker's memory: k-means|| on Dask.")
        _find_rough_centers(runner, embedding, task, usable // memory.threads)
    joined = 8 * count**2 if task.options.agglomerative else 0
    return replace(
        in_memory,
        function=centers_from_rough,
        blocks=[Block("all", (task,))],
        memory=Memory(task_bytes=LIBRARY_BYTES + joined + 16 * count * task.dim),
        reads=(rough,),
    )


def centers_in_memory(task: ClusterTask, ward_rows: int) -> Stats:
    """Cluster all vectors in the memory of this worker, by Ward's method up to `ward_rows`."""
    delete(task.file("known"))
    options = task.options
    vectors = np.asarray(open_zarr(task.embedding)[...])
    with threadpool_limits(limits=1):
        if not options.agglomerative:
            _, centers = kmeans.kmeans_in_memory(vectors, options.clusters, seed=options.seed)
            return _save_centers(task, centers, np.arange(options.clusters), "scikit-learn", [])
        made = kmeans.agglomerative(vectors, options.clusters, largest=ward_rows, seed=options.seed)
    if made.note is None:
        # A vector may be closer to the mean of another cluster than to that of its own.
        save_array(task.file("known"), made.labels.astype(np.int32))
    notes = [] if made.note is None else [made.note]
    return _save_centers(task, made.centers, made.groups, made.by, notes)


def centers_from_rough(task: ClusterTask) -> Stats:
    """Make clusters of centres that were found out of core."""
    delete(task.file("known"))
    centers = load_array(task.file("rough"))
    by = "dask-ml k-means||"
    notes = [f"The vectors do not fit into the memory of a worker: centres were found by {by}."]
    groups = np.arange(len(centers))
    if task.options.agglomerative:
        groups = kmeans.ward(centers, task.options.clusters)
        by = "Ward on k-means centres"
        notes.append(kmeans.joined_note(task.graph.nodes, len(centers)))
    return _save_centers(task, centers, groups, by, notes)


def _save_centers(
    task: ClusterTask, centers: kmeans.Centers, groups: kmeans.Labels, by: str, notes: list[str]
) -> Stats:
    """Save the centres, and create the file of labels that the blocks of rows fill."""
    save_array(task.file("centers"), centers.astype(np.float32))
    save_array(task.file("groups"), groups.astype(np.int32))
    if not exists(task.file("labels")):
        with atomic_write(task.file("labels")) as aside:
            map_new_array(aside, task.graph.nodes, np.int32).flush()
    return {"by": by, "notes": notes, "written_bytes": 4 * centers.size + 4 * groups.size}


def _find_rough_centers(
    runner: ClusterRunner, embedding: Embedding, task: ClusterTask, usable: int
) -> None:
    """Find centres by dask-ml, in chunks whose distances to all candidates fit into memory."""
    count = task.count_centers(max(math.isqrt(usable // 8), kmeans.FEWEST_CENTERS))
    fitting = usable // (_CANDIDATE_BYTES * kmeans.CANDIDATES_PER_CLUSTER * count)
    vectors = embedding.vectors
    vectors = vectors.rechunk({0: min(max(fitting, _FEWEST_ROWS), vectors.chunksize[0])})
    runner.on_every_worker(_limit_threads)
    with runner.client.as_current(), threadpool_limits(limits=1):
        _, centers = kmeans.kmeans(vectors, count, seed=task.options.seed)
        save_array(task.file("rough"), centers)


def _limit_threads() -> None:
    """Make the bits of sums independent of the number of cores, as they are in blocks."""
    import sklearn.cluster  # noqa: F401

    threadpool_limits(limits=1)
