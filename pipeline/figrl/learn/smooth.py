"""Smoothing: each vector moves to the mean of its neighbours' vectors, and is normalised.

    Y_t = unit(P Y_(t-1) + Y_(t-1))    t < s          P = D^-1 W
    Y_s = unit(P Y_(s-1))

Lazy steps, which keep half of the vector, gave better clusters than half as many plain ones. The
last one is plain: a new node has no vector to keep, so its vector is one plain step from
``Y_(s-1)``, which is therefore the fold-in basis. A step is a product with a `walk`; its rows are
finished in `figrl.learn.operand.ProductTask.finish_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from figrl.engine.stage import Cost, Memory, Stage, Stages, Stats, numbered
from figrl.learn.kernels import scale_to_unit
from figrl.learn.operand import ProductTask
from figrl.learn.product import product_stage
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup
from figrl.store.arrays import ArraySpec
from figrl.store.matrix import Floats, open_matrix


@dataclass(frozen=True)
class Steps:
    """Where ``Y_0`` to ``Y_s`` lie.

    The last one is the embedding and the one before it the basis, with whole rows in a chunk. A
    product needs chunks that are slices of columns; where a slice has all of them, these are the
    same.
    """

    setup: Setup

    @property
    def count(self) -> int:
        """Steps s."""
        return self.setup.spec.smoothing

    @property
    def one_slice(self) -> bool:
        """Whether a product takes all columns at once."""
        return self.setup.narrow.slice_columns >= self.setup.spec.dim

    def operand(self, step: int) -> Path:
        """Where the product finds ``Y_step``."""
        if self.one_slice and step == self.count - 1:
            return self.setup.folder / "basis"
        return self.setup.work / f"smooth-{step:03d}"

    def outputs(self, step: int) -> tuple[ArraySpec, ...]:
        """All arrays to which ``Y_step`` is written."""
        setup = self.setup
        whole = tuple(
            setup.rows_array(setup.folder / name)
            for name, last in (("embedding", self.count), ("basis", self.count - 1))
            if step == last
        )
        operand = self.operand(step)
        if step == self.count or any(array.path == operand for array in whole):
            return whole
        return (*whole, setup.slices_array(operand, setup.spec.dim, setup.narrow))


def smooth_stages(setup: Setup) -> Stages[None]:
    """All steps, from ``Y_0``, which is there, to the embedding."""
    steps, tiling, dim = Steps(setup), setup.narrow, setup.spec.dim
    step = 0
    while step < steps.count:
        # The last step is of another kind, and the one before it is the basis.
        together = min(tiling.chain, max(steps.count - 1 - step, 1))
        operand, step = steps.operand(step), step + together
        outputs = steps.outputs(step)
        raw = setup.slices_array(setup.work / f"raw-{step:03d}", dim, tiling)
        writes = outputs if steps.one_slice else (raw,)
        walk: Literal["plain", "lazy"] = "plain" if step == steps.count else "lazy"
        task = ProductTask(setup, tiling, operand, writes[0].path, dim, walk)
        yield product_stage(
            task,
            "smooth",
            step,
            writes,
            times=together,
            frees=() if operand == setup.folder / "basis" else (operand,),
        )
        if not steps.one_slice:
            yield _normalise_stage(setup, step, raw, outputs)


def _normalise_stage(
    setup: Setup, step: int, raw: ArraySpec, outputs: tuple[ArraySpec, ...]
) -> Stage:
    graph, dim = setup.graph, setup.spec.dim
    paths = tuple(output.path for output in outputs)
    tall = min(max(output.chunks[0] for output in outputs), graph.nodes)
    return Stage(
        "smooth-normalise",
        normalise_block,
        numbered(setup, graph.blocks, raw.path, paths),
        Memory(task_bytes=4 * dim * (3 * setup.chunk_rows + 3 * tall)),
        reads=(raw.path,),
        writes=outputs,
        frees=(raw.path,),
        step=step,
        cost=Cost(
            read_bytes=4 * graph.nodes * dim,
            written_bytes=4 * graph.nodes * dim * len(outputs),
            work={
                "copy": setup.copied_bytes(dim, setup.narrow) + 4 * graph.nodes * dim,
                "chunks": setup.chunk_count(2 * dim, setup.narrow),
            },
        ),
    )


def normalise_block(setup: Setup, block: int, raw: Path, outputs: tuple[Path, ...]) -> Stats:
    """Normalise the rows of a row block."""
    start, stop = setup.graph.block_range(block)
    source, rows = open_matrix(raw), setup.geometry.chunk_rows
    chunks = chunks_of_rows(source, start, stop, rows)

    def normalised(_: int, out: Floats) -> None:
        np.copyto(out, next(chunks))
        scale_to_unit(out)

    written = write_pieces(outputs, start, stop, rows, normalised)
    return {"read_bytes": (stop - start) * source.shape[1] * 4, "written_bytes": written}
