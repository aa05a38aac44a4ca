"""Products Z_t = L Z_(t-1), a tile at a time; Z_0 = R / sqrt(d), and the sketch is the last.

    Z_t[i, s] = sum over j of L[i, j] Z_(t-1)[j, s]      i, j: blocks of rows    s: slice of columns

``L = (D + tau)^-1/2 W (D + tau)^-1/2``: the right factor is applied to the operand when it is
filled, the left one to the result, so the product itself only adds up rows. A slice needs nothing
from the others. A step of smoothing is such a product too, with neither factor.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from pathlib import Path

from figrl.engine.stage import Block, Blocks, Cost, Memory, Stage, Stats
from figrl.engine.worker import worker_state
from figrl.learn.chain import run_chain
from figrl.learn.operand import ProductTask, read_nodes
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

KEPT_ENTRY_BYTES = 16
"""Bytes for an entry of the graph that is kept in memory: its row and its column."""


def product_tile(task: ProductTask, block: int, slice_number: int) -> Stats:
    """Compute one tile of the product and write it, chunk by chunk."""
    graph = task.graph
    columns = task.slice_range(slice_number)
    if task.tiling.operand_rows < graph.nodes:
        _tile_by_parts(task, block, columns)
    else:
        spec, shape = task.spec, (graph.nodes, task.operand_width(columns))
        content = (graph.path, task.operand, task.columns, columns)
        key = (*content, spec.seed, spec.regularization, spec.projection)
        fill = partial(task.fill_block, columns[0])
        with worker_state().operand.use(key, shape, graph.blocks, fill) as operand:
            _tile_by_chunks(task, block, columns, operand)
    start, stop = graph.block_range(block)
    return {
        "read_bytes": task.parts * graph.edge_bytes(block),
        "written_bytes": 4 * (stop - start) * (columns[1] - columns[0]),
    }


def _tile_by_chunks(
    task: ProductTask, block: int, columns: tuple[int, int], operand: Floats
) -> None:
    """Add up the rows of a chunk, and write them while the next chunk is added up."""
    out = open_matrix(task.out)
    start, stop = task.graph.block_range(block)
    nodes = task.block_nodes(block)
    height, width = out.chunks[0], columns[1] - columns[0]
    buffers = worker_state().buffer_pair("out", (min(height, stop - start), width))
    edges, add = RowGroupReader(task.block_edges(block)), task.add
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, height)):
            end = min(begin + height, stop)
            chunk = buffers[number % 2][: end - begin]
            chunk[:] = 0
            for rows, neighbours, weights in edges.rows_before(end):
                add(rows, neighbours, weights, operand, chunk, first_row=begin)
            own = operand[begin:end] if task.walk == "lazy" else None
            task.finish_rows(nodes, slice(begin - start, end - start), chunk, own)
            write(out.write, (begin, columns[0]), chunk)


def _tile_by_parts(task: ProductTask, block: int, columns: tuple[int, int]) -> None:
    """Go through the operand in parts, and over the edges once for each."""
    graph, (first, last), add = task.graph, columns, task.add
    start, stop = graph.block_range(block)
    out = worker_state().buffer("tile", (stop - start, last - first))
    out[:] = 0
    for begin in range(0, graph.nodes, task.tiling.operand_rows):
        end = min(begin + task.tiling.operand_rows, graph.nodes)
        part = worker_state().buffer("operand", (end - begin, task.operand_width(columns)))
        for low in range(begin, end, graph.block_rows):
            high = min(low + graph.block_rows, end)
            nodes = read_nodes(graph, low, high, task.spec.regularization)
            task.fill_operand(nodes, low, first, part[low - begin : high - begin])
        for rows, neighbours, weights in graph.row_groups(block):
            add(rows, neighbours, weights, part, out, first_row=start, first_column=begin)
    own = None
    if task.walk == "lazy" and task.operand is not None:
        own = worker_state().buffer("operand", (stop - start, last - first))
        open_matrix(task.operand).read((start, first), own)
    task.finish_rows(task.block_nodes(block), slice(None), out, own)
    open_matrix(task.out).write((start, first), out)


def product_stage(
    task: ProductTask,
    name: str,
    step: int | None,
    writes: tuple[ArraySpec, ...],
    *,
    times: int = 1,
    frees: tuple[Path, ...] = (),
    needed: bool = True,
) -> Stage:
    """A product with the graph, or `times` of them in a row where one worker holds them.

    Where it is not `needed`, the stage has no blocks.
    """
    graph, chained = task.graph, task.tiling.chain > 1
    tiles = Blocks(task.slices * graph.blocks, lambda i: _tile(task, *divmod(i, graph.blocks)))
    chain = (Block("all", (task, times, task.setup.threads)),)
    memory, cost = _in_memory(task, times) if chained else _by_tiles(task)
    return Stage(
        name,
        run_chain if chained else product_tile,
        (chain if chained else tiles) if needed else (),
        memory,
        reads=(graph.path,) if task.operand is None else (graph.path, task.operand),
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
    row = task.operand_width((0, width))
    operand_bytes = 4 * task.tiling.operand_rows * row
    # Parts of an operand are filled again for every row block.
    passes = 1 if parts == 1 else graph.blocks
    filled = graph.nodes * row * task.slices * passes
    stored = 0 if task.operand is None else 4 * filled
    fill = {"copy": stored} if stored else {"regenerate": filled}
    work = _operations(task, row, width)
    memory = Memory(
        operand_bytes if parts == 1 else 0,
        _tile_bytes(task.setup, width, parts) + (0 if parts == 1 else operand_bytes),
    )
    cost = Cost(
        read_bytes=_edges_bytes(graph) * task.slices * parts + stored,
        written_bytes=4 * graph.nodes * task.columns,
        flops=4 * graph.edges * row * task.slices,
        work=work if parts == 1 else Counter(work) + Counter(fill),
        worker_work=fill if parts == 1 else {},
    )
    return memory, cost


def _in_memory(task: ProductTask, times: int) -> tuple[Memory, Cost]:
    """Memory and cost of products in a row in one worker: two matrices, and the whole graph."""
    graph, columns = task.graph, task.columns
    entries, size = 2 * graph.edges, 4 * graph.nodes * columns
    entry_bytes = KEPT_ENTRY_BYTES + 4 * graph.weighted
    fill = {"regenerate": graph.nodes * columns} if task.operand is None else {"copy": size}
    work = _operations(task, columns, columns)
    memory = Memory(
        2 * size + entry_bytes * entries + _NODE_BYTES * graph.nodes,
        _tile_bytes(task.setup, columns, 1),
    )
    cost = Cost(
        read_bytes=_edges_bytes(graph) + (0 if task.operand is None else size),
        written_bytes=size,
        flops=times * 2 * entries * columns,
        work=Counter({key: times * count for key, count in work.items()}) + Counter(fill),
        whole_worker=True,
    )
    return memory, cost


def _operations(task: ProductTask, row: int, width: int) -> dict[str, int]:
    """Operations of one product, by the name of their rate."""
    graph, entries = task.graph, 2 * task.graph.edges
    return {
        "gather": 4 * entries * row * task.slices,
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
