"""Measures of a finished run, for the gates and the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import Block, Memory, Monitor, Stage, Stages, Stats, numbered
from figrl.serve.embedding import Embedding
from figrl.serve.search import Found, Metric, merge_found, prepared, search_vectors
from figrl.store.arrays import read_range
from figrl.store.files import delete, exists, load_array, read_record, save_array, write_record
from figrl.store.graph import ROW_GROUP_EDGES, Graph
from figrl.store.layout import read_manifest
from figrl.store.matrix import open_matrix, take_rows

Rows = npt.NDArray[np.int64]

SAMPLED_NODES = 128
NEAREST = 50
"""A neighbour in the graph counts as found if it is among this many nearest vectors."""

DEGREE_BINS = 40
"""Bins of degrees: up to 1, 2, 4, 8, ..."""

_SEARCH_BYTES_PER_ROW = 24 * SAMPLED_NODES
"""Scores of a chunk's rows with the sample, their order, and the best of them."""

_DEGREE_BYTES_PER_ROW = 40
_RECALL_BYTES_PER_EDGE = 64
_NEAREST_BYTES = 48 * SAMPLED_NODES * (NEAREST + 1)
"""Scores and rows that a block found, as they are merged."""


def measure_run(
    client: distributed.Client, embedding: Embedding, work: Path, monitor: Monitor
) -> dict[str, Any]:
    """Measures of a run, as ``judge`` takes them; kept with the run, so measured only once."""
    path = embedding.path / "checks.json"
    if not exists(path):
        facts = read_manifest(embedding.graph.path)["graph"]
        alignment = embedding.manifest.get("alignment", {})
        rows, dim = open_matrix(embedding.path / "embedding").chunks
        task = CheckTask(embedding.graph, embedding.path, rows, dim, work, embedding.metric)
        measured = ClusterRunner(client, work / "marks", monitor).run(check_stages(task))
        known = {
            **{key: facts[key] for key in ("nodes", "edges", "rows_read", "rows_rejected")},
            **{key: alignment.get(key) for key in ("mean_cosine", "compared_nodes")},
            "largest_residual": (embedding.manifest["certificate"] or {}).get("largest_residual"),
        }
        write_record(path, {**known, **measured})
        delete(work)
    return stored_measures(embedding)


def stored_measures(embedding: Embedding) -> dict[str, Any]:
    """Measures that are kept with a run; one that `embed` made has only its sizes."""
    sizes = {"nodes": embedding.graph.nodes, "edges": embedding.graph.edges}
    path = embedding.path / "checks.json"
    return {**sizes, **(read_record(path) if exists(path) else {})}


@dataclass(frozen=True)
class CheckTask:
    """Parameters shared by all blocks."""

    graph: Graph
    run: Path
    chunk_rows: int
    dim: int
    work: Path
    metric: Metric

    @property
    def vectors(self) -> Path:
        """Vectors of the run."""
        return self.run / "embedding"

    @property
    def sample(self) -> Rows:
        """Rows of the nodes whose neighbours are searched, evenly spaced."""
        return spaced_rows(self.graph.nodes, SAMPLED_NODES)

    def nearest(self, block: int) -> Path:
        """The vectors of a block that are nearest to the sampled ones."""
        return self.work / f"nearest-{block:06d}.npy"


