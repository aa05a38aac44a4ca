"""The deep sketch: a block Krylov space of the graph's matrix in a Chebyshev basis.

    K_1 = L R / sqrt(b)     K_2 = L K_1     K_(i+1) = 2 L K_i - K_(i-1)      K_i = L T_(i-1)(L) R

R is n x b and regenerated from seeds. The sketch is ``M = [K_1 ... K_s]``; one more product,
``K_(s+1)``, lies beside it, from which ``M^t L M`` follows. The spectrum of L is within [-1, 1],
where Chebyshev polynomials stay bounded and far from each other, so nothing is orthonormalised on
the way, and slices of columns need nothing from each other. Depth 1 is the paper: ``M = L R``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from figrl.engine.stage import Stages, Stats
from figrl.engine.worker import worker_state
from figrl.learn.chain import graph_of
from figrl.learn.operand import Columns, ProductTask
from figrl.learn.product import product_stage
from figrl.learn.setup import WIDE_COLUMNS, Setup
from figrl.store.arrays import ArraySpec
from figrl.store.matrix import Floats


def sketch_stages(setup: Setup) -> Stages[None]:
    """All products, one after the other or in chains."""
    number, last = 1, setup.spec.products
    while number <= last:
        times = min(max(setup.wide.chain, 1), last + 1 - number)
        yield product_stage(
            sketch_product(setup, number),
            "sketch",
            number,
            (sketch_array(setup),),
            chain=(run_products, (setup, number, times)),
            times=times,
        )
        number += times


def sketch_array(setup: Setup) -> ArraySpec:
    """The stored matrix of all products; the slices of each are chunks."""
    width = WIDE_COLUMNS if setup.is_wide else setup.spec.width
    return setup.slices_array(setup.sketch, setup.columns, setup.wide, width)


def sketch_product(setup: Setup, number: int) -> ProductTask:
    """The product that computes ``K_number``."""
    width = setup.spec.width

    def block(i: int) -> Columns | None:
        return Columns(setup.sketch, (i - 1) * width) if i > 0 else None

    return ProductTask(
        setup,
        setup.wide,
        operand=block(number - 1),
        out=Columns(setup.sketch, (number - 1) * width),
        columns=width,
        before=block(number - 2),
        factors=(2.0, 1.0) if number > 2 else (1.0, 0.0),
    )


def run_products(setup: Setup, first: int, times: int, slice_number: int) -> Stats:
    """Compute a slice of ``K_first`` and those after it in the memory of this worker, and store it.

    What a product gave is the operand of the next one, and `before` of the one after that.
    """
    task = sketch_product(setup, first)
    column, end = task.slice_range(slice_number)
    with worker_state().matrices.use(3, (setup.graph.nodes, end - column)) as matrices:
        operand, latest, earlier = matrices
        graph = graph_of(task)
        if task.operand is not None:
            graph.read(task.operand, column, latest)
        if task.before is not None:
            graph.read(task.before, column, earlier)
        for number in range(first, first + times):
            task = sketch_product(setup, number)
            graph.each_block(partial(_fill, task, column, latest, operand))
            graph.multiply(task, operand, earlier)
            latest, earlier = earlier, latest
            graph.write(task.out, column, latest)
        size = latest.nbytes
        return {
            "read_bytes": graph.edge_bytes + min(first - 1, 2) * size,
            "written_bytes": times * size,
        }


def _fill(task: ProductTask, column: int, latest: Floats, operand: Floats, block: int) -> None:
    """Write rows of the operand of a product whose last result is in memory."""
    if task.operand is None:
        task.fill_block(None, column, block, operand)
        return
    begin, end = task.graph.block_range(block)
    scale = task.block_nodes(block).scale.astype(np.float32)[:, None]
    np.multiply(latest[begin:end], scale, out=operand[begin:end])
