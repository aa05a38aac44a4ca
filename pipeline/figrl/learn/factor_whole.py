"""Sketches of the paper with very many columns, which one task factors as a whole.

More columns than rows: the smaller matrix is ``M M^t``, whose eigenvectors are U. Fewer, but more
than a decomposition of all d dimensions is worth: ``M^t M`` in tiles, and of its eigenvectors only
those that are wanted; products in float32, and in float64 where sigma_k is too small for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.linalg.blas

from figrl.engine.stage import Block, Cost, Memory, Stage, Stages, Stats
from figrl.learn.lanczos import basis_columns, largest_eigenpairs, working_bytes
from figrl.learn.rows import chunks_of_rows
from figrl.learn.setup import WIDE_COLUMNS, Setup
from figrl.learn.singular import above_noise, fix_signs, save_factor
from figrl.learn.tiled_gram import GRAM_ROWS, TiledGram
from figrl.store.matrix import Floats, StoredMatrix, open_matrix

MANY_COLUMNS = 10_000
"""Columns above which a tall sketch is factored as a whole: float64 takes 800 MB a d x d matrix."""

_LEAST_COLUMNS = 16
"""Times k: columns from which the few eigenvectors that are wanted come cheaper than all."""

EIGH_FLOPS = 20
"""Times d^3: the eigendecomposition of a d x d matrix, at the rate of the Gram matrix."""

Precision = Literal["float32", "float64"]

_RESIDUALS: dict[Precision, float] = {"float32": 1e-5, "float64": 1e-10}
"""Precisions in the order in which they are tried, and the residual that ends the iteration."""


def has_many_columns(setup: Setup, many: int = MANY_COLUMNS) -> bool:
    """Whether a sketch of the paper has so many columns that only k eigenvectors are computed."""
    columns = setup.columns
    return setup.spec.is_paper and columns > many and columns >= _LEAST_COLUMNS * setup.spec.dim


def wide_stages(setup: Setup) -> Stages[Stats]:
    """Find S and V from the smaller side of a sketch with more columns than rows."""
    nodes, columns, dim = setup.graph.nodes, setup.columns, setup.spec.dim
    square = 8 * nodes**2
    solved = yield Stage(
        "factor",
        factor_wide,
        [Block("all", (setup.sketch, dim, setup.folder / "factor"))],
        Memory(task_bytes=2 * square + 24 * nodes * WIDE_COLUMNS + 24 * dim * columns),
        reads=(setup.sketch,),
        cost=Cost(
            read_bytes=2 * 4 * nodes * columns,
            written_bytes=8 * dim * columns,
            flops=nodes**2 * columns,
            work={"gram": nodes**2 * columns + EIGH_FLOPS * nodes**3},
        ),
        expected={"rank": dim},
        releases_buffers=True,
    )
    return {"method": "gram-rows", **solved.only}


def factor_wide(path: Path, dim: int, out: Path) -> Stats:
    """Decompose ``M M^t = U S^2 U^t``; store S, and ``V = M^t U S^-1``."""
    sketch = open_matrix(path)
    rows, columns = sketch.shape
    gram = np.zeros((rows, rows), order="F")
    for part in _columns(sketch):
        gram = scipy.linalg.blas.dsyrk(
            1.0, part.astype(np.float64), beta=1.0, c=gram, overwrite_c=True
        )
    largest = (max(rows - dim, 0), rows - 1)
    squares, left = scipy.linalg.eigh(
        gram, lower=False, subset_by_index=largest, overwrite_a=True, check_finite=False
    )
    values, left = np.sqrt(np.maximum(squares[::-1], 0.0)), left[:, ::-1]
    kept = above_noise(values, columns)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
    right = np.vstack([part.T @ left for part in _columns(sketch)]) * inverse
    fix_signs(right)
    save_factor(out, values, right)
    return {"rank": int(kept.sum()), "read_bytes": 8 * rows * columns}


def _columns(sketch: StoredMatrix) -> Iterator[Floats]:
    """All rows of the columns of a chunk at a time."""
    (rows, columns), width = sketch.shape, sketch.chunks[1]
    for first in range(0, columns, width):
        yield sketch.read((0, first), np.empty((rows, min(width, columns - first)), np.float32))


@dataclass(frozen=True)
class ManyColumnsTask:
    """How a sketch with many columns is factored; a lower sigma_k / sigma_1 is not trusted."""

    sketch: Path
    dim: int
    precision: Precision
    trusted_ratio: float
    threads: int
    out: Path


def many_columns_stages(setup: Setup, trusted_ratio: float) -> Stages[Stats]:
    """Find S and V from the largest eigenpairs of the Gram matrix.

    In float32 if sigma_k / sigma_1 is at least `trusted_ratio`, else in float64.
    """
    nodes, columns, dim = setup.graph.nodes, setup.columns, setup.spec.dim
    solved: Stats = {}
    for precision in _RESIDUALS:
        name = "gram" if precision == "float32" else "gram-double"
        ratio = trusted_ratio if precision == "float32" else 0.0
        folder = setup.folder / "factor"
        task = ManyColumnsTask(setup.sketch, dim, precision, ratio, setup.threads, folder)
        needed = not solved.get("trusted", False)
        work = nodes * columns**2 + 2 * columns**2 * basis_columns(columns, dim)
        found = yield Stage(
            "factor" if precision == "float32" else "factor-double",
            factor_many_columns,
            [Block("all", (task,))] if needed else (),
            Memory(task_bytes=_many_columns_bytes(setup, precision)),
            reads=(setup.sketch,),
            cost=Cost(
                read_bytes=4 * nodes * columns,
                written_bytes=8 * dim * columns,
                flops=work,
                work={"gram": work},
                whole_worker=True,
            ),
            expected={"rank": dim, "trusted": True},
            releases_buffers=needed,
        )
        solved = {"method": f"{name}-largest", **found.only} if needed else solved
    return solved


def _many_columns_bytes(setup: Setup, precision: Precision) -> int:
    columns = setup.columns
    # Those that are added, those that are read ahead, and a chunk of the latter.
    rows_read = 3 * 4 * GRAM_ROWS * columns
    adding = TiledGram.adding_bytes(columns, precision, setup.threads)
    solving = working_bytes(columns, setup.spec.dim)
    # And a little for all that is small.
    return TiledGram.nbytes(columns, precision) + rows_read + max(adding, solving) + (2 << 20)


def factor_many_columns(task: ManyColumnsTask) -> Stats:
    """Sum ``M^t M = V S^2 V^t`` up; store S and V of its largest eigenvalues."""
    sketch = open_matrix(task.sketch)
    rows, columns = sketch.shape
    gram = TiledGram(columns, task.precision, task.threads)
    for some in chunks_of_rows(sketch, 0, rows, GRAM_ROWS):
        gram.add(some)
    tolerance = _RESIDUALS[task.precision]
    squares, right, residual = largest_eigenpairs(
        gram.multiply, columns, task.dim, tolerance=tolerance
    )
    values = np.sqrt(np.maximum(squares, 0.0))
    kept = above_noise(values, columns)
    trusted = kept.all() and values[-1] >= task.trusted_ratio * values[0] and residual <= tolerance
    fix_signs(right)
    save_factor(task.out, values, right)
    return {
        "rank": int(kept.sum()),
        "trusted": bool(trusted) or task.precision == "float64",
        "residual": residual,
        "read_bytes": 4 * rows * columns,
    }
