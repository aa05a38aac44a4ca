"""The d x d factor of the sketch: M = Q T, of which only T is kept, and T = P S V^t.

Three ways to it, each slower than the one before and good for smaller singular values. The Gram
matrix ``M^t M = T^t T`` squares the condition of M: with products in float32 and sums over chunks
in float64 it is right where the singular values lie within a factor of ten, as those of a single
pass do; with products in float64, within 10^5. Householder QR of each group of rows, and then of
the stacked factors, gives T itself. What a way says of the smallest singular value tells, after the
fact, whether it could be trusted; if not, the next one is tried. Groups and the order in which they
are combined are fixed by the shape of the sketch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.linalg.blas
import scipy.linalg.lapack

from pipeline.arrays import load_zarr, save_zarr
from pipeline.blocks import Stats
from pipeline.costs import Geometry
from pipeline.files import load_array, save_array
from pipeline.job import Block, Job
from pipeline.learn.buffers import thread_buffer
from pipeline.learn.rows import chunks_of_rows
from pipeline.tiles import Floats, open_tiles

Matrix = npt.NDArray[np.float64]
Method = Literal["gram", "gram-double", "qr"]

FAN_IN = 16
"""Partial factors that one task combines."""

TRUSTED: dict[Method, float] = {"gram": 0.1, "gram-double": 1e-5, "qr": 0.0}
"""Ways in the order in which they are tried, and the smallest sigma_k / sigma_1 that each can read.

