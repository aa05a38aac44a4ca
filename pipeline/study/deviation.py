"""The relative deviation score (RDS): how far a node is drawn away from its own cluster.

    RDS(v) = max over C != C_v of  (|y_v - u_Cv| / R_Cv) / (|y_v - u_C| / R_C)
    u_C: mean of the vectors of C         R_C: sum of their distances to it, the paper's radius

The paper's maximum goes over all clusters; that of a node's own is 1 for every node and would only
hide the order of those below it, so it is left out. A cluster of one node has no radius and neither
draws nor is left: such a node has the score 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.files import load_array, save_array
from pipeline.graph import Graph
from pipeline.job import Block, Job
from pipeline.tiles import Floats, open_tiles

Labels = npt.NDArray[np.integer]
Numbers = npt.NDArray[np.float64]

_DISTANCES_AT_A_TIME, _ROWS_AT_A_TIME = 1 << 20, 1 << 14

_SCORED = np.dtype([("row", "i8"), ("score", "f8"), ("cluster", "i4"), ("toward", "i4")])
"""A node with its score, its cluster, and the one that draws it."""


@dataclass(frozen=True)
class Deviation:
    """Score of some nodes, and the cluster that draws each of them most (-1 for none)."""

    scores: Numbers
    toward: npt.NDArray[np.int64]


def add_vectors(sums: Numbers, vectors: Floats, labels: Labels) -> None:
    """Add vectors to the sums of their clusters, and their number to the last column."""
    np.add.at(sums[:, :-1], labels, vectors.astype(np.float64))
    sums[:, -1] += np.bincount(labels, minlength=len(sums))


def means(sums: Numbers) -> Numbers:
    """Centre of each cluster; zeros for one without nodes."""
    return sums[:, :-1] / np.maximum(sums[:, -1:], 1.0)


def sum_distances(vectors: Floats, labels: Labels, centers: Numbers) -> Numbers:
    """Sum of the distances of a cluster's vectors to its centre."""
    distances = np.linalg.norm(vectors - centers[labels], axis=1)
    return np.asarray(np.bincount(labels, distances, minlength=len(centers)), np.float64)