def check_stages(task: CheckTask) -> Stages[dict[str, Any]]:
    """Count bad vectors and degrees, and measure how well vectors reflect edges."""
    graph = task.graph
    chunk = Memory(task_bytes=4 * task.dim * (task.chunk_rows + 8 * SAMPLED_NODES))
    per_row = 12 * task.dim + _SEARCH_BYTES_PER_ROW
    whole = (Block("all", (task,)),)
    yield Stage("sample", sample_vectors, whole, chunk, reads=(task.vectors,))
    checked = yield Stage(
        "check",
        check_block,
        numbered(task, graph.blocks),
        Memory(task_bytes=task.chunk_rows * per_row + graph.block_rows * _DEGREE_BYTES_PER_ROW),
        reads=(task.vectors, graph.degrees_path),
    )
    recalled = yield Stage(
        "recall",
        recall_block,
        numbered(task, np.unique(task.sample // graph.block_rows).tolist()),
        Memory(task_bytes=ROW_GROUP_EDGES * _RECALL_BYTES_PER_EDGE + graph.blocks * _NEAREST_BYTES),
        reads=(graph.path / "edges", task.work),
    )
    # In a fixed order: the mean depends on it, in its last bits.
    shares = [share for key in sorted(recalled.stats) for share in recalled.stats[key]["recall"]]
    histogram = np.sum([stats["degrees"] for stats in checked.stats.values()], axis=0)
    return {
        "non_finite_vectors": checked.total("non_finite"),
        "zero_vectors": checked.total("zero"),
        "neighbour_recall": float(np.mean(shares)) if shares else None,
        "degrees": histogram.tolist(),
    }


def spaced_rows(nodes: int, count: int) -> Rows:
    """At most `count` rows, evenly spaced."""
    return np.unique(np.linspace(0, nodes - 1, count).astype(np.int64))


def sample_vectors(task: CheckTask) -> Stats:
    """Save the vectors of the sampled nodes, as queries."""
    save_array(
        task.work / "sample.npy", prepared(take_rows(task.vectors, task.sample), task.metric)
    )
    return {"rows": task.sample.size}


def check_block(task: CheckTask, block: int) -> Stats:
    """Count bad vectors and nodes by degree, and search the vectors nearest to the sample."""
    start, stop = task.graph.block_range(block)
    matrix, height = open_matrix(task.vectors), task.chunk_rows
    buffer = np.empty((min(height, stop - start), task.dim), np.float32)
    queries = load_array(task.work / "sample.npy")
    path, chunk = task.graph.degrees_path, task.graph.block_rows
    degrees = read_range(path, start, stop, chunk=chunk, dtype=np.float64)
    # In a directed graph a node that is never a target has zeros there, and none is missing.
    expected = (degrees > 0) | (task.graph.kind != "directed")
    non_finite = zero = 0
    nearest: list[Found] = []
    for begin in range(start, stop, height):
        rows = matrix.read((begin, 0), buffer[: min(height, stop - begin)])
        non_finite += int((~np.isfinite(rows).all(axis=1)).sum())
        zero += int((~rows.any(axis=1) & expected[begin - start :][: len(rows)]).sum())
        for side, first, last in task.graph.index.cut_by_side(begin, begin + len(rows)):
            piece = first, rows[first - begin : last - begin]
            found = search_vectors([piece], queries, NEAREST + 1, task.metric)
            if side is not None:
                # Neighbours in the graph are on the other side, so only that is searched.
                found.scores[task.graph.index.sides_at(task.sample) == side] = -np.inf
            nearest = [merge_found([*nearest, found], NEAREST + 1)]
    save_array(task.nearest(block), np.stack([nearest[0].scores, nearest[0].rows]))
    bins = np.ceil(np.log2(np.maximum(degrees, 1.0))).astype(np.int64)
    counts = np.bincount(bins.clip(max=DEGREE_BINS - 1), minlength=DEGREE_BINS)
    return {"non_finite": non_finite, "zero": zero, "degrees": counts.tolist()}


def recall_block(task: CheckTask, block: int) -> Stats:
    """Share of the neighbours of each sampled node that are among its nearest vectors."""
    start, stop = task.graph.block_range(block)
    sample = task.sample
    parts = [load_array(task.nearest(number)) for number in range(task.graph.blocks)]
    nearest = merge_found([Found(c, rows.astype(np.int64)) for c, rows in parts], NEAREST + 1)
    hits, degrees = np.zeros((2, sample.size))
    for rows, columns, _ in task.graph.row_groups(block):
        places = np.searchsorted(sample, rows).clip(max=sample.size - 1)
        sampled = sample[places] == rows
        places, columns = places[sampled], columns[sampled]
        degrees += np.bincount(places, minlength=sample.size)
        for place in np.unique(places):
            hits[place] += np.isin(columns[places == place], nearest.rows[place]).sum()
    here = (sample >= start) & (sample < stop) & (degrees > 0)
    return {"recall": (hits[here] / np.minimum(degrees[here], NEAREST)).tolist()}
