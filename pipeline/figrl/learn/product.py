"""A product with the graph, a tile at a time.

    K[i, c] = sum over j of L[i, j] Z[j, c]      i, j: blocks of rows    c: slice of columns

``L = (D + tau)^-1/2 W (D + tau)^-1/2``: the right factor is applied to the operand when it is
filled, the left one to the result, so the product itself only adds up rows. A slice needs nothing
from the others. A step of smoothing is such a product too, with neither factor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from figrl.engine.stage import Block, Blocks, Cost, Memory, Stage, Stats
from figrl.engine.worker import worker_state
from figrl.learn.kernels import accumulate
from figrl.learn.operand import ProductTask, kept_entry_bytes, read_nodes
from figrl.learn.setup import Setup
from figrl.store.arrays import ArraySpec
from figrl.store.graph import ROW_GROUP_EDGES, Graph, RowGroupReader
from figrl.store.matrix import Floats, open_matrix
from figrl.store.overlap import WriteBehind

_CHUNK_COPIES = 12
"""Bytes for an entry of a chunk of the product: the sum, the one being written, a copy."""

_EDGE_BYTES = 36
"""Bytes for an entry of a row group while it is read: as it is stored, and decoded."""

_NODE_BYTES = 48
"""Bytes for a node of a row block while its part of the operand is filled."""


def product_tile(task: ProductTask, block: int, slice_number: int) -> Stats:
    """Compute one tile of the product and write it, chunk by chunk."""
    graph, spec = task.graph, task.spec
    columns = task.slice_range(slice_number)
    width = columns[1] - columns[0]
    if task.parts > 1:
        _tile_by_parts(task, block, columns)
    else:
        content = (graph.path, task.operand, task.columns, columns)
        key = (*content, spec.seed, spec.regularization)
        fill = partial(task.fill_block, columns[0])
        shape = (graph.nodes, width)
        with worker_state().operand.use(key, shape, graph.blocks, fill) as operand:
            _tile_by_chunks(task, block, columns, operand)
    start, stop = graph.block_range(block)
    rows_bytes = 4 * (stop - start) * width
    return {
        "read_bytes": task.parts * graph.edge_bytes(block) + (rows_bytes if task.before else 0),
        "written_bytes": rows_bytes,
    }


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
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, height)):
            end = min(begin + height, stop)
            chunk, place = buffers[number % 2][: end - begin], slice(begin - start, end - start)
            if task.before is not None:
                task.before.read(begin, columns[0], chunk)
            task.begin_rows(nodes, place, chunk)
            for rows, neighbours, weights in edges.rows_before(end):
                accumulate(rows, neighbours, weights, operand, chunk, first_row=begin)
            task.finish_rows(nodes, place, chunk)
            write(out.write, (begin, task.out.first + columns[0]), chunk)


def _tile_by_parts(task: ProductTask, block: int, columns: tuple[int, int]) -> None:
    """Go through the operand in parts, and over the edges once for each."""
    graph, (first, last) = task.graph, columns
    start, stop = graph.block_range(block)
    nodes = task.block_nodes(block)
    out = worker_state().buffer("tile", (stop - start, last - first))
    if task.before is not None:
        task.before.read(start, first, out)
    task.begin_rows(nodes, slice(None), out)
    for begin in range(0, graph.nodes, task.tiling.operand_rows):
        end = min(begin + task.tiling.operand_rows, graph.nodes)
        part = worker_state().buffer("operand", (end - begin, last - first))
        for low in range(begin, end, graph.block_rows):
            high = min(low + graph.block_rows, end)
            filled = read_nodes(graph, low, high, task.spec.regularization)
            task.fill_operand(filled, low, first, part[low - begin : high - begin])
        for rows, neighbours, weights in graph.row_groups(block):
            accumulate(rows, neighbours, weights, part, out, first_row=start, first_column=begin)
    task.finish_rows(nodes, slice(None), out)
    open_matrix(task.out.path).write((start, task.out.first + first), out)


Chain = tuple[Callable[..., Stats], Block]
"""A function that computes several products in the memory of one worker, and its only block."""


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
    tiles = Blocks(task.slices * graph.blocks, lambda i: _tile(task, *divmod(i, graph.blocks)))
    function, blocks = (product_tile, tiles) if chain is None else (chain[0], (chain[1],))
    memory, cost = _by_tiles(task) if chain is None else _in_memory(task, times, len(writes))
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


def _tile(task: ProductTask, slice_number: int, block: int) -> Block:
    return Block(f"{slice_number:04d}-{block:06d}", (task, block, slice_number))


def _by_tiles(task: ProductTask) -> tuple[Memory, Cost]:
    """Memory and cost of a product in slices: the edges are read once for each of them."""
    graph, parts = task.graph, task.parts
    width = task.slice_range(0)[1]
    operand_bytes = 4 * task.tiling.operand_rows * width
    # Parts of an operand are filled again for every row block.
    passes = 1 if parts == 1 else graph.blocks
    filled = graph.nodes * task.columns * passes
    stored = 0 if task.operand is None else 4 * filled
    fill = {"copy": stored} if stored else {"regenerate": filled}
    work = _operations(task, width)
    memory = Memory(
        operand_bytes if parts == 1 else 0,
        _tile_bytes(task.setup, width, parts) + (0 if parts == 1 else operand_bytes),
    )
    result_bytes = 4 * graph.nodes * task.columns
    cost = Cost(
        read_bytes=_edges_bytes(graph) * task.slices * parts
        + stored
        + (0 if task.before is None else result_bytes),
        written_bytes=result_bytes,
        flops=4 * graph.edges * task.columns,
        work=work if parts == 1 else Counter(work) + Counter(fill),
        worker_work=fill if parts == 1 else {},
    )
    return memory, cost


_CHAIN_MATRICES = 3
"""Matrices that a chain of products holds: an operand, and two results."""


def _in_memory(task: ProductTask, times: int, written: int) -> tuple[Memory, Cost]:
    """Memory and cost of products in the memory of one worker, with the whole graph."""
    graph, columns = task.graph, task.columns
    entries, size = 2 * graph.edges, 4 * graph.nodes * columns
    fill = {"regenerate": graph.nodes * columns} if task.operand is None else {"copy": size}
    work = _operations(task, columns)
    results = written if task.smooths else times
    memory = Memory(
        _CHAIN_MATRICES * size + kept_entry_bytes(graph) * entries + _NODE_BYTES * graph.nodes,
        _tile_bytes(task.setup, columns, 1),
    )
    cost = Cost(
        read_bytes=_edges_bytes(graph) + (0 if task.operand is None else 2 * size),
        written_bytes=results * size,
        flops=times * 2 * entries * columns,
        work=Counter({key: times * count for key, count in work.items()}) + Counter(fill),
        whole_worker=True,
    )
    return memory, cost


def _operations(task: ProductTask, width: int) -> dict[str, int]:
    """Operations of one product, by the name of their rate."""
    graph, entries = task.graph, 2 * task.graph.edges
    return {
        "gather": 4 * entries * task.columns,
        "rows": entries * task.slices,
        "entries": entries * task.slices * task.parts,
        "copy": 3 * 4 * graph.nodes * task.columns,
        "chunks": task.slices * math.ceil(graph.nodes / task.setup.tall_rows(width)),
    }


def _edges_bytes(graph: Graph) -> int:
    """Bytes of all stored entries, about."""
    return 2 * graph.edges * (12 if graph.weighted else 4)


def _tile_bytes(setup: Setup, columns: int, parts: int) -> int:
    """Memory that a thread needs for a tile: nodes, a row group of edges, sums."""
    graph = setup.graph
    rows = min(graph.block_rows, graph.nodes)
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    held = _NODE_BYTES * rows + entries * (_EDGE_BYTES + 20 * graph.weighted)
    if parts > 1:
        return held + 8 * rows * columns
    return held + _CHUNK_COPIES * min(setup.tall_rows(columns), graph.nodes) * columns
