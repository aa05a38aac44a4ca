"""The sketch ``M = L^(2q+1) R``: a chain of products, orthonormalised where it is ill-conditioned.

Every product brings the columns nearer to the strongest directions of L, and so nearer to each
other; in float32 the weak ones are lost in the rounding of the strong ones after a few.
``Z V S^-1`` spans the same space with orthonormal columns. How fast the condition gets worse is
measured, and from that it follows when to measure it again. All stages are always listed; those
that turn out not to be needed are empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import scipy.linalg

from figrl.engine.stage import Cost, Memory, Stage, Stages, Stats, numbered
from figrl.learn.factor import Factor, Method, factor_stages, projector
from figrl.learn.operand import ProductTask
from figrl.learn.product import product_stage
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup, Tiling
from figrl.store.matrix import Floats, open_matrix

LEAST_CONDITION: Final = 1e-3
"""Smallest singular value over the largest that a product may begin with: it leaves the weakest
direction four digits of float32."""

MEASURE_EVERY = 3
"""Most products between two measurements of the condition of the columns."""

_FIRST_MEASUREMENT = 2
"""Products before the condition is measured for the first time."""

_TRUSTED: dict[Method, float] = {"gram": 3e-3, "gram-double": 1e-6, "qr": 0.0}
"""As `factor.TRUSTED`, for columns that only have to be told apart."""


@dataclass(frozen=True)
class Powers:
    """Where the last two of the chain lie: ``M = L before``; `before` is None where it is R.

    `condition` is the ratio of singular values of M to be expected.
    """

    last: Path
    before: Path | None
    condition: float = 1.0


def sketch_stages(setup: Setup) -> Stages[Powers]:
    """Compute the sketch; what is not needed any more is deleted on the way."""
    count, work = setup.spec.products, setup.work
    # The last but one is the basis for new nodes, unless smoothing makes that.
    alone = 0 if setup.spec.smoothing else 1
    pace = Pace()
    operand: Path | None = None
    before: Path | None = None
    out = setup.folder / "sketch"
    done = together = 0
    for number in range(1, count + 1):
        needed = number == done + 1
        if needed:
            left = max(count - alone - done, 1)
            together = min(setup.wide.chain, pace.until_measured, left)
            done += together
            pace.advance(together)
            out = setup.folder / "sketch" if done == count else work / f"power-{done:03d}"
            before = operand
        task = ProductTask(setup, setup.wide, before, out, setup.columns)
        written = setup.slices_array(out, setup.columns, setup.wide)
        yield product_stage(
            task,
            "sketch",
            number,
            (written,),
            times=together,
            needed=needed,
            # Of the last product, new nodes are folded in with the operand.
            frees=(before,) if needed and before is not None and done < count else (),
        )
        if needed and done < count:
            operand = out
        if number < count:
            due = number == done and pace.until_measured == 0
            operand = yield from _condition_stages(setup, number, operand, pace, needed=due)
    return Powers(setup.folder / "sketch", operand, pace.expected_condition())


class Pace:
    """Decides after which products the condition is measured, and when to orthonormalise.

    At first the many weak directions of a graph hide how far ahead the strong ones are, so the
    condition gets worse faster and faster for a while: a measurement does not hold for long.
    """

    def __init__(self) -> None:
        self._since = 0
        self._next = _FIRST_MEASUREMENT
        self._seen = (0, 1.0)
        self._of_one = 1.0

    def advance(self, products: int) -> None:
        """Count products that are done."""
        self._since += products

    @property
    def until_measured(self) -> int:
        """Products that may still be done before the condition has to be measured."""
        return max(self._next - self._since, 0)

    def is_ill_conditioned(self, condition: float) -> bool:
        """Take the condition that was measured; return whether to orthonormalise."""
        products, before = self._since - self._seen[0], self._seen[1]
        self._of_one = min((condition / before) ** (1 / products), 1.0) if condition > 0 else 0.0
        again = condition * self._of_one < LEAST_CONDITION
        self._seen = (0, 1.0) if again else (self._since, condition)
        self._since = 0 if again else self._since
        left = MEASURE_EVERY if self._of_one >= 1 else 1
        if 0 < self._of_one < 1:
            allowed = LEAST_CONDITION / (1.0 if again else condition)
            until = math.floor(math.log(allowed) / math.log(self._of_one))
            left = max(1, min(MEASURE_EVERY, until))
        self._next = self._since + left
        return again

    def expected_condition(self) -> float:
        """Condition to be expected after the products that were counted."""
        return self._seen[1] * self._of_one ** (self._since - self._seen[0])


def _condition_stages(
    setup: Setup, number: int, product: Path | None, pace: Pace, *, needed: bool
) -> Stages[Path | None]:
    """Measure the condition of a product, and orthonormalise its columns if it is too bad.

    Returns the operand to go on with, which is the product itself where they are well conditioned.
    """
    source = product or setup.work
    work, size = setup.work / f"condition-{number:03d}", setup.spec.sketch_size
    factor = Factor(
        name="condition",
        sketch=source,
        work=work / "partial",
        out=work,
        dim=size,
        tiling=setup.wide,
        trusted=_TRUSTED,
        step=number,
        needed=needed,
    )
    solved = yield from factor_stages(setup, factor)
    moves = needed and pace.is_ill_conditioned(solved["condition"])
    out = setup.work / f"orthonormal-{number:03d}"
    task = TransformTask(setup, source, out, work)
    yield transform_stage(
        task,
        "orthonormalise",
        number,
        setup.wide,
        (setup.columns, setup.columns),
        needed=moves,
        frees=(work / "partial", *((source,) if moves else ())) if needed else (),
    )
    return out if moves else product


@dataclass(frozen=True)
class TransformTask:
    """Parameters shared by all row blocks; `factor` is the folder of S and V of the sketch.

    Columns of `source` beyond those of the sketch, the probes, are copied.
    """

    setup: Setup
    source: Path
    out: Path
    factor: Path


def transform_block(task: TransformTask, block: int) -> Stats:
    """Multiply a row block by ``V S^-1``, and its probes by the identity."""
    start, stop = task.setup.graph.block_range(block)
    source, rows = open_matrix(task.source), task.setup.geometry.chunk_rows
    probes = source.shape[1] - task.setup.spec.sketch_size
    matrix = scipy.linalg.block_diag(projector(task.factor), np.eye(probes, dtype=np.float32))
    chunks = chunks_of_rows(source, start, stop, rows)

    def multiply(_: int, out: Floats) -> None:
        np.matmul(next(chunks), matrix, out=out)

    written = write_pieces([task.out], start, stop, rows, multiply)
    return {"read_bytes": (stop - start) * source.shape[1] * 4, "written_bytes": written}


def transform_stage(
    task: TransformTask,
    name: str,
    step: int | None,
    tiling: Tiling,
    shape: tuple[int, int],
    *,
    needed: bool = True,
    frees: tuple[Path, ...] = (),
) -> Stage:
    """Rows of a stored matrix times a small one of `shape`, into a matrix of slices of `tiling`."""
    setup, (wide, narrow) = task.setup, shape
    nodes = setup.graph.nodes
    tall = min(setup.tall_rows(min(tiling.slice_columns, narrow)), nodes)
    held = 3 * setup.chunk_rows * wide + 3 * wide * narrow + 3 * tall * narrow
    return Stage(
        name,
        transform_block,
        numbered(task, setup.graph.blocks) if needed else (),
        Memory(task_bytes=4 * held),
        reads=(task.source,),
        writes=(setup.slices_array(task.out, narrow, tiling),),
        frees=frees,
        step=step,
        cost=Cost(
            read_bytes=4 * nodes * wide,
            written_bytes=4 * nodes * narrow,
            flops=2 * nodes * wide * narrow,
            work={
                "gemm": 2 * nodes * wide * narrow,
                "copy": setup.copied_bytes(wide, setup.wide) + 4 * nodes * narrow,
                "chunks": setup.chunk_count(wide + narrow, setup.wide),
            },
        ),
    )
