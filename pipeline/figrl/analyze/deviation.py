"""The relative deviation score (RDS): how strongly another cluster attracts a node.

    RDS(v) = max over C != C_v of  (|y_v - u_Cv| / R_Cv) / (|y_v - u_C| / R_C)
    u_C: mean of the vectors of C         R_C: sum of their distances to it, the paper's radius

The paper's maximum includes the node's own cluster, whose ratio is 1 for every node and would hide
the order of smaller scores, so it is left out here. A cluster of one node has radius 0: it attracts
no other node, and its own node has the score 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from figrl.engine.reduce import Partials
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats, numbered
from figrl.store.files import load_array, save_array
from figrl.store.graph import Graph
from figrl.store.matrix import Floats, open_matrix

Labels = npt.NDArray[np.integer]
Numbers = npt.NDArray[np.float64]

_DISTANCES_AT_A_TIME, _ROWS_AT_A_TIME = 1 << 20, 1 << 14

_SCORED = np.dtype([("row", "i8"), ("score", "f8"), ("cluster", "i4"), ("toward", "i4")])
"""A node, its score, its cluster, and the cluster that attracts it."""


class Deviation(NamedTuple):
    """Scores of nodes, and the cluster that attracts each of them most (-1 for none)."""

    scores: Numbers
    toward: npt.NDArray[np.int64]


def add_vectors(sums: Numbers, vectors: npt.NDArray[Any], labels: Labels) -> None:
    """Add vectors to the sums of their clusters; the last column counts them."""
    np.add.at(sums[:, :-1], labels, vectors.astype(np.float64))
    sums[:, -1] += np.bincount(labels, minlength=len(sums))


def means(sums: Numbers) -> Numbers:
    """Centre of each cluster; zeros for an empty one."""
    return sums[:, :-1] / np.maximum(sums[:, -1:], 1.0)


def sum_distances(vectors: Floats, labels: Labels, centers: Numbers) -> Numbers:
    """Sum of the distances of each cluster's vectors to its centre."""
    distances = np.linalg.norm(vectors - centers[labels], axis=1)
    return np.asarray(np.bincount(labels, distances, minlength=len(centers)), np.float64)


