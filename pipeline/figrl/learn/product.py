"""A product with the graph, as a stage.

    K[i, c] = sum over j of L[i, j] Z[j, c]      i, j: blocks of rows    c: slice of columns

``L = (D + tau)^-1/2 W (D + tau)^-1/2``: the right factor is applied to the operand when it is
filled, the left one to the result, so the product itself only adds up rows. A slice needs nothing
from the others. A step of smoothing is such a product too, with neither factor.

There are three ways to spread it over workers, and the plan takes the cheapest that fits: row
blocks that share an operand (here), slices that a worker has for itself (`chain`), and a grid of
row groups and slices past which the operand goes in parts (`grid`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from figrl.engine.stage import Block, Blocks, Stage, Stats
from figrl.engine.worker import worker_state
from figrl.learn.chain import graph_of
from figrl.learn.costs import product_costs
from figrl.learn.grid import grid_cell
from figrl.learn.kernels import accumulate
from figrl.learn.operand import ProductTask
from figrl.store.arrays import ArraySpec
from figrl.store.graph import RowGroupReader
from figrl.store.matrix import Floats, open_matrix
from figrl.store.overlap import WriteBehind


def product_tile(task: ProductTask, block: int, slice_number: int) -> Stats:
    """Compute a row block of a slice and write it, chunk by chunk; threads share the operand."""
    graph, spec = task.graph, task.spec
    columns = task.slice_range(slice_number)
    width = columns[1] - columns[0]
    key = (graph.path, task.operand, task.columns, columns, spec.seed, spec.regularization)
    read = 0 if task.keeps_edges(block) else graph.edge_bytes(block)
    source = task.operand_reader()

    def fill(block: int, operand: Floats) -> None:
        nonlocal read
        task.fill_block(source, columns[0], block, operand)
        begin, end = graph.block_range(block)
        read += 0 if task.operand is None else 4 * (end - begin) * width

    shape = (graph.nodes, width)
    with worker_state().operand.use(key, shape, graph.blocks, fill) as operand:
        _tile_by_chunks(task, block, columns, operand)
    start, stop = graph.block_range(block)
    rows_bytes = 4 * (stop - start) * width
    read += rows_bytes if task.before else 0
    return {"read_bytes": read, "written_bytes": rows_bytes}


def _tile_by_chunks(
    task: ProductTask, block: int, columns: tuple[int, int], operand: Floats
) -> None:
    """Add up the rows of a chunk, and write them while the next chunk is added up."""
    out = open_matrix(task.out.path)
    start, stop = task.graph.block_range(block)
    nodes = task.block_nodes(block)
    height, width = out.chunks[0], columns[1] - columns[0]
    buffers = worker_state().buffer_pair("out", (min(height, stop - start), width))
    edges = RowGroupReader(task.block_edges(block))
    before = None if task.before is None else task.before.reader()
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, height)):
            end = min(begin + height, stop)
            chunk, place = buffers[number % 2][: end - begin], slice(begin - start, end - start)
            if before is not None:
                before.read(begin, columns[0], chunk)
            task.begin_rows(nodes, place, chunk)
            for rows, neighbours, weights in edges.rows_before(end):
                accumulate(rows, neighbours, weights, operand, chunk, first_row=begin)
            task.finish_rows(nodes, place, chunk)
            write(out.write, (begin, task.out.first + columns[0]), chunk)


def product_slice(task: ProductTask, slice_number: int) -> Stats:
    """Compute a slice in the memory of this worker, and store it."""
    first, last = task.slice_range(slice_number)
    graph = graph_of(task)
    with worker_state().matrices.use(2, (task.graph.nodes, last - first)) as (operand, out):
        if task.before is not None:
            graph.read(task.before, first, out)
        source = task.operand_reader()
        graph.each_block(lambda block: task.fill_block(source, first, block, operand))
        graph.multiply(task, operand, out)
        graph.write(task.out, first, out)
        reads = (task.operand is not None) + (task.before is not None)
        return {
            "read_bytes": graph.edge_bytes + reads * out.nbytes,
            "written_bytes": out.nbytes,
        }


Chain = tuple[Callable[..., Stats], tuple[Any, ...]]
"""A function that computes a slice of several products, and its arguments but for the last."""


def product_stage(
    task: ProductTask,
    name: str,
    step: int,
    writes: tuple[ArraySpec, ...],
    *,
    chain: Chain | None = None,
    times: int = 1,
    frees: tuple[Path, ...] = (),
) -> Stage:
    """A product with the graph; with a `chain`, `times` of them from this one on."""
    graph = task.graph
    function, blocks = _spread(task, chain or (product_slice, (task,)))
    memory, cost = product_costs(task, times, times if not task.smooths else len(writes))
    return Stage(
        name,
        function,
        blocks,
        memory,
        reads=(graph.path,) if task.operand is None else (graph.path, task.operand.path),
        writes=writes,
        frees=frees,
        step=step,
        cost=cost,
        releases_buffers=task.operand is None,
    )


def _spread(task: ProductTask, chain: Chain) -> tuple[Callable[..., Stats], Blocks]:
    """The function and the blocks of a product, by the way it is spread."""
    if task.parts > 1:
        return grid_cell, _cells(task, task.tiling.groups, lambda s, g: (task, g, s))
    if task.tiling.chain == 0:
        return product_tile, _cells(task, task.graph.blocks, lambda s, b: (task, b, s))
    function, arguments = chain
    return function, Blocks(task.slices, lambda s: Block(f"{s:04d}", (*arguments, s)))


def _cells(
    task: ProductTask, rows: int, arguments: Callable[[int, int], tuple[Any, ...]]
) -> Blocks:
    """A block for each slice and each of some numbers of rows, slice by slice."""

    def make(number: int) -> Block:
        slice_number, row = divmod(number, rows)
        return Block(f"{slice_number:04d}-{row:06d}", arguments(slice_number, row))

    return Blocks(task.slices * rows, make)
