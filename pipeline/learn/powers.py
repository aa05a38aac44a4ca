"""The sketch ``M = L^(2q+1) R``: a chain of products, set upright again where it leans too far.

Every product brings the columns nearer to the strongest directions of L, and so nearer to each
other; in float32 the weak ones are lost in the rounding of the strong ones after a few.
``Z V S^-1`` spans the same space with columns that are orthonormal. How fast the columns lean is
measured, and from that it follows when to look at them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from pipeline.arrays import ensure_zarr
from pipeline.blocks import Stats
from pipeline.costs import tall_rows
from pipeline.files import remove
from pipeline.graph import Graph
from pipeline.job import Block, Job
from pipeline.learn.chain import run_chain
from pipeline.learn.factor import Method, factor_sketch, projector
from pipeline.learn.rows import chunks_of_rows, write_pieces
from pipeline.learn.sketch import SketchTask, sketch_tile
from pipeline.plan import EmbedPlan
from pipeline.stages import LOOK_EVERY
from pipeline.tiles import Floats, open_tiles

LEAST_SHARE: Final = 1e-3
"""Smallest singular value over the largest that a product may begin with: it leaves the weakest
direction four digits of float32."""

_FIRST_LOOK = 2
"""Products before the columns are looked at for the first time."""

_TRUSTED: dict[Method, float] = {"gram": 3e-3, "gram-double": 1e-6, "qr": 0.0}
"""As `factor.TRUSTED`, for columns that only have to be told apart."""


@dataclass(frozen=True)
class Powers:
    """Where the last two of the chain lie.

    Attributes
    ----------
    last, before : Path
        ``M = L before``; `before` is None where it is R.
    share : float
        What the smallest singular value of M should be of the largest; 1 where nothing is known.
    """

    last: Path
    before: Path | None
    share: float = 1.0


def run_products(job: Job, plan: EmbedPlan, folder: Path) -> Powers:
    """Compute the sketch; what is not needed any more is deleted on the way."""
    count = plan.recipe.products
    # The last but one is what new nodes are folded in with, unless smoothing makes that.
    alone = 0 if plan.recipe.smoothing else 1
    pace = Pace()
    operand: Path | None = None
    number = 0
    while number < count:
        left = max(count - alone - number, 1)
        together = min(plan.tiling.chain, pace.until_look, left)
        first, number = number + 1, number + together
        pace.advance(together)
        is_last = number == count
        out = folder / "sketch" if is_last else folder / "work" / f"power-{number:03d}"
        name = "sketch" if count == 1 else f"sketch-{first:03d}"
        make_matrix(plan, out, plan.columns, plan.tiling.slice_columns)
        run_product(job, plan, name, operand, out, times=together)
        if is_last:
            break
        before, operand = operand, out
        if pace.until_look == 0:
            operand = _look(job, plan, folder, number, out, pace)
        for done_with in (before, out):
            if done_with is not None and done_with != operand:
                remove(done_with)
    return Powers(folder / "sketch", operand, pace.expected_share())


class Pace:
    """Decides after which products the columns are looked at, and when they are set upright.

    At first the many weak directions of a graph hide how far ahead the strong ones are, so the
    columns lean faster and faster for a while: what the last look found does not hold for long.
    """

    def __init__(self) -> None:
        self._since = 0
        self._next = _FIRST_LOOK
        self._seen = (0, 1.0)
        self._of_one = 1.0

    def advance(self, products: int) -> None:
        """Count products that are done."""
        self._since += products

    @property
    def until_look(self) -> int:
        """Products that may still be done before the columns have to be looked at."""
        return max(self._next - self._since, 0)

    def leans(self, share: float) -> bool:
        """Take the share that was found; tell whether the columns have to be set upright."""
        products, before = self._since - self._seen[0], self._seen[1]
        self._of_one = min((share / before) ** (1 / products), 1.0) if share > 0 else 0.0
        upright = share * self._of_one < LEAST_SHARE
        self._seen = (0, 1.0) if upright else (self._since, share)
        self._since = 0 if upright else self._since
        left = _products_until(self._of_one, LEAST_SHARE / (1.0 if upright else share))
        self._next = self._since + left
        return upright

    def expected_share(self) -> float:
        """What is to be expected after the products that were counted."""
        return self._seen[1] * self._of_one ** (self._since - self._seen[0])


def _products_until(of_one: float, share: float) -> int:
    """Products, each of which leaves so much, after which a share is reached; a few at most."""
    if of_one >= 1:
        return LOOK_EVERY
    if of_one <= 0:
        return 1
    return max(1, min(LOOK_EVERY, math.floor(math.log(share) / math.log(of_one))))


def run_product(
    job: Job,
    plan: EmbedPlan,
    name: str,
    operand: Path | None,
    out: Path,
    *,
    columns: int | None = None,
    walk: Literal["", "plain", "lazy"] = "",
    times: int = 1,
) -> None:
    """Compute a product, tile by tile; by default with all columns of the sketch.

    Where one worker does products in a row, `times` of them are done before one is written.
    """
    tiling = plan.tiling if columns is None else plan.narrow
    recipe = plan.recipe
    task = SketchTask(
        graph=plan.graph,
        operand=operand,
        out=out,
        columns=columns or plan.columns,
        slice_columns=tiling.slice_columns,
        operand_rows=tiling.operand_rows,
        seed=recipe.seed,
        kept_bytes=plan.kept_bytes,
        regularization=recipe.regularization,
        projection=recipe.projection,
        probes=plan.probes,
        walk=walk,
    )
    if tiling.chain > 1:
        job.run(name, run_chain, [Block("all", (task, times, plan.memory.threads))])
        return
    tiles = [
        Block(f"{s:04d}-{b:06d}", (task, b, s))
        for s in range(task.slices)
        for b in range(plan.graph.blocks)
    ]
    job.run(name, sketch_tile, tiles)


def make_matrix(plan: EmbedPlan, path: Path, columns: int, slice_columns: int) -> None:
    """Make an empty matrix whose chunks are the slices of a product."""
    width = min(slice_columns, columns)
    # Narrow slices get taller chunks, or there would be a great many small files.
    height = tall_rows(plan.geometry, plan.graph, width)
    shape = (plan.graph.nodes, columns)
    ensure_zarr(path, shape=shape, chunks=(height, width), dtype=np.float32)


def _look(job: Job, plan: EmbedPlan, folder: Path, number: int, out: Path, pace: Pace) -> Path:
    """See how far the columns lean, and set them upright if it is too far; the path to go on with.

    What is left where they do not is the product itself.
    """
    factor = folder / "work" / f"lean-{number:03d}"
    size = plan.recipe.sketch_size
    solved = factor_sketch(
        job,
        out,
        factor / "partial",
        factor,
        shape=(plan.graph.nodes, size),
        geometry=plan.geometry,
        dim=size,
        name=f"lean-{number:03d}",
        trusted=_TRUSTED,
    )
    remove(factor / "partial")
    share = solved["smallest_of_rank"] / solved["largest"] if solved["largest"] else 1.0
    if not pace.leans(share):
        return out
    upright = out.with_name(f"upright-{number:03d}")
    make_matrix(plan, upright, plan.columns, plan.tiling.slice_columns)
    task = TransformTask(plan.graph, out, upright, factor, plan.geometry.chunk_rows, size)
    blocks = [Block(f"{b:06d}", (task, b)) for b in range(plan.graph.blocks)]
    job.run(f"upright-{number:03d}", transform_block, blocks)
    return upright


@dataclass(frozen=True)
class TransformTask:
    """What every row block has to know.

    Attributes
    ----------
    graph : Graph
    source, out : Path
        Matrices; columns of `source` from `size` on are copied.
    factor : Path
        Folder of S and V of the first `size` columns.
    chunk_rows : int
        Rows that are multiplied at a time; the bits depend on it, and it on the plan's shape.
    size : int
    """

    graph: Graph
    source: Path
    out: Path
    factor: Path
    chunk_rows: int
    size: int

    def matrix(self, columns: int) -> npt.NDArray[np.float32]:
        """``V S^-1`` for the first columns, and the identity for those that follow."""
        project = projector(self.factor)
        followers = columns - self.size
        matrix = np.zeros((columns, project.shape[1] + followers), np.float32)
        matrix[: self.size, : project.shape[1]] = project
        matrix[self.size :, project.shape[1] :] = np.eye(followers)
        return matrix


def transform_block(task: TransformTask, block: int) -> Stats:
    """Multiply a row block by ``V S^-1``."""
    start, stop = task.graph.block_range(block)
    source = open_tiles(task.source)
    matrix = task.matrix(source.shape[1])
    chunks = chunks_of_rows(source, start, stop, task.chunk_rows)

    def multiply(_: int, out: Floats) -> None:
        np.matmul(next(chunks), matrix, out=out)

    written = write_pieces([task.out], start, stop, task.chunk_rows, multiply)
    return {"read_bytes": (stop - start) * source.shape[1] * 4, "written_bytes": written}
