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

from pipeline.blocks import Stats
from pipeline.graph import EdgeCursor, EdgeRun
from pipeline.learn.buffers import shared_pair
from pipeline.learn.kernels import accumulate
from pipeline.learn.sketch import (
    Nodes,
    SketchTask,
    block_edges,
    block_nodes,
    fill_operand,
    finish_rows,
)
from pipeline.tiles import Floats, open_tiles

_PIECES_PER_THREAD = 8
_LEAST_ROWS = 256


@dataclass(frozen=True)
class _Piece:
    """Some rows of the graph, for one thread: their entries, and their place among their block."""

    begin: int
    end: int
    nodes: Nodes
    place: slice
    runs: list[EdgeRun]


def run_chain(task: SketchTask, times: int, threads: int) -> Stats:
    """Compute `times` products one after the other, all of their columns, and write the last.

    Parameters
    ----------
    task : SketchTask
        The product; it has one slice, and its whole operand fits.
    times : int
    threads : int
        Of this worker: no other block is at work.
    """
    graph = task.graph
    shape = (graph.nodes, task.columns)
    with shared_pair.use(shape) as (source, target), ThreadPoolExecutor(threads) as pool:
        deque(pool.map(partial(_fill, task, source), range(graph.blocks)), maxlen=0)
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


def _pieces(task: SketchTask, count: int) -> Iterator[_Piece]:
    graph = task.graph
    height = max(math.ceil(graph.nodes / count), _LEAST_ROWS)
    for block in range(graph.blocks):
        start, stop = graph.block_range(block)
        nodes, edges = block_nodes(task, block), EdgeCursor(block_edges(task, block))
        for begin in range(start, stop, height):
            end = min(begin + height, stop)
            place = slice(begin - start, end - start)
            yield _Piece(begin, end, nodes, place, list(edges.rows_below(end)))


def _fill(task: SketchTask, operand: Floats, block: int) -> None:
    begin, end = task.graph.block_range(block)
    fill_operand(task, block_nodes(task, block), begin, 0, operand[begin:end])


def _step(task: SketchTask, source: Floats, target: Floats, goes_on: bool, piece: _Piece) -> None:
    """Compute some rows of a product; where it goes on, as the next one wants its operand."""
    rows = target[piece.begin : piece.end]
    rows[:] = 0
    for run in piece.runs:
        accumulate(*run, source, rows, first_row=piece.begin)
    own = source[piece.begin : piece.end] if task.walk == "lazy" else None
    finish_rows(task, piece.nodes, piece.place, rows, own)
    if goes_on and not task.walk:
        rows *= piece.nodes.scale[piece.place].astype(np.float32)[:, None]


def _write(task: SketchTask, matrix: Floats, block: int) -> None:
    begin, end = task.graph.block_range(block)
    open_tiles(task.out).write((begin, 0), matrix[begin:end])
