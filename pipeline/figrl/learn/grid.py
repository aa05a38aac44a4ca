"""One product on a grid of row groups and slices, each the work of one worker.

    rows r of slice c  =  sum over parts of the operand      each part is read once a worker

The rows stay in the memory of the worker, and the operand goes past them, as much of it at a time
as fits. So a product of any size is read as often as there are row groups, not row blocks.
"""

from __future__ import annotations

from figrl.engine.stage import Stats
from figrl.engine.worker import worker_state
from figrl.learn.chain import GraphByBlocks
from figrl.learn.operand import ColumnsReader, ProductTask, read_nodes
from figrl.store.matrix import Floats


def grid_cell(task: ProductTask, group: int, slice_number: int) -> Stats:
    """Compute a row group of a slice of a product in the memory of this worker, and store it."""
    graph, (first, last) = task.graph, task.slice_range(slice_number)
    blocks = GraphByBlocks(task, task.group_blocks(group))
    held = min(task.tiling.operand_rows, graph.nodes)
    with worker_state().matrices.use(1, (blocks.rows + held, last - first)) as (memory,):
        rows, operand = memory[: blocks.rows], memory[blocks.rows :]
        if task.before is not None:
            blocks.read(task.before, first, rows)
        blocks.each_block(
            lambda block: task.begin_rows(
                task.block_nodes(block), slice(None), rows[blocks.place(block)]
            )
        )
        source = task.operand_reader()
        for begin in range(0, graph.nodes, held):
            part = operand[: min(held, graph.nodes - begin)]
            _fill(task, source, blocks, begin, first, part)
            blocks.add(task, part, begin, rows)
        blocks.each_block(
            lambda block: task.finish_rows(
                task.block_nodes(block), slice(None), rows[blocks.place(block)]
            )
        )
        blocks.write(task.out, first, rows)
    width, read = 4 * (last - first), blocks.edge_bytes
    read += 0 if task.operand is None else graph.nodes * width
    read += 0 if task.before is None else blocks.rows * width
    return {"read_bytes": read, "written_bytes": blocks.rows * width}


def _fill(
    task: ProductTask,
    source: ColumnsReader | None,
    blocks: GraphByBlocks,
    begin: int,
    first: int,
    part: Floats,
) -> None:
    """Fill a part of the operand, whose rows begin at `begin`."""
    graph = task.graph
    end = begin + len(part)

    def fill(low: int) -> None:
        high = min(low + graph.block_rows, end)
        nodes = read_nodes(graph, low, high, task.spec.regularization)
        task.fill_operand(source, nodes, low, first, part[low - begin : high - begin])

    blocks.in_threads(fill, range(begin, end, graph.block_rows))
