"""What a product needs of the graph: nodes with their scales, edges, and rows of the operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from figrl.engine.worker import worker_state
from figrl.learn.kernels import accumulate, scale_to_unit
from figrl.learn.projection import fill_projection
from figrl.learn.setup import Setup, Tiling
from figrl.learn.sparse_sign import accumulate_packed, fill_packed, packed_width
from figrl.learn.spec import EmbedSpec
from figrl.store.arrays import read_range
from figrl.store.graph import Graph, RowGroup
from figrl.store.matrix import Floats, open_matrix


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
class ProductTask:
    """Parameters shared by all tiles of a product ``Z_t = L Z_(t-1)``.

    `operand` is the array of ``Z_(t-1)``, None for ``Z_0``, which is regenerated from seeds. Where
    it is held whole, the threads of a worker share it; where not, each goes through it in parts. A
    `walk` is a step of smoothing: rows become the mean of their neighbours', or lazily of that and
    themselves, and are normalised where a slice has all columns.
    """

    setup: Setup
    tiling: Tiling
    operand: Path | None
    out: Path
    columns: int
    walk: Literal["", "plain", "lazy"] = ""

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
    def packed(self) -> bool:
        """Whether rows of the operand are packed sparse rows; all columns are then one slice."""
        return self.operand is None and self.spec.projection == "sparse-sign"

    @property
    def slices(self) -> int:
        """Slices that make up the product."""
        return 1 if self.packed else math.ceil(self.columns / self.tiling.slice_columns)

    def slice_range(self, slice_number: int) -> tuple[int, int]:
        """First column of a slice, and the column after its last."""
        if self.packed:
            return 0, self.columns
        start = slice_number * self.tiling.slice_columns
        return start, min(start + self.tiling.slice_columns, self.columns)

    def operand_width(self, columns: tuple[int, int]) -> int:
        """Floats in a row of the operand of a slice."""
        if self.packed:
            return packed_width(self.columns - self.setup.probes, self.setup.probes)
        return columns[1] - columns[0]

    @property
    def add(self) -> Callable[..., None]:
        """The kernel that adds up rows of the operand along edges."""
        if self.packed:
            return partial(accumulate_packed, size=self.columns - self.setup.probes)
        return accumulate

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
                size = sum(part.nbytes for part in run if part is not None)
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

    def fill_block(self, first_column: int, block: int, operand: Floats) -> None:
        """Write the rows of a row block into an operand that is held whole."""
        begin, end = self.graph.block_range(block)
        self.fill_operand(self.block_nodes(block), begin, first_column, operand[begin:end])

    def fill_operand(self, nodes: Nodes, start: int, first_column: int, out: Floats) -> None:
        """Write rows of ``(D + tau)^-1/2 Z_(t-1)`` from `start` on."""
        if self.operand is not None:
            open_matrix(self.operand).read((start, first_column), out)
            if not self.walk:
                out *= nodes.scale.astype(np.float32)[:, None]
            return
        scale = (nodes.scale / math.sqrt(self.columns)).astype(np.float32)
        if self.packed:
            size = self.columns - self.setup.probes
            fill_packed(nodes.keys, seed=self.spec.seed, size=size, scale=scale, out=out)
        else:
            fill_projection(
                nodes.keys, seed=self.spec.seed, first_column=first_column, scale=scale, out=out
            )

    def finish_rows(self, nodes: Nodes, which: slice, rows: Floats, own: Floats | None) -> None:
        """Scale sums over neighbours as the product needs; `own` are the rows before the step."""
        if not self.walk:
            rows *= nodes.scale[which].astype(np.float32)[:, None]
            return
        rows *= (inverse_root(nodes.degrees[which]) ** 2).astype(np.float32)[:, None]
        if own is not None:
            rows += own
        if self.slices == 1:
            scale_to_unit(rows)
