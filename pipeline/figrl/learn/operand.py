"""What a product needs of the graph: nodes with their scales, edges, and rows of the operand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from figrl.engine.worker import worker_state
from figrl.learn.projection import fill_projection
from figrl.learn.setup import Setup, Tiling
from figrl.learn.spec import EmbedSpec
from figrl.store.arrays import read_range
from figrl.store.graph import Graph, RowGroup
from figrl.store.matrix import Floats, StoredMatrix, open_matrix


def kept_entry_bytes(graph: Graph) -> int:
    """Bytes for an entry of a graph that is kept in memory: row, column, weight, rounding up.

    Memory comes in larger pieces than are asked for: 3 % more at 100 million edges.
    """
    return 17 + 4 * graph.weighted


def inverse_root(degrees: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``D^-1/2``, and 0 for a node without edges."""
    return np.divide(
        1.0, np.sqrt(degrees), out=np.zeros_like(degrees, dtype=np.float64), where=degrees > 0
    )


@dataclass(frozen=True)
class Nodes:
    """Keys of some nodes, their degrees, and ``(D + tau)^-1/2``."""

    keys: npt.NDArray[np.uint64]
    degrees: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]


def read_nodes(graph: Graph, start: int, stop: int, regularization: float = 0.0) -> Nodes:
    """Keys, degrees and scales of the rows from `start` up to `stop`."""
    rows = graph.block_rows
    degrees = read_range(graph.degrees_path, start, stop, chunk=rows, dtype=np.float64)
    keys = read_range(graph.keys_path, start, stop, chunk=rows, dtype=np.uint64)
    return Nodes(keys, degrees, inverse_root(degrees + regularization))


@dataclass(frozen=True)
class Columns:
    """Columns of a stored matrix, from `first` on."""

    path: Path
    first: int = 0

    def reader(self) -> ColumnsReader:
        """What reads them, for one call."""
        return ColumnsReader(self)