def deviation(vectors: Floats, labels: Labels, centers: Numbers, radii: Numbers) -> Deviation:
    """Score vectors against the centres and radii of all clusters."""
    scores = np.zeros(len(vectors))
    toward = np.full(len(vectors), -1, np.int64)
    if len(centers) < 2:
        return Deviation(scores, toward)
    step = max(_DISTANCES_AT_A_TIME // len(centers), 1)
    buffer, squares = np.empty((step, len(centers))), (centers**2).sum(axis=1)
    for begin in range(0, len(vectors), step):
        part = slice(begin, begin + step)
        wide = vectors[part].astype(np.float64)
        # R_C / |y - u_C|, finite even where a vector equals a centre.
        pull = np.matmul(wide, centers.T, out=buffer[: len(wide)])
        pull *= -2.0
        pull += (wide**2).sum(axis=1)[:, None]
        pull += squares
        scale = max(float(pull.max()), -float(pull.min()), np.finfo(np.float64).tiny)
        np.sqrt(np.maximum(pull, 1e-14 * scale, out=pull), out=pull)
        np.divide(radii, pull, out=pull)
        own = labels[part].astype(np.int64)
        rows = np.arange(own.size)
        own_pull = pull[rows, own]
        pull[rows, own] = -1.0
        toward[part] = pull.argmax(axis=1)
        most = pull[rows, toward[part]]
        scores[part] = np.divide(most, own_pull, out=np.zeros_like(most), where=own_pull > 0)
        toward[part][scores[part] <= 0] = -1
    return Deviation(np.maximum(scores, 0.0), toward)


def cluster_means(vectors: npt.NDArray[Any], labels: Labels) -> Numbers:
    """Mean of the vectors of each cluster, in memory."""
    sums = np.zeros((int(labels.max()) + 1, vectors.shape[1] + 1))
    add_vectors(sums, vectors, labels)
    return means(sums)


def score_vectors(vectors: Floats, labels: Labels) -> Deviation:
    """Score all vectors of a graph, in memory."""
    centers = cluster_means(vectors, labels)
    return deviation(vectors, labels, centers, sum_distances(vectors, labels, centers))


@dataclass(frozen=True)
class DeviationTask:
    """Parameters shared by all row blocks; `count` nodes are wanted."""

    graph: Graph
    embedding: Path
    labels: Path
    work: Path
    dim: int
    clusters: int
    count: int

    def partials(self, name: str) -> Partials:
        """Partial results of the blocks."""
        return Partials(self.work / name, count=self.graph.blocks)

    def result(self, name: str) -> Path:
        """File of the result of all blocks."""
        return self.work / f"{name}.npy"

    def pieces(self, block: int) -> Iterator[tuple[int, Floats, Labels]]:
        """Rows of a block in pieces: the number of the first row, vectors and clusters."""
        start, stop = self.graph.block_range(block)
        matrix, labels = (
            open_matrix(self.embedding),
            load_array(self.labels, mapped=True, checked=False),
        )
        height = min(matrix.chunks[0], _ROWS_AT_A_TIME)
        for begin in range(start, stop, height):
            end = min(begin + height, stop)
            vectors = np.empty((end - begin, self.dim), np.float32)
            yield begin, matrix.read((begin, 0), vectors), np.asarray(labels[begin:end])

    def save_partial(self, name: str, block: int, values: npt.NDArray[Any]) -> Stats:
        """Save the partial result of a block, and return the statistics of the block."""
        self.partials(name).save(block, values)
        start, stop = self.graph.block_range(block)
        return {"read_bytes": 4 * self.dim * (stop - start), "written_bytes": values.nbytes}


def deviation_memory(clusters: int, dim: int, count: int) -> Memory:
    """Memory of a block: centres, sums, distances, vectors, and the best nodes so far."""
    sums, distances = 24 * clusters * (dim + 1), 16 * max(_DISTANCES_AT_A_TIME, clusters)
    rows = 16 * _ROWS_AT_A_TIME * dim + 3 * _SCORED.itemsize * count
    return Memory(task_bytes=sums + distances + rows)


def deviation_stages(task: DeviationTask) -> Stages[Stats]:
    """Find the nodes with the highest scores of the whole graph; see `highest_block`."""
    blocks = numbered(task, task.graph.blocks)
    memory = deviation_memory(task.clusters, task.dim, task.count)
    reads = (task.embedding, task.labels)
    for name, function in (("centers", centre_block), ("radii", radius_block)):
        yield Stage(f"{name}-sums", function, blocks, memory, reads)
        yield Stage(name, add_partials, [Block("all", (task, name))], memory)
    yield Stage("scores", score_block, blocks, memory, reads)
    every, none = [Block("all", (task,))], {"nodes": [], "members": 0}
    highest = yield Stage("highest", highest_block, every, memory, expected=none)
    return highest.only


def centre_block(task: DeviationTask, block: int) -> Stats:
    """Sum the vectors of a block by cluster."""
    sums = np.zeros((task.clusters, task.dim + 1))
    for _, vectors, labels in task.pieces(block):
        add_vectors(sums, vectors, labels)
    return task.save_partial("centers", block, sums)


def radius_block(task: DeviationTask, block: int) -> Stats:
    """Sum the distances of a block by cluster."""
    centers = load_array(task.result("centers"))
    parts = (sum_distances(vectors, labels, centers) for _, vectors, labels in task.pieces(block))
    return task.save_partial("radii", block, reduce(np.add, parts))


def add_partials(task: DeviationTask, name: str) -> Stats:
    """Add the partial sums of all blocks, in order."""
    total = task.partials(name).combined()
    if name == "centers":
        save_array(task.result("sizes"), total[:, -1].astype(np.int64))
    save_array(task.result(name), means(total) if name == "centers" else total)
    return {"read_bytes": total.nbytes * task.graph.blocks, "written_bytes": total.nbytes}


def score_block(task: DeviationTask, block: int) -> Stats:
    """Find the nodes of a block with the highest scores."""
    centers, radii = (load_array(task.result(name)) for name in ("centers", "radii"))
    best = np.empty(0, _SCORED)
    for first, vectors, labels in task.pieces(block):
        found = deviation(vectors, labels, centers, radii)
        scored = np.empty(len(labels), _SCORED)
        scored["row"], scored["cluster"] = first + np.arange(len(labels)), labels
        scored["score"], scored["toward"] = found
        best = _highest(np.concatenate([best, scored]), task.count)
    return task.save_partial("scores", block, best)


def highest_block(task: DeviationTask) -> Stats:
    """Find the highest scores of all blocks, and save their rows.

    Returns ``nodes``, highest first, and ``members``: the sizes of their clusters, summed.
    """
    best = np.empty(0, _SCORED)
    for block in range(task.graph.blocks):
        found = load_array(task.partials("scores").path(block))
        best = _highest(np.concatenate([best, found]), task.count)
    save_array(task.result("highest"), best["row"])
    names = best.dtype.names or ()
    return {
        "nodes": [dict(zip(names, node, strict=True)) for node in best.tolist()],
        "members": int(load_array(task.result("sizes"))[best["cluster"]].sum()),
    }


def _highest(nodes: npt.NDArray[np.void], count: int) -> npt.NDArray[np.void]:
    """The highest scores first; ties by row."""
    return nodes[np.lexsort((nodes["row"], -nodes["score"]))[:count]]
