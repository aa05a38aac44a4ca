"""Products in a row in the memory of one worker, where the graph and two matrices fit.

One product by itself takes a fraction of a second there, most of it spent on reading its operand
and writing its result. In a row they do the same sums with the same rounding, so the bits are those
of one after the other; a kill costs the whole row, which the plan keeps to a second or two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from figrl.engine.stage import Stats
from figrl.engine.worker import worker_state
from figrl.learn.kernels import accumulate
from figrl.learn.operand import Nodes, ProductTask
from figrl.store.graph import RowGroup, RowGroupReader
from figrl.store.matrix import Floats, open_matrix

_PIECES_PER_THREAD = 8
_LEAST_ROWS = 256


@dataclass(frozen=True)
class _Piece:
    """Some rows of the graph, for one thread: their entries, and their place among their block."""

    begin: int
    end: int
    nodes: Nodes
    place: slice
    runs: list[RowGroup]


def run_chain(task: ProductTask, times: int, threads: int) -> Stats:
    """Compute `times` products one after the other, all of their columns, and write the last.

    The product has one slice and its whole operand fits; no other block is at work.
    """
    graph = task.graph
    shape = (graph.nodes, task.columns)
    with worker_state().pair.use(shape) as (source, target), ThreadPoolExecutor(threads) as pool:
        fill = partial(task.fill_block, 0, operand=source)
        deque(pool.map(fill, range(graph.blocks)), maxlen=0)
        pieces = list(_pieces(task, _PIECES_PER_THREAD * threads))
        for left in reversed(range(times)):
            step = partial(_step, task, source, target, left > 0)
            deque(pool.map(step, pieces), maxlen=0)
            source, target = target, source
        deque(pool.map(partial(_write, task, source), range(graph.blocks)), maxlen=0)
    return {
        "read_bytes": sum(graph.edge_bytes(block) for block in range(graph.blocks))
        + (0 if task.operand is None else 4 * math.prod(shape)),
        "written_bytes": 4 * math.prod(shape),
    }


def _pieces(task: ProductTask, count: int) -> Iterator[_Piece]:
    graph = task.graph
    height = max(math.ceil(graph.nodes / count), _LEAST_ROWS)
    for block in range(graph.blocks):
        start, stop = graph.block_range(block)
        nodes, edges = task.block_nodes(block), RowGroupReader(task.block_edges(block))
        for begin in range(start, stop, height):
            end = min(begin + height, stop)
            place = slice(begin - start, end - start)
            yield _Piece(begin, end, nodes, place, list(edges.rows_before(end)))


def _step(task: ProductTask, source: Floats, target: Floats, goes_on: bool, piece: _Piece) -> None:
    """Compute some rows of a product; where it goes on, as the next one wants its operand."""
    rows = target[piece.begin : piece.end]
    rows[:] = 0
    for run in piece.runs:
        accumulate(*run, source, rows, first_row=piece.begin)
    own = source[piece.begin : piece.end] if task.walk == "lazy" else None
    task.finish_rows(piece.nodes, piece.place, rows, own)
    if goes_on and not task.walk:
        rows *= piece.nodes.scale[piece.place].astype(np.float32)[:, None]


def _write(task: ProductTask, matrix: Floats, block: int) -> None:
    begin, end = task.graph.block_range(block)
    open_matrix(task.out).write((begin, 0), matrix[begin:end])
