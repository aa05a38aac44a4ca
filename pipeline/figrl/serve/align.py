"""Alignment: new vectors are rotated onto the published ones, so that two runs can be compared.

    Q = argmin || X_new Q - X_old ||      over orthogonal Q and the nodes of both runs

The last dimensions may be fixed: that of prominence means the same in every run. The vectors and
the fold-in basis are both multiplied by Q. This changes no norm and no angle
between vectors of a run, and vectors that are folded in later are rotated as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from figrl.engine.reduce import Partials, reduce_stages
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats, numbered
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.serve.embedding import Embedding
from figrl.serve.search import row_lengths
from figrl.store.arrays import ArraySpec, open_zarr, write_rows
from figrl.store.files import exists, load_array, move, save_array
from figrl.store.graph import Graph
from figrl.store.matrix import Floats, open_matrix, take_rows

DRIFT_BINS = 40
"""Bins of the cosine between the vectors of two runs, from -1 to 1."""

_ARRAYS = ("embedding", "basis")


@dataclass(frozen=True)
class AlignTask:
    """Parameters shared by all row blocks: the new run and its graph, the old graph and vectors.

    The first `rotated` dimensions are rotated.
    """

    folder: Path
    graph: Graph
    old_graph: Graph
    old: Path
    rotated: int

    @property
    def partials(self) -> Partials:
        """Sums over the rows of each block; the rotation lies beside them."""
        return Partials(self.folder / "work" / "align", count=self.graph.blocks)

    @property
    def rotation(self) -> Path:
        """Path of the rotation."""
        return self.partials.folder / "rotation.npy"


def _rotated(folder: Path, name: str) -> Path:
    """Path of a rotated array of a run until it replaces the original."""
    return folder / "work" / f"aligned-{name}"


def align_stages(
    folder: Path, graph: Graph, reference: Embedding, chunk_rows: int, rotated: int
) -> Stages[dict[str, Any]]:
    """Rotate the arrays of an unfinished run onto those of `reference`; return manifest entries.

    `chunk_rows`: rows of a chunk of the new vectors. `rotated`: dimensions to be rotated.
    `replace_rotated` completes the alignment.
    """
    task = AlignTask(folder, graph, reference.graph, reference.path / "embedding", rotated)
    dim, sources = reference.dim, tuple(folder / name for name in _ARRAYS)
    # New and old vectors of a chunk: as read, as taken, and with only finite rows.
    pair_bytes = 3 * 4 * dim * (chunk_rows + reference.chunk_rows)
    summed = yield Stage(
        "align",
        sum_block,
        numbered(task, graph.blocks),
        memory=Memory(task_bytes=pair_bytes + 2 * 8 * dim**2),
        reads=(sources[0], task.old),
        expected={"shared": 0},
    )
    left = yield from reduce_stages("align", task.partials, size_bytes=8 * dim**2)
    solve, solve_memory = [Block("all", (task, left))], Memory(task_bytes=8 * 8 * dim**2)
    yield Stage("align-solve", solve_rotation, solve, solve_memory, (left.folder,))
    shape, chunks = (graph.nodes, dim), (chunk_rows, dim)
    turned = yield Stage(
        "rotate",
        rotate_block,
        numbered(task, graph.blocks),
        # Besides the pairs, two chunks are read ahead and two are written behind.
        memory=Memory(task_bytes=pair_bytes + 16 * dim * chunk_rows + 4 * graph.block_rows),
        reads=(*sources, task.old, task.rotation),
        writes=(
            *(ArraySpec(_rotated(folder, name), shape, chunks) for name in _ARRAYS),
            ArraySpec(folder / "drift", (graph.nodes,), (graph.block_rows,)),
        ),
        expected={"compared": 0, "cosine": 0.0, "cosine_unaligned": 0.0, "histogram": [0]},
    )
    drift = _join_drift([turned.stats[key] for key in sorted(turned.stats)])
    shared = summed.total("shared")
    return {"alignment": {"reference": reference.run, "shared_nodes": shared, **drift}}


def replace_rotated(folder: Path) -> None:
    """Replace the arrays of a run by the rotated ones; a killed attempt may have begun with it."""
    for name in _ARRAYS:
        if exists(_rotated(folder, name)):
            move(_rotated(folder, name), folder / name)


def _pairs(task: AlignTask, block: int) -> Iterator[tuple[npt.NDArray[np.int64], Floats, Floats]]:
    """Rows of a block whose nodes both runs have, with their new and old vectors, by chunk."""
    start, stop = task.graph.block_range(block)
    new = task.folder / "embedding"
    height = open_matrix(new).chunks[0]
    for begin in range(start, stop, height):
        found = task.graph.index.match(begin, min(begin + height, stop), task.old_graph.index)
        here = np.flatnonzero(found >= 0)
        yield here + begin, take_rows(new, here + begin), take_rows(task.old, found[here])


def sum_block(task: AlignTask, block: int) -> Stats:
    """``X_new^t X_old`` over the shared rows of a block."""
    dim, shared = open_matrix(task.old).shape[1], 0
    total = np.zeros((dim, dim))
    for rows, new, old in _pairs(task, block):
        finite = np.isfinite(new).all(axis=1) & np.isfinite(old).all(axis=1)
        total += new[finite].T @ old[finite]
        shared += int(rows.size)
    task.partials.save(block, total)
    return {"shared": shared}


def solve_rotation(task: AlignTask, partials: Partials) -> Stats:
    """Compute the rotation: the orthogonal polar factor of the sum over all blocks."""
    total, size = partials.combined(), task.rotated
    left, _, right = scipy.linalg.svd(total[:size, :size], check_finite=False)
    rotation = np.eye(len(total))
    rotation[:size, :size] = left @ right
    save_array(task.rotation, rotation)
    return {}


def rotate_block(task: AlignTask, block: int) -> Stats:
    """Rotate the rows of a block, and measure their drift: 1 - cosine with the old vectors."""
    start, stop = task.graph.block_range(block)
    rotation = load_array(task.rotation).astype(np.float32)
    drift = np.full(stop - start, np.nan, np.float32)
    cosine = unaligned = 0.0
    histogram = np.zeros(DRIFT_BINS, np.int64)
    for rows, new, old in _pairs(task, block):
        cosines = cosines_of(new @ rotation, old)
        drift[rows - start] = 1.0 - cosines
        known = ~np.isnan(cosines)
        cosine += float(cosines[known].sum())
        unaligned += float(cosines_of(new, old)[known].sum())
        histogram += np.histogram(cosines[known].clip(-1, 1), DRIFT_BINS, (-1.0, 1.0))[0]
    write_rows(open_zarr(task.folder / "drift"), start, drift)
    written = drift.nbytes
    for name in _ARRAYS:
        source = open_matrix(task.folder / name)
        chunks = chunks_of_rows(source, start, stop, source.chunks[0])

        def rotated(_: int, out: Floats, chunks: Any = chunks) -> None:
            np.matmul(next(chunks), rotation, out=out)

        written += write_pieces(
            [_rotated(task.folder, name)], start, stop, source.chunks[0], rotated
        )
    return {
        "compared": int(histogram.sum()),
        "cosine": cosine,
        "cosine_unaligned": unaligned,
        "histogram": histogram.tolist(),
        "written_bytes": written,
    }


def cosines_of(left: Floats, right: Floats) -> npt.NDArray[np.float64]:
    """Cosine of each pair of rows; NaN where one of them is zero or not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = row_lengths(left) * row_lengths(right)
        products = np.einsum("ij,ij->i", left, right, dtype=np.float64)
        cosines = np.full(lengths.size, np.nan)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
    return cosines


def _join_drift(stats: list[Stats]) -> dict[str, Any]:
    """Mean cosines and the histogram, over all blocks."""
    compared = sum(part["compared"] for part in stats)
    means = {
        f"mean_{name}": sum(part[name] for part in stats) / compared if compared else None
        for name in ("cosine", "cosine_unaligned")
    }
    histogram = np.sum([part["histogram"] for part in stats], axis=0).tolist()
    return {"compared_nodes": compared, **means, "histogram": histogram}
