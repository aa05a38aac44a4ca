"""Memory, bytes and operations of a product, by the way it is spread over the workers."""

from __future__ import annotations

import math
from collections import Counter

from figrl.engine.stage import Cost, Memory
from figrl.learn.operand import ProductTask, kept_entry_bytes
from figrl.learn.setup import Setup
from figrl.store.graph import ROW_GROUP_EDGES, Graph

_CHUNK_COPIES = 12
"""Bytes for an entry of a chunk of the product: the sum, the one being written, a copy."""

_EDGE_BYTES = 36
"""Bytes for an entry of a row group while it is read: as it is stored, and decoded."""

_NODE_BYTES = 48
"""Bytes for a node of a row block while its part of the operand is filled."""

_CHAIN_MATRICES = 3
"""Matrices that a chain of products holds: an operand, and two results."""


def product_costs(task: ProductTask, times: int, written: int) -> tuple[Memory, Cost]:
    """Memory and cost of a product, or of `times` in a chain that writes `written` matrices."""
    if task.parts > 1:
        return _on_a_grid(task)
    return _in_chains(task, times, written) if task.tiling.chain else _by_tiles(task)


def _by_tiles(task: ProductTask) -> tuple[Memory, Cost]:
    """Row blocks are shared out: every worker that does some fills an operand of its own."""
    graph, width = task.graph, task.slice_range(0)[1]
    size = 4 * graph.nodes * task.columns
    memory = Memory(4 * graph.nodes * width, _tile_bytes(task.setup, width))
    cost = Cost(
        read_bytes=_edge_bytes(task, task.slices) + _before_bytes(task),
        worker_read_bytes=_operand_bytes(task),
        written_bytes=size,
        flops=4 * graph.edges * task.columns,
        work=_operations(task, width),
        worker_work=_fill(task),
    )
    return memory, cost


def _in_chains(task: ProductTask, times: int, written: int) -> tuple[Memory, Cost]:
    """Slices are shared out: a worker has all rows of a slice, for some products in a row."""
    graph, width, threads = task.graph, task.slice_range(0)[1], task.setup.threads
    size, entries = 4 * graph.nodes * task.columns, 2 * graph.edges
    # Entries are decoded once, or for every product.
    passes = 1 if task.tiling.holds_graph else times
    matrices = _CHAIN_MATRICES * 4 * graph.nodes * width
    if task.tiling.holds_graph:
        held = kept_entry_bytes(graph) * entries + _NODE_BYTES * graph.nodes
        memory = Memory(matrices + held, _tile_bytes(task.setup, width))
    else:
        memory = Memory(matrices + threads * _block_bytes(graph))
    work = Counter({key: times * count for key, count in _operations(task, width).items()})
    work["entries"] = passes * entries * task.slices
    cost = Cost(
        read_bytes=_edge_bytes(task, task.slices * passes)
        + _operand_bytes(task)
        + _before_bytes(task),
        written_bytes=written * size,
        flops=times * 2 * entries * task.columns,
        work=work + Counter(_fill(task)),
        whole_worker=True,
    )
    return memory, cost


def _on_a_grid(task: ProductTask) -> tuple[Memory, Cost]:
    """Row groups of slices are shared out, and the operand goes past each of them."""
    graph, width, groups = task.graph, task.slice_range(0)[1], task.tiling.groups
    most_blocks = max(len(task.group_blocks(group)) for group in range(groups))
    rows = min(most_blocks * graph.block_rows, graph.nodes) + task.tiling.operand_rows
    fill = {key: groups * count for key, count in _fill(task).items()}
    work = Counter(_operations(task, width))
    work["entries"] *= task.parts
    cost = Cost(
        read_bytes=_edge_bytes(task, task.slices * task.parts)
        + groups * _operand_bytes(task)
        + _before_bytes(task),
        written_bytes=4 * graph.nodes * task.columns,
        flops=4 * graph.edges * task.columns,
        work=work + Counter(fill),
        whole_worker=True,
    )
    return Memory(4 * rows * width + task.setup.threads * _block_bytes(graph)), cost


def _operand_bytes(task: ProductTask) -> int:
    """Bytes of the operand as it is stored; one that is regenerated has none."""
    return 0 if task.operand is None else 4 * task.graph.nodes * task.columns


def _before_bytes(task: ProductTask) -> int:
    return 0 if task.before is None else 4 * task.graph.nodes * task.columns


def _fill(task: ProductTask) -> dict[str, int]:
    """Operations that fill the operand once."""
    if task.operand is None:
        return {"regenerate": task.graph.nodes * task.columns}
    return {"copy": _operand_bytes(task)}


def _operations(task: ProductTask, width: int) -> dict[str, int]:
    """Operations of one product, by the name of their rate."""
    graph, entries = task.graph, 2 * task.graph.edges
    return {
        "gather": 4 * entries * task.columns,
        "rows": entries * task.slices,
        "entries": entries * task.slices,
        "copy": 3 * 4 * graph.nodes * task.columns,
        "chunks": task.slices * math.ceil(graph.nodes / task.setup.tall_rows(width)),
    }


def _edge_bytes(task: ProductTask, times: int) -> int:
    """Bytes of stored entries that are read `times`, but for those that workers keep."""
    graph, setup = task.graph, task.setup
    stored = setup.edge_bytes or 2 * graph.edges * (12 if graph.weighted else 4)
    kept = min(setup.kept_bytes / (kept_entry_bytes(graph) * 2 * max(graph.edges, 1)), 1.0)
    # The first product of the sketch, and that of smoothing, read what is kept from then on.
    begins = task.before is None and (task.operand is None or task.smooths)
    first = kept if begins else 0.0
    return round(stored * (times * (1 - kept) + first))


def _block_bytes(graph: Graph) -> int:
    """Memory that a thread needs for the nodes of a row block, and a row group of its edges."""
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    rows = min(graph.block_rows, graph.nodes)
    return _NODE_BYTES * rows + entries * (_EDGE_BYTES + 20 * graph.weighted)


def _tile_bytes(setup: Setup, columns: int) -> int:
    """The same, and the sums of a chunk."""
    rows = min(setup.tall_rows(columns), setup.graph.nodes)
    return _block_bytes(setup.graph) + _CHUNK_COPIES * rows * columns