The square of that share, 0.01 or 1e-10, has to stand clear of the rounding of the products, 1e-7 or
1e-16, for sigma_k to have five digits."""

NOISE_LIMIT = 4 * float(np.finfo(np.float32).eps)
"""Times sqrt(d) sigma_1: what rounding of the sketch to float32 alone can bring about."""


@dataclass(frozen=True)
class FactorTask:
    """What every group of rows has to know.

    Attributes
    ----------
    sketch : Path
    folder : Path
        Folder of partial factors.
    rows, columns : int
        Rows of the sketch, and its first columns, of which the factor is wanted.
    chunk_rows, group_rows : int
    method : str
    """

    sketch: Path
    folder: Path
    rows: int
    columns: int
    chunk_rows: int
    group_rows: int
    method: Method

    def partial(self, level: int, number: int) -> Path:
        """Where a partial factor lies."""
        return self.folder / f"{self.method}-{level}-{number:06d}.npy"


def factor_group(task: FactorTask, group: int) -> Stats:
    """Reduce a group of rows of the sketch to a d x d matrix."""
    sketch = open_tiles(task.sketch)
    rows, columns = sketch.shape
    start = group * task.group_rows
    stop = min(start + task.group_rows, rows)
    combine = _COMBINE[task.method]
    partial = np.zeros((0 if task.method == "qr" else columns, columns), order="F")
    for chunk in chunks_of_rows(sketch, start, stop, task.chunk_rows):
        partial = combine(partial, chunk)
    save_array(task.partial(0, group), partial)
    return {"read_bytes": (stop - start) * columns * 4, "written_bytes": partial.nbytes}


def _add_gram(gram: Matrix, rows: Floats) -> Matrix:
    """``gram + rows^t rows``, in place; products in float32.

    NumPy sees that both factors are one matrix, and has BLAS compute half of the product.
    """
    square = thread_buffer("square", gram.shape)
    gram += np.matmul(rows.T, rows, out=square)
    return gram


def _add_gram_double(gram: Matrix, rows: npt.NDArray[np.float32]) -> Matrix:
    """Upper triangle of ``gram + rows^t rows``, in place; products in float64."""
    wide = rows.astype(np.float64).T
    return scipy.linalg.blas.dsyrk(1.0, wide, beta=1.0, c=gram, overwrite_c=True)


def _stack_qr(factor: Matrix, rows: npt.NDArray[Any]) -> Matrix:
    """Triangular factor of `factor` with more rows below it."""
    stacked = np.empty((len(factor) + len(rows), rows.shape[1]), order="F")
    stacked[: len(factor)], stacked[len(factor) :] = factor, rows
    # LAPACK itself: scipy.linalg.qr would copy the whole of it twice.
    packed, _, _, failed = scipy.linalg.lapack.dgeqrf(stacked, overwrite_a=True)
    if failed:
        raise AssertionError(f"dgeqrf was called wrongly: {failed}")
    return np.asfortranarray(np.triu(packed[: rows.shape[1]]))


_COMBINE: dict[Method, Callable[[Matrix, npt.NDArray[np.float32]], Matrix]] = {
    "gram": _add_gram,
    "gram-double": _add_gram_double,
    "qr": _stack_qr,
}


def combine_partials(task: FactorTask, level: int, number: int, below: int) -> Stats:
    """Combine up to `FAN_IN` partial factors of the level below into one."""
    first = number * FAN_IN
    sources = range(first, min(first + FAN_IN, below))
    combined = _combined(task, level - 1, sources)
    save_array(task.partial(level, number), combined)
    return {
        "read_bytes": combined.nbytes * len(sources),
        "written_bytes": combined.nbytes,
    }


def _combined(task: FactorTask, level: int, sources: range) -> Matrix:
    combine: Callable[[Matrix, Matrix], Matrix] = _stack_qr if task.method == "qr" else np.add
    return reduce(combine, (load_array(task.partial(level, number)) for number in sources))


def solve_factor(
    task: FactorTask, level: int, left: int, dim: int, trusted_share: float, out: Path
) -> Stats:
    """Singular values and right singular vectors from the few factors that are left."""
    factor = _combined(task, level, range(left))[: task.columns, : task.columns]
    values, vectors = decompose(factor, task.method)
    limit = NOISE_LIMIT * np.sqrt(factor.shape[1]) * values[0]
    rank = int(np.count_nonzero(values[:dim] > limit))
    fix_signs(vectors)
    smallest = float(values[rank - 1]) if rank else 0.0
    trusted = rank == dim and smallest >= trusted_share * values[0]
    vectors = np.ascontiguousarray(vectors[:, :dim])
    save_zarr(out / "singular_values", values)
    save_zarr(out / "right_vectors", vectors)
    return {
        "rank": rank,
        "trusted": bool(trusted) or task.method == "qr",
        "largest": float(values[0]),
        "smallest": float(values[dim - 1]),
        "smallest_of_rank": smallest,
    }


def decompose(factor: Matrix, method: Method) -> tuple[Matrix, Matrix]:
    """Singular values, largest first, and V, of a sketch with this Gram matrix or factor."""
    if method != "qr":
        squares, vectors = scipy.linalg.eigh(factor, lower=False, check_finite=False)
        values = np.sqrt(np.maximum(squares[::-1], 0.0))
        return values, np.asarray(vectors[:, ::-1])
    _, values, rows = scipy.linalg.svd(factor, check_finite=False)
    padded = np.zeros(rows.shape[0])
    padded[: values.size] = values
    return padded, np.asarray(rows.T)


def fix_signs(vectors: Matrix) -> None:
    """Make the entry of largest size in each column positive, so that two runs agree."""
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors *= np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def projector(factor: Path) -> npt.NDArray[np.float32]:
    """``V_k S_k^-1``, d x k; a direction that is only noise becomes a column of zeros."""
    values, vectors = (load_zarr(factor / name) for name in ("singular_values", "right_vectors"))
    kept = values[: vectors.shape[1]]
    limit = NOISE_LIMIT * np.sqrt(vectors.shape[0]) * values[0]
    inverse = np.divide(1.0, kept, out=np.zeros_like(kept), where=kept > limit)
    return np.asarray(vectors * inverse, np.float32)


def factor_sketch(
    job: Job,
    sketch: Path,
    work: Path,
    out: Path,
    *,
    shape: tuple[int, int],
    geometry: Geometry,
    dim: int,
    name: str = "factor",
    trusted: Mapping[Method, float] = TRUSTED,
) -> Stats:
    """Find S and V of a stored sketch, by the first way that can be trusted with it.

    Parameters
    ----------
    job : Job
    sketch, work, out : Path
        The sketch; a folder for what is needed on the way; the folder of the result.
    shape : (int, int)
        Rows of the sketch, and how many of its first columns count.
    geometry : Geometry
    dim : int
        Singular vectors that are wanted.
    name : str
        Of the stages.
    trusted : mapping
        Ways to be tried, and the smallest share of the largest singular value that each can read.
    """
    solved: Stats = {}
    for method, share in trusted.items():
        task = FactorTask(sketch, work, *shape, geometry.chunk_rows, geometry.group_rows, method)
        of_method = name if method == "gram" else f"{name}-{method}"
        solved = {"method": method, **_reduce_and_solve(job, task, of_method, dim, share, out)}
        if solved["trusted"]:
            break
    return solved


def _reduce_and_solve(
    job: Job, task: FactorTask, name: str, dim: int, trusted_share: float, out: Path
) -> Stats:
    groups, level = -(-task.rows // task.group_rows), 0
    job.run(name, factor_group, [Block(f"{g:06d}", (task, g)) for g in range(groups)])
    while groups > FAN_IN:
        below, groups, level = groups, -(-groups // FAN_IN), level + 1
        blocks = [Block(f"{level}-{g:06d}", (task, level, g, below)) for g in range(groups)]
        job.run(f"{name}-combine-{level}", combine_partials, blocks)
    last = Block("all", (task, level, groups, dim, trusted_share, out))
    return job.run(f"{name}-solve", solve_factor, [last]).stats["all"]