class ColumnsReader:
    """Reads columns of a stored matrix, which is opened once, when something is read.

    Threads may read at the same time. It is not kept: the next call may find other numbers there.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._matrix: StoredMatrix | None = None

    def read(self, start: int, column: int, out: Floats) -> None:
        """Fill `out` with rows from `start` on, and columns from `column` on."""
        if self._matrix is None:
            self._matrix = open_matrix(self._columns.path)
        self._matrix.read((start, self._columns.first + column), out)


@dataclass(frozen=True)
class ProductTask:
    """Parameters shared by all tiles of a product ``f L Z - g before``, `factors` being f and g.

    `operand` is where Z lies; None for ``R / sqrt(columns)``, which is regenerated from seeds. A
    product that `smooths` has ``P`` in place of ``L``, the mean over the neighbours.
    """

    setup: Setup
    tiling: Tiling
    operand: Columns | None
    out: Columns
    columns: int
    before: Columns | None = None
    factors: tuple[float, float] = (1.0, 0.0)
    smooths: bool = False

    @property
    def graph(self) -> Graph:
        """The graph that is multiplied."""
        return self.setup.graph

    @property
    def spec(self) -> EmbedSpec:
        """What is learnt."""
        return self.setup.spec

    @property
    def parts(self) -> int:
        """Parts in which the operand is held."""
        return math.ceil(self.graph.nodes / self.tiling.operand_rows)

    @property
    def slices(self) -> int:
        """Slices that make up the product."""
        return math.ceil(self.columns / self.tiling.slice_columns)

    def group_blocks(self, group: int) -> range:
        """Row blocks of a row group."""
        blocks, groups = self.graph.blocks, self.tiling.groups
        return range(group * blocks // groups, (group + 1) * blocks // groups)

    def slice_range(self, slice_number: int) -> tuple[int, int]:
        """First column of a slice, and the column after its last."""
        start = slice_number * self.tiling.slice_columns
        return start, min(start + self.tiling.slice_columns, self.columns)

    def block_nodes(self, block: int) -> Nodes:
        """Nodes of a block, kept in memory if there is room."""
        key = ("nodes", self.graph.path, self.spec.regularization, block)
        nodes: Nodes | None = worker_state().kept.get(key)
        if nodes is None:
            nodes = read_nodes(self.graph, *self.graph.block_range(block), self.spec.regularization)
            size = nodes.keys.nbytes + nodes.degrees.nbytes + nodes.scale.nbytes
            if worker_state().kept.reserve(size, self.setup.kept_bytes):
                worker_state().kept.keep(key, nodes, size)
        return nodes

    def keeps_edges(self, block: int) -> bool:
        """Whether the entries of a block are in memory."""
        return worker_state().kept.get(("edges", self.graph.path, block)) is not None

    def block_edges(self, block: int) -> Iterator[RowGroup]:
        """Entries of a block: kept in memory if there is room, else read a row group at a time."""
        key = ("edges", self.graph.path, block)
        runs: list[RowGroup] | None = worker_state().kept.get(key)
        if runs is not None:
            yield from runs
            return
        collected: list[RowGroup] = []
        keeping, reserved = True, 0
        try:
            for run in self.graph.row_groups(block):
                size = kept_entry_bytes(self.graph) * len(run[0])
                # Once a run found no room, the block is not kept, whatever becomes free meanwhile.
                keeping = keeping and worker_state().kept.reserve(size, self.setup.kept_bytes)
                if keeping:
                    collected.append(run)
                    reserved += size
                else:
                    collected.clear()
                yield run
            if keeping:
                worker_state().kept.keep(key, collected, reserved)
                reserved = 0
        finally:
            worker_state().kept.give_back(reserved)

    def operand_reader(self) -> ColumnsReader | None:
        """What reads the operand, for one call; None for one that is regenerated."""
        return None if self.operand is None else self.operand.reader()

    def fill_block(
        self, source: ColumnsReader | None, first_column: int, block: int, operand: Floats
    ) -> None:
        """Write the rows of a row block into an operand that is held whole."""
        begin, end = self.graph.block_range(block)
        rows = operand[begin:end]
        self.fill_operand(source, self.block_nodes(block), begin, first_column, rows)

    def fill_operand(
        self,
        source: ColumnsReader | None,
        nodes: Nodes,
        start: int,
        first_column: int,
        out: Floats,
    ) -> None:
        """Write rows of ``(D + tau)^-1/2 Z`` from `start` on; `source` is `operand_reader`."""
        if source is None:
            scale = (nodes.scale / math.sqrt(self.columns)).astype(np.float32)
            fill_projection(
                nodes.keys, seed=self.spec.seed, first_column=first_column, scale=scale, out=out
            )
            return
        source.read(start, first_column, out)
        if not self.smooths:
            out *= nodes.scale.astype(np.float32)[:, None]

    def begin_rows(self, nodes: Nodes, which: slice, rows: Floats) -> None:
        """Prepare rows for the sums over neighbours; those that hold `before` are subtracted.

        They become ``-g before / f`` over the scale that `finish_rows` applies, so that no second
        buffer is needed.
        """
        if self.before is None:
            rows[:] = 0
            return
        scale, (times, share) = self._row_scale(nodes, which), self.factors
        inverse = np.divide(-share / times, scale, out=np.zeros_like(scale), where=scale > 0)
        rows *= inverse.astype(np.float32)[:, None]

    def finish_rows(self, nodes: Nodes, which: slice, rows: Floats) -> None:
        """Scale the sums over neighbours as the product needs."""
        scale = self._row_scale(nodes, which) * self.factors[0]
        rows *= scale.astype(np.float32)[:, None]

    def _row_scale(self, nodes: Nodes, which: slice) -> npt.NDArray[np.float64]:
        """What rows of ``W Z`` are multiplied with: ``(D + tau)^-1/2``, or ``D^-1``."""
        if self.smooths:
            return inverse_root(nodes.degrees[which]) ** 2
        return nodes.scale[which]
