"""Products one after the other in the memory of one worker, where the graph and matrices fit.

One product by itself takes a fraction of a second there, most of it spent on reading its operand
and writing its result. In a chain they do the same sums with the same rounding, so the bits are
those of one after the other; a kill costs the whole chain, which the plan keeps to a second or two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from figrl.learn.kernels import accumulate
from figrl.learn.operand import Columns, Nodes, ProductTask
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


class GraphInMemory:
    """The graph of a product, cut into pieces for the threads of a worker.

    The product has one slice and its whole operand fits; no other block is at work.
    """

    def __init__(self, task: ProductTask) -> None:
        self.graph = task.graph
        self._threads = task.setup.threads
        self._pieces = list(_pieces(task, _PIECES_PER_THREAD * self._threads))

    def each_block(self, function: Callable[[int], None]) -> None:
        """Call a function for every row block."""
        with ThreadPoolExecutor(self._threads) as pool:
            deque(pool.map(function, range(self.graph.blocks)), maxlen=0)

    def multiply(self, task: ProductTask, operand: Floats, out: Floats) -> None:
        """Compute all rows of a product; `out` holds ``task.before``, if there is one."""
        with ThreadPoolExecutor(self._threads) as pool:
            deque(pool.map(partial(_multiply, task, operand, out), self._pieces), maxlen=0)

    def read(self, source: Columns, out: Floats) -> None:
        """Fill `out` with columns of a stored matrix."""

        def read_block(block: int) -> None:
            begin, end = self.graph.block_range(block)
            source.read(begin, 0, out[begin:end])

        self.each_block(read_block)

    def write(self, target: Columns, matrix: Floats) -> None:
        """Store a matrix."""

        def write_block(block: int) -> None:
            begin, end = self.graph.block_range(block)
            open_matrix(target.path).write((begin, target.first), matrix[begin:end])

        self.each_block(write_block)

    @property
    def edge_bytes(self) -> int:
        """Bytes of all stored entries."""
        return sum(self.graph.edge_bytes(block) for block in range(self.graph.blocks))


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


def _multiply(task: ProductTask, operand: Floats, out: Floats, piece: _Piece) -> None:
    rows = out[piece.begin : piece.end]
    task.begin_rows(piece.nodes, piece.place, rows)
    for run in piece.runs:
        accumulate(*run, operand, rows, first_row=piece.begin)
    task.finish_rows(piece.nodes, piece.place, rows)
