"""The graph in the hands of one worker, which computes slices of products by itself.

Where a slice of the operand and of the result fits, a worker computes several products in a row in
its memory, and needs nothing from the others. In a chain they do the same sums with the same
rounding, so the bits are those of one after the other; a kill costs the whole chain, which the plan
keeps to a second or two where it can.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from figrl.learn.kernels import accumulate
from figrl.learn.operand import Columns, Nodes, ProductTask
from figrl.store.graph import RowGroup, RowGroupReader
from figrl.store.matrix import Floats, open_matrix

_PIECES_PER_THREAD = 8
_LEAST_ROWS = 256


class GraphByBlocks:
    """Row blocks of a graph, read by the threads of a worker; what there is room for is kept.

    Matrices of results have the rows of these blocks. `edge_bytes` counts what was read.
    """

    def __init__(self, task: ProductTask, blocks: range | None = None) -> None:
        self.graph, self.edge_bytes = task.graph, 0
        self.blocks = range(task.graph.blocks) if blocks is None else blocks
        self.first_row = task.graph.block_range(self.blocks[0])[0]
        self._threads = task.setup.threads

    @property
    def rows(self) -> int:
        """Number of rows of all blocks."""
        return self.graph.block_range(self.blocks[-1])[1] - self.first_row

    def in_threads(self, function: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Call a function for every item."""
        with ThreadPoolExecutor(self._threads) as pool:
            deque(pool.map(function, items), maxlen=0)

    def each_block(self, function: Callable[[int], object]) -> None:
        """Call a function for every row block."""
        self.in_threads(function, self.blocks)

    def place(self, block: int) -> slice:
        """Rows of a block in a matrix of results."""
        start, stop = self.graph.block_range(block)
        return slice(start - self.first_row, stop - self.first_row)

    def multiply(self, task: ProductTask, operand: Floats, out: Floats) -> None:
        """Compute all rows of a product; `out` holds ``task.before``, if there is one."""

        def multiply_block(block: int) -> None:
            nodes, rows = task.block_nodes(block), out[self.place(block)]
            task.begin_rows(nodes, slice(None), rows)
            self._add_block(task, operand, 0, block, rows)
            task.finish_rows(nodes, slice(None), rows)

        self._count_edges(task)
        self.each_block(multiply_block)

    def add(self, task: ProductTask, part: Floats, first_column: int, out: Floats) -> None:
        """Add up what a part of the operand gives, whose rows begin at `first_column`."""
        self._count_edges(task)
        self.each_block(
            lambda block: self._add_block(task, part, first_column, block, out[self.place(block)])
        )

    def _add_block(
        self, task: ProductTask, part: Floats, first_column: int, block: int, rows: Floats
    ) -> None:
        start, _ = self.graph.block_range(block)
        for run in task.block_edges(block):
            accumulate(*run, part, rows, first_row=start, first_column=first_column)

    def _count_edges(self, task: ProductTask) -> None:
        missing = (block for block in self.blocks if not task.keeps_edges(block))
        self.edge_bytes += sum(self.graph.edge_bytes(block) for block in missing)

    def read(self, source: Columns, column: int, out: Floats) -> None:
        """Fill `out` with columns of a stored matrix, from `column` on."""
        reader = source.reader()
        self.each_block(
            lambda block: reader.read(
                self.graph.block_range(block)[0], column, out[self.place(block)]
            )
        )

    def write(self, target: Columns, column: int, matrix: Floats) -> None:
        """Store a matrix, from `column` on."""
        stored = open_matrix(target.path)
        self.each_block(
            lambda block: stored.write(
                (self.graph.block_range(block)[0], target.first + column),
                matrix[self.place(block)],
            )
        )


@dataclass(frozen=True)
class _Piece:
    """Some rows of the graph, for one thread: their entries, and their place among their block."""

    begin: int
    end: int
    nodes: Nodes
    place: slice
    runs: list[RowGroup]


class GraphInMemory(GraphByBlocks):
    """The whole graph, read once and cut into pieces for the threads of a worker."""

    def __init__(self, task: ProductTask) -> None:
        super().__init__(task)
        self._count_edges(task)
        self._pieces = list(_pieces(task, _PIECES_PER_THREAD * self._threads))

    def multiply(self, task: ProductTask, operand: Floats, out: Floats) -> None:
        """Compute all rows of a product; `out` holds ``task.before``, if there is one."""
        self.in_threads(partial(_multiply, task, operand, out), self._pieces)


def graph_of(task: ProductTask) -> GraphByBlocks:
    """The graph as the plan wants it held."""
    return GraphInMemory(task) if task.tiling.holds_graph else GraphByBlocks(task)


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
