"""Rotating new vectors onto the published ones, so that two nights can be compared.

    Q = argmin || X_new Q - X_old ||      over orthogonal Q and the nodes that both have

Vectors and the fold-in basis are multiplied by the same Q. That changes no length and no angle
between vectors of one night, and turns vectors that are folded in alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from pipeline.arrays import ensure_zarr, open_zarr, write_rows
from pipeline.blocks import Stats
from pipeline.files import load_array, remove, save_array
from pipeline.graph import Graph
from pipeline.job import Block, Job
from pipeline.learn.rows import chunks_of_rows, write_pieces
from pipeline.serve.embedding import Embedding
from pipeline.tiles import Floats, open_tiles

DRIFT_BINS = 40
"""Bins of the cosine between the vectors of two nights, from -1 to 1."""

_ARRAYS = ("embedding", "basis")


@dataclass(frozen=True)
class AlignTask:
    """What every row block has to know.

    Attributes
    ----------
    folder : Path
        Folder of the new run.
    graph, old_graph : Graph
        The graphs of both runs.
    old : Path
        Vectors of the old run.
    """

    folder: Path
    graph: Graph
    old_graph: Graph
    old: Path

    @property
    def work(self) -> Path:
        """Folder of sums and of the rotation."""
        return self.folder / "work" / "align"

    def rotated(self, name: str) -> Path:
        """Where a rotated array lies until all of it is done."""
        return self.folder / "work" / f"aligned-{name}"


def align_run(job: Job, folder: Path, graph: Graph, reference: Embedding) -> dict[str, Any]:
    """Rotate the arrays of a run that has no manifest yet; what the manifest is to say of it."""
    task = AlignTask(folder, graph, reference.graph, reference.path / "embedding")
    task.work.mkdir(parents=True, exist_ok=True)
    blocks = [Block(f"{b:06d}", (task, b)) for b in range(graph.blocks)]
    shared = job.run("align", sum_block, blocks).total("shared")
    job.run("align-solve", solve_rotation, [Block("all", (task,))])
    _make_arrays(task)
    rotated = job.run("rotate", rotate_block, blocks)
    for name in _ARRAYS:
        # Killed between the two steps, the next attempt does the second one.
        if task.rotated(name).exists():
            remove(folder / name)
            task.rotated(name).rename(folder / name)
    drift = _join_drift([rotated.stats[key] for key in sorted(rotated.stats)])
    return {"alignment": {"reference": reference.run, "shared_nodes": shared, **drift}}


def _make_arrays(task: AlignTask) -> None:
    for name in _ARRAYS:
        if (task.folder / "work" / "marks" / "rotate").exists():
            continue
        made = open_zarr(task.folder / name)
        ensure_zarr(task.rotated(name), shape=made.shape, chunks=made.chunks, dtype=np.float32)
    shape, chunks = (task.graph.nodes,), (task.graph.block_rows,)
    ensure_zarr(task.folder / "drift", shape=shape, chunks=chunks, dtype=np.float32)


def shared_rows(
    graph: Graph, old_graph: Graph, start: int, stop: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows from `start` up to `stop` whose nodes the old graph has too, and the rows there."""
    found = old_graph.index.rows_of(graph.index.ids_of(start, stop))
    here = np.flatnonzero(found >= 0)
    return here + start, found[here]


def take_rows(path: Path, rows: npt.NDArray[np.int64]) -> Floats:
    """Rows of a stored matrix with whole rows in a chunk, a chunk at a time."""
    tiles = open_tiles(path)
    height, width = tiles.chunks
    out = np.empty((rows.size, width), np.float32)
    chunks = rows // height
    buffer = np.empty((height, width), np.float32)
    for chunk in np.unique(chunks):
        chosen = chunks == chunk
        first = int(chunk) * height
        part = tiles.read((first, 0), buffer[: min(height, tiles.shape[0] - first)])
        out[chosen] = part[rows[chosen] - first]
    return out