def deviation(vectors: Floats, labels: Labels, centers: Numbers, radii: Numbers) -> Deviation:
    """Score vectors against the centres and radii of all clusters."""
    scores = np.zeros(len(vectors))
    toward = np.full(len(vectors), -1, np.int64)
    if len(centers) < 2:
        return Deviation(scores, toward)
    step = max(_DISTANCES_AT_A_TIME // len(centers), 1)
    room, squares = np.empty((step, len(centers))), (centers**2).sum(axis=1)
    for begin in range(0, len(vectors), step):
        part = slice(begin, begin + step)
        pull = _pull(vectors[part].astype(np.float64), centers, squares, radii, room)
        own = labels[part].astype(np.int64)
        rows = np.arange(own.size)
        # The pull of its own cluster is what the others are measured by.
        holds = pull[rows, own]
        pull[rows, own] = -1.0
        toward[part] = pull.argmax(axis=1)
        drawn = pull[rows, toward[part]]
        scores[part] = np.divide(drawn, holds, out=np.zeros_like(drawn), where=holds > 0)
        toward[part][scores[part] <= 0] = -1
    return Deviation(np.maximum(scores, 0.0), toward)


def _pull(
    vectors: Numbers, centers: Numbers, squares: Numbers, radii: Numbers, room: Numbers
) -> Numbers:
    """``R_C / |y - u_C|``, written to `room`; finite also where a vector lies on a centre."""
    pull = room[: len(vectors)]
    np.matmul(vectors, centers.T, out=pull)
    pull *= -2.0
    pull += (vectors**2).sum(axis=1)[:, None]
    pull += squares
    scale = max(float(pull.max()), -float(pull.min()), np.finfo(np.float64).tiny)
    np.maximum(pull, 1e-14 * scale, out=pull)
    np.sqrt(pull, out=pull)
    return np.divide(radii, pull, out=pull)


def score_vectors(vectors: Floats, labels: Labels) -> Deviation:
    """Score all vectors of a graph that fit into memory."""
    clusters = int(labels.max()) + 1
    sums = np.zeros((clusters, vectors.shape[1] + 1))
    add_vectors(sums, vectors, labels)
    centers = means(sums)
    return deviation(vectors, labels, centers, sum_distances(vectors, labels, centers))


@dataclass(frozen=True)
class DeviationTask:
    """What every row block has to know.

    Attributes
    ----------
    graph : Graph
    embedding, labels : Path
        The vectors, and an int array in a file: the cluster of each row.
    work : Path
        Folder of partial sums and of the result.
    clusters, count : int
        Clusters, and nodes that are wanted.
    """

    graph: Graph
    embedding: Path
    labels: Path
    work: Path
    clusters: int
    count: int

    def partial(self, name: str, block: int) -> Path:
        """Where the sums of a block lie."""
        return self.work / name / f"{block:06d}.npy"

    def pieces(self, block: int) -> Iterator[tuple[int, Floats, Labels]]:
        """Rows of a block, some at a time: the number of the first, vectors and clusters."""
        start, stop = self.graph.block_range(block)
        tiles, labels = open_tiles(self.embedding), load_array(self.labels, mapped=True)
        height = min(tiles.chunks[0], _ROWS_AT_A_TIME)
        for begin in range(start, stop, height):
            end = min(begin + height, stop)
            vectors = np.empty((end - begin, tiles.shape[1]), np.float32)
            yield begin, tiles.read((begin, 0), vectors), np.asarray(labels[begin:end])

    def block_stats(self, block: int, written_bytes: int = 0) -> Stats:
        """What every block tells."""
        start, stop = self.graph.block_range(block)
        columns = open_tiles(self.embedding).shape[1]
        return {"read_bytes": 4 * columns * (stop - start), "written_bytes": written_bytes}


def centre_block(task: DeviationTask, block: int) -> Stats:
    """Sum the vectors of a block by cluster."""
    sums = np.zeros((task.clusters, open_tiles(task.embedding).shape[1] + 1))
    for _, vectors, labels in task.pieces(block):
        add_vectors(sums, vectors, labels)
    save_array(task.partial("sums", block), sums)
    return task.block_stats(block, sums.nbytes)


def radius_block(task: DeviationTask, block: int) -> Stats:
    """Sum the distances of a block by cluster."""
    centers = load_array(task.work / "centers.npy")
    parts = (sum_distances(vectors, labels, centers) for _, vectors, labels in task.pieces(block))
    distances = reduce(np.add, parts)
    save_array(task.partial("distances", block), distances)
    return task.block_stats(block, distances.nbytes)


def add_partials(task: DeviationTask, name: str, result: str) -> Stats:
    """Add up what the blocks found, in their order."""
    total = load_array(task.partial(name, 0))
    for block in range(1, task.graph.blocks):
        total += load_array(task.partial(name, block))
    save_array(task.work / f"{result}.npy", means(total) if name == "sums" else total)
    return {"read_bytes": total.nbytes * task.graph.blocks, "written_bytes": total.nbytes}


def score_block(task: DeviationTask, block: int) -> Stats:
    """Find the nodes of a block with the highest scores."""
    centers, radii = (load_array(task.work / f"{name}.npy") for name in ("centers", "radii"))
    best = np.empty(0, _SCORED)
    for first, vectors, labels in task.pieces(block):
        found = deviation(vectors, labels, centers, radii)
        scored = np.empty(len(labels), _SCORED)
        scored["row"] = first + np.arange(len(labels))
        scored["score"], scored["toward"] = found.scores, found.toward
        scored["cluster"] = labels
        best = _highest(np.concatenate([best, scored]), task.count)
    save_array(task.partial("best", block), best)
    return task.block_stats(block, best.nbytes)


def highest_block(task: DeviationTask) -> Stats:
    """Find the nodes with the highest scores of all blocks."""
    best = np.empty(0, _SCORED)
    for block in range(task.graph.blocks):
        found = load_array(task.partial("best", block))
        best = _highest(np.concatenate([best, found]), task.count)
    return {
        "nodes": [dict(zip(best.dtype.names or (), node, strict=True)) for node in best.tolist()]
    }


def _highest(nodes: npt.NDArray[np.void], count: int) -> npt.NDArray[np.void]:
    """The highest scores first; ties by row."""
    return nodes[np.lexsort((nodes["row"], -nodes["score"]))[:count]]


def deviation_bytes(clusters: int, dim: int, threads: int) -> int:
    """Memory that centres, sums and distances take in a worker."""
    distances = 8 * max(_DISTANCES_AT_A_TIME, clusters)
    return threads * (24 * clusters * (dim + 1) + 2 * distances + 16 * _ROWS_AT_A_TIME * dim)


def highest_deviation(job: Job, task: DeviationTask) -> list[dict[str, float]]:
    """Nodes with the highest scores of the whole graph, highest first."""
    blocks = range(task.graph.blocks)
    for name, function, result in (
        ("sums", centre_block, "centers"),
        ("distances", radius_block, "radii"),
    ):
        job.run(f"{result}-sums", function, [Block(f"{b:06d}", (task, b)) for b in blocks])
        job.run(result, add_partials, [Block("all", (task, name, result))])
    job.run("scores", score_block, [Block(f"{b:06d}", (task, b)) for b in blocks])
    highest = job.run("highest", highest_block, [Block("all", (task,))]).stats["all"]
    nodes: list[dict[str, float]] = highest["nodes"]
    return nodes
