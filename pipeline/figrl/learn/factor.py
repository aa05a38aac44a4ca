"""The d x d factor of the sketch: M = Q T, of which only T is kept, and T = P S V^t.

Three methods, each slower than the one before and right for smaller singular values. The Gram
matrix ``M^t M = T^t T`` squares the condition number of M: with products in float32 and sums over
chunks in float64 it is right where the singular values lie within a factor of ten, as those of a
single pass do; with products in float64, within 10^5. Householder QR of each group of rows, and
then of the stacked factors, gives T itself. The smallest singular value that a method finds shows
afterwards whether it could be trusted; if not, the next one is tried. Groups, and the order in
which they are combined, are fixed by the shape of the sketch.

Sketches with more columns than rows, or very many, are factored as a whole: see `factor_whole`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.linalg.blas
import scipy.linalg.lapack

from figrl.engine.reduce import Partials, reduce_stages
from figrl.engine.stage import Block, Cost, Memory, Stage, Stages, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.factor_whole import (
    EIGH_FLOPS,
    MANY_COLUMNS,
    has_many_columns,
    many_columns_stages,
    wide_stages,
)
from figrl.learn.kernels import scale_to_unit
from figrl.learn.rows import chunks_of_rows
from figrl.learn.setup import Setup
from figrl.learn.singular import Matrix, above_noise, fix_signs, save_factor
from figrl.store.arrays import ArraySpec
from figrl.store.matrix import Floats, open_matrix

Method = Literal["gram", "gram-double", "qr"]

TRUSTED: dict[Method, float] = {"gram": 0.1, "gram-double": 1e-5, "qr": 0.0}
"""Methods in the order in which they are tried, and the smallest sigma_k / sigma_1 each resolves.

The square of that ratio, 0.01 or 1e-10, has to be well above the rounding of the products, 1e-7 or
1e-16, for sigma_k to have five digits."""


@dataclass(frozen=True)
class FactorTask:
    """Parameters shared by all groups of rows, which are brought to length 1 if asked for."""

    sketch: Path
    partials: Partials
    chunk_rows: int
    group_rows: int
    method: Method
    normalises: bool = False


def factor_group(task: FactorTask, group: int) -> Stats:
    """Reduce a group of rows of the sketch to a d x d matrix."""
    sketch = open_matrix(task.sketch)
    rows, columns = sketch.shape
    start = group * task.group_rows
    stop = min(start + task.group_rows, rows)
    add = _ADD_ROWS[task.method]
    partial = np.zeros((0 if task.method == "qr" else columns, columns), order="F")
    for chunk in chunks_of_rows(sketch, start, stop, task.chunk_rows):
        rows_added = chunk
        if task.normalises:
            rows_added = chunk.copy()
            scale_to_unit(rows_added)
        partial = add(partial, rows_added)
    task.partials.save(group, partial)
    return {"read_bytes": (stop - start) * columns * 4, "written_bytes": partial.nbytes}


def _add_gram(gram: Matrix, rows: Floats) -> Matrix:
    """``gram + rows^t rows``, in place; products in float32.

    NumPy sees that both factors are one matrix, and has BLAS compute half of the product.
    """
    square = worker_state().buffer("square", gram.shape)
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


_ADD_ROWS: dict[Method, Callable[[Matrix, npt.NDArray[np.float32]], Matrix]] = {
    "gram": _add_gram,
    "gram-double": _add_gram_double,
    "qr": _stack_qr,
}


def solve_factor(
    task: FactorTask, partials: Partials, dim: int, trusted_ratio: float, out: Path
) -> Stats:
    """Singular values and right singular vectors from the few factors that are left."""
    factor = partials.combined()
    values, vectors = decompose(factor, task.method)
    rank = int(np.count_nonzero(above_noise(values[:dim], factor.shape[1])))
    fix_signs(vectors)
    smallest = float(values[rank - 1]) if rank else 0.0
    trusted = rank == dim and smallest >= trusted_ratio * values[0]
    vectors = np.ascontiguousarray(vectors[:, :dim])
    save_factor(out, values, vectors)
    return {"rank": rank, "trusted": bool(trusted) or task.method == "qr"}


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


def factor_stages(setup: Setup, many_columns: int = MANY_COLUMNS) -> Stages[Stats]:
    """Find S and V of the sketch by the first method that can be trusted with it.

    With more than `many_columns`, only of the dimensions that are wanted. Returns ``method`` and
    ``rank``.
    """
    if setup.is_wide:
        return (yield from wide_stages(setup))
    if has_many_columns(setup, many_columns):
        return (yield from many_columns_stages(setup, TRUSTED["gram"]))
    solved: Stats = {}
    for method, ratio in TRUSTED.items():
        found = yield from _method_stages(
            setup, method, ratio, needed=not solved.get("trusted", False)
        )
        solved = {"method": method, **found} if found else solved
    return solved


def _method_stages(setup: Setup, method: Method, ratio: float, *, needed: bool) -> Stages[Stats]:
    name = "factor" if method == "gram" else f"factor-{method}"
    task, left = yield from reduced_stages(setup, name, method, needed=needed)
    square = 8 * setup.columns**2
    solving = Block("all", (task, left, setup.spec.dim, ratio, setup.folder / "factor"))
    solved = yield Stage(
        f"{name}-solve",
        solve_factor,
        [solving] if needed else (),
        Memory(task_bytes=6 * square),
        cost=solve_cost(setup),
        expected={"rank": setup.spec.dim, "trusted": True},
    )
    return solved.only if needed else {}


def solve_cost(setup: Setup) -> Cost:
    """Cost of the eigendecomposition of a matrix of all columns."""
    size, square = setup.columns, 8 * setup.columns**2
    return Cost(
        read_bytes=setup.groups * square,
        written_bytes=2 * square,
        flops=EIGH_FLOPS * size**3,
        work={"gram": EIGH_FLOPS * size**3},
    )


def reduced_stages(
    setup: Setup,
    name: str,
    method: Method,
    *,
    needed: bool = True,
    source: ArraySpec | None = None,
    normalises: bool = False,
) -> Stages[tuple[FactorTask, Partials]]:
    """Reduce all rows of the sketch to a few d x d matrices, which the caller combines.

    With a `source`, the rows of that matrix of vectors instead, brought to length 1 if asked for.
    """
    combine = _stack_qr if method == "qr" else np.add
    partials = Partials(setup.work / name / method, combine, count=setup.groups)
    geometry, tiling = setup.geometry, setup.wide if source is None else setup.narrow
    path = setup.sketch if source is None else source.path
    width = setup.columns if source is None else source.shape[1]
    task = FactorTask(path, partials, geometry.chunk_rows, geometry.group_rows, method, normalises)
    nodes, square = setup.graph.nodes, 8 * width * width
    yield Stage(
        name,
        factor_group,
        numbered(task, setup.groups) if needed else (),
        Memory(task_bytes=3 * square + (20 if normalises else 16) * setup.chunk_rows * width),
        reads=(path,),
        cost=Cost(
            read_bytes=4 * nodes * width,
            again_bytes=setup.again_bytes(width, tiling),
            written_bytes=setup.groups * square,
            flops=nodes * width * width,
            work={
                "gram": nodes * width * width,
                "gram_entries": nodes * width,
                "copy": setup.copied_bytes(width, tiling),
                "chunks": setup.chunk_count(width, tiling),
            },
        ),
        releases_buffers=needed,
    )
    left = yield from reduce_stages(name, partials, size_bytes=square, needed=needed)
    return task, left
