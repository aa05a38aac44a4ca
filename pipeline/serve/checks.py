"""What is measured of a run before it is published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from pipeline.arrays import read_stretch
from pipeline.blocks import Stats
from pipeline.files import load_array, remove, save_array
from pipeline.graph import Graph
from pipeline.job import Block, Monitor
from pipeline.run import ClusterJob
from pipeline.serve.align import take_rows
from pipeline.serve.embedding import Embedding
from pipeline.serve.neighbors import search
from pipeline.tiles import open_tiles

SAMPLED_NODES = 128
NEAREST = 50
"""A neighbour in the graph counts as found if it is among so many nearest vectors."""

DEGREE_BINS = 40
"""Bins of degrees: up to 1, 2, 4, 8, ..."""


@dataclass(frozen=True)
class CheckTask:
    """What every row block has to know."""

    graph: Graph
    vectors: Path
    work: Path


def check_run(
    client: distributed.Client, embedding: Embedding, work: Path, monitor: Monitor
) -> dict[str, Any]:
    """Measure a finished run: what is wrong with its vectors, and what they know of the graph."""
    graph = embedding.graph
    task = CheckTask(graph, embedding.path / "embedding", work)
    job = ClusterJob(client, work / "marks", monitor)
    blocks = [Block(f"{b:06d}", (task, b)) for b in range(graph.blocks)]
    checked = job.run("check", check_block, blocks)
    sample = np.unique(np.linspace(0, graph.nodes - 1, SAMPLED_NODES).astype(np.int64))
    found = search(task.vectors, None, take_rows(task.vectors, sample), NEAREST + 1, client)
    save_array(work / "sample.npy", sample)
    save_array(work / "nearest.npy", found.rows)
    touched = np.unique(sample // graph.block_rows)
    recalls = job.run("recall", recall_block, [Block(f"{b:06d}", (task, int(b))) for b in touched])
    shares = [share for stats in recalls.stats.values() for share in stats["recall"]]
    histogram = np.sum([stats["degrees"] for stats in checked.stats.values()], axis=0)
    remove(work)
    return {
        "non_finite_vectors": checked.total("non_finite"),
        "zero_vectors": checked.total("zero"),
        "neighbour_recall": float(np.mean(shares)) if shares else None,
        "degrees": histogram.tolist(),
    }


def check_block(task: CheckTask, block: int) -> Stats:
    """Count vectors that are no numbers or all zero, and nodes by degree."""
    start, stop = task.graph.block_range(block)
    tiles = open_tiles(task.vectors)
    height = tiles.chunks[0]
    buffer = np.empty((min(height, stop - start), tiles.shape[1]), np.float32)
    non_finite = zero = 0
    for begin in range(start, stop, height):
        rows = tiles.read((begin, 0), buffer[: min(height, stop - begin)])
        finite = np.isfinite(rows).all(axis=1)
        non_finite += int((~finite).sum())
        zero += int((~rows.any(axis=1)).sum())
    rows_of_block = task.graph.block_rows
    path = task.graph.degrees_path
    degrees = read_stretch(path, start, stop, chunk=rows_of_block, dtype=np.float64)
    places = np.ceil(np.log2(np.maximum(degrees, 1.0))).astype(np.int64)
    counts = np.bincount(places.clip(max=DEGREE_BINS - 1), minlength=DEGREE_BINS)
    return {"non_finite": non_finite, "zero": zero, "degrees": counts.tolist()}


def recall_block(task: CheckTask, block: int) -> Stats:
    """Share of the neighbours of each sampled node that are among its nearest vectors."""
    start, stop = task.graph.block_range(block)
    sample = load_array(task.work / "sample.npy")
    nearest = load_array(task.work / "nearest.npy")
    hits = np.zeros(sample.size)
    degrees = np.zeros(sample.size)
    for rows, columns, _ in task.graph.edge_runs(block):
        places = np.searchsorted(sample, rows).clip(max=sample.size - 1)
        sampled = sample[places] == rows
        places, columns = places[sampled], columns[sampled]
        degrees += np.bincount(places, minlength=sample.size)
        hits += np.bincount(places, _is_among(columns, nearest, places), minlength=sample.size)
    here = (sample >= start) & (sample < stop) & (degrees > 0)
    return {"recall": (hits[here] / np.minimum(degrees[here], NEAREST)).tolist()}


def _is_among(
    columns: npt.NDArray[np.int64], nearest: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Whether each column is among the nearest of its row; few rows are sampled."""
    found = np.zeros(columns.size)
    for place in np.unique(places):
        chosen = places == place
        found[chosen] = np.isin(columns[chosen], nearest[place])
    return found