def _pairs(task: AlignTask, block: int) -> Iterator[tuple[npt.NDArray[np.int64], Floats, Floats]]:
    """Shared rows of a block, with their new vectors and their old ones, a chunk at a time."""
    start, stop = task.graph.block_range(block)
    new = task.folder / "embedding"
    height = open_tiles(new).chunks[0]
    for begin in range(start, stop, height):
        end = min(begin + height, stop)
        rows, old_rows = shared_rows(task.graph, task.old_graph, begin, end)
        yield rows, take_rows(new, rows), take_rows(task.old, old_rows)


def sum_block(task: AlignTask, block: int) -> Stats:
    """``X_new^t X_old`` over the shared rows of a block."""
    dim, shared = open_tiles(task.old).shape[1], 0
    total = np.zeros((dim, dim))
    for rows, new, old in _pairs(task, block):
        finite = np.isfinite(new).all(axis=1) & np.isfinite(old).all(axis=1)
        total += new[finite].T @ old[finite]
        shared += int(rows.size)
    save_array(task.work / f"{block:06d}.npy", total)
    return {"shared": shared}


def solve_rotation(task: AlignTask) -> Stats:
    """Find the rotation: the orthogonal factor of the sum."""
    total = load_array(task.work / f"{0:06d}.npy")
    for block in range(1, task.graph.blocks):
        total += load_array(task.work / f"{block:06d}.npy")
    left, values, right = scipy.linalg.svd(total, check_finite=False)
    save_array(task.work / "rotation.npy", left @ right)
    return {"strength": float(values.sum())}


def rotate_block(task: AlignTask, block: int) -> Stats:
    """Rotate the rows of a block, and measure how far they are from what they were."""
    start, stop = task.graph.block_range(block)
    rotation = load_array(task.work / "rotation.npy").astype(np.float32)
    drift = np.full(stop - start, np.nan, np.float32)
    cosine = unaligned = 0.0
    histogram = np.zeros(DRIFT_BINS, np.int64)
    for rows, new, old in _pairs(task, block):
        cosines = _cosines(new @ rotation, old)
        drift[rows - start] = 1.0 - cosines
        known = ~np.isnan(cosines)
        cosine += float(cosines[known].sum())
        unaligned += float(_cosines(new, old)[known].sum())
        histogram += np.histogram(cosines[known].clip(-1, 1), DRIFT_BINS, (-1.0, 1.0))[0]
    write_rows(open_zarr(task.folder / "drift"), start, drift)
    written = drift.nbytes
    for name in _ARRAYS:
        source = open_tiles(task.folder / name)
        chunks = chunks_of_rows(source, start, stop, source.chunks[0])

        def rotated(_: int, out: Floats, chunks: Any = chunks) -> None:
            np.matmul(next(chunks), rotation, out=out)

        written += write_pieces([task.rotated(name)], start, stop, source.chunks[0], rotated)
    return {
        "compared": int(histogram.sum()),
        "cosine": cosine,
        "cosine_unaligned": unaligned,
        "histogram": histogram.tolist(),
        "written_bytes": written,
    }


def _cosines(left: Floats, right: Floats) -> npt.NDArray[np.float64]:
    """Cosine of each pair of rows; NaN where one of them is zero, or no number."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        products = np.einsum("ij,ij->i", left, right, dtype=np.float64)
        cosines = np.full(lengths.size, np.nan)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
    return cosines


def _join_drift(stats: list[Stats]) -> dict[str, Any]:
    """Mean cosines and the histogram, over all blocks."""
    compared = sum(part["compared"] for part in stats)
    histogram = np.sum([part["histogram"] for part in stats], axis=0)
    return {
        "compared_nodes": compared,
        "mean_cosine": sum(p["cosine"] for p in stats) / compared if compared else None,
        "mean_cosine_unaligned": (
            sum(p["cosine_unaligned"] for p in stats) / compared if compared else None
        ),
        "histogram": histogram.tolist(),
    }
