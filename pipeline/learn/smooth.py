"""Smoothing: each vector moves to the mean of its neighbours', and is brought to length 1.

    Y_t = unit(P Y_(t-1) + Y_(t-1))    t < s          P = D^-1 W
    Y_s = unit(P Y_(s-1))

Lazy steps, which keep half of what there was, gave better clusters than twice as few of the other
kind. The last one is not lazy: a new node has no vector to keep, so it is one plain step from
``Y_(s-1)``, which is therefore the basis that folds in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pipeline.arrays import ensure_zarr
from pipeline.blocks import Stats
from pipeline.files import remove
from pipeline.graph import Graph
from pipeline.job import Block, Job
from pipeline.learn.kernels import scale_to_unit
from pipeline.learn.powers import make_matrix, run_product
from pipeline.learn.rows import chunks_of_rows, write_pieces
from pipeline.plan import EmbedPlan
from pipeline.tiles import Floats, open_tiles


@dataclass(frozen=True)
class Steps:
    """Where ``Y_0`` to ``Y_s`` lie.

    The last one is the embedding and the one before it the basis, with whole rows in a chunk. A
    product wants chunks that are slices of columns; where a slice has all of them, these are the
    same.
    """

    plan: EmbedPlan
    folder: Path

    @property
    def count(self) -> int:
        """Steps s."""
        return self.plan.recipe.smoothing

    @property
    def one_slice(self) -> bool:
        """Whether a product takes all columns at once."""
        return self.plan.narrow.slice_columns >= self.plan.recipe.dim

    def operand(self, step: int) -> Path:
        """Where the product finds ``Y_step``."""
        if self.one_slice and step == self.count - 1:
            return self.folder / "basis"
        return self.folder / "work" / f"smooth-{step:03d}"

    def outputs(self, step: int) -> tuple[Path, ...]:
        """All the places to which ``Y_step`` is written; made, if they are not there."""
        plan, dim = self.plan, self.plan.recipe.dim
        whole = [
            self.folder / name
            for name, last in (("embedding", self.count), ("basis", self.count - 1))
            if step == last
        ]
        for path in whole:
            shape, chunks = (plan.graph.nodes, dim), (plan.geometry.chunk_rows, dim)
            ensure_zarr(path, shape=shape, chunks=chunks, dtype=np.float32)
        if step < self.count and self.operand(step) not in whole:
            make_matrix(plan, self.operand(step), dim, plan.narrow.slice_columns)
            return (*whole, self.operand(step))
        return tuple(whole)


def run_smoothing(job: Job, steps: Steps) -> None:
    """Do all steps, from ``Y_0``, which is there, to the embedding."""
    plan, dim = steps.plan, steps.plan.recipe.dim
    step = 0
    while step < steps.count:
        # The last step is of another kind, and the one before it is the basis.
        together = min(plan.narrow.chain, max(steps.count - 1 - step, 1))
        operand, step = steps.operand(step), step + together
        name = f"smooth-{step:03d}"
        walk: Literal["plain", "lazy"] = "plain" if step == steps.count else "lazy"
        raw = steps.folder / "work" / f"raw-{step:03d}"
        outputs = steps.outputs(step)
        if steps.one_slice:
            of_step = {"columns": dim, "times": together}
            run_product(job, plan, name, operand, outputs[0], walk=walk, **of_step)
        else:
            make_matrix(plan, raw, dim, plan.narrow.slice_columns)
            run_product(job, plan, name, operand, raw, columns=dim, walk=walk)
            task = UnitTask(plan.graph, raw, outputs, plan.geometry.chunk_rows)
            blocks = [Block(f"{b:06d}", (task, b)) for b in range(plan.graph.blocks)]
            job.run(f"unit-{step:03d}", unit_block, blocks)
            remove(raw)
        if operand != steps.folder / "basis":
            remove(operand)


@dataclass(frozen=True)
class UnitTask:
    """What every row block has to know: a matrix, and where its rows of length 1 go."""

    graph: Graph
    source: Path
    outputs: tuple[Path, ...]
    chunk_rows: int


def unit_block(task: UnitTask, block: int) -> Stats:
    """Bring the rows of a row block to length 1."""
    start, stop = task.graph.block_range(block)
    source = open_tiles(task.source)
    chunks = chunks_of_rows(source, start, stop, task.chunk_rows)

    def scaled(_: int, out: Floats) -> None:
        np.copyto(out, next(chunks))
        scale_to_unit(out)

    written = write_pieces(task.outputs, start, stop, task.chunk_rows, scaled)
    return {"read_bytes": (stop - start) * source.shape[1] * 4, "written_bytes": written}
