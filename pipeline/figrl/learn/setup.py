"""How the work on one graph is cut: the blocks that fix the bits, and the tiles that fit memory.

Everything that the stages of an embedding have in common is in `Setup`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from figrl.learn.spec import EmbedSpec
from figrl.store.arrays import ArraySpec
from figrl.store.graph import Graph

_CHUNK_BYTES, _GROUP_BYTES = 16 << 20, 128 << 20
_TALL_BYTES = 1 << 20
_MIN_GROUPS, _MAX_GROUPS = 32, 1024
WIDE_COLUMNS = 512
"""Columns of a chunk of a sketch that has more columns than rows: it is factored by columns."""

_FEW_BLOCKS, _SMALL_SKETCH_BYTES = 2, 64 << 20


@dataclass(frozen=True)
class Geometry:
    """Blocks on which the bits of the result depend: from the shape of the sketch alone."""

    chunk_rows: int
    group_rows: int

    @classmethod
    def of(cls, graph: Graph, columns: int) -> Geometry:
        """Choose chunks of about 16 MB, and groups worth a task and a d x d matrix each."""
        fitting = max(_CHUNK_BYTES // (4 * columns), 1)
        chunk = min(graph.block_rows, max(1 << (fitting.bit_length() - 1), 256))
        worth_a_task = min(_GROUP_BYTES // (4 * columns), graph.nodes // _MIN_GROUPS)
        wanted = max(32 * columns, worth_a_task, math.ceil(graph.nodes / _MAX_GROUPS))
        return cls(chunk_rows=chunk, group_rows=chunk * math.ceil(wanted / chunk))


@dataclass(frozen=True)
class Tiling:
    """How a product is cut to fit the memory; the result does not depend on it.

    Columns and rows of an operand that are held at a time. Where all rows are, the row blocks of a
    product are shared among the workers, each of which holds the operand; with a `chain`, one
    worker computes a slice of so many products in a row, in its memory, and may hold the graph as
    well. Where the operand is held in parts, they go past row `groups`, one a worker.
    """

    slice_columns: int
    operand_rows: int
    chain: int = 0
    holds_graph: bool = False
    groups: int = 1


Which = Literal["wide", "narrow"]
"""Products that make the sketch, or those of smoothing."""


@dataclass(frozen=True)
class Setup:
    """Parameters shared by all stages of an embedding.

    `wide` and `narrow` are the tilings of products that make the sketch, and of those of smoothing;
    `threads` those of a worker. Unfinished work lies in the sub-folder ``work`` of `folder`. Blocks
    of the graph may be kept from slice to slice in `kept_bytes` of a worker. The sketch is deleted
    when nothing needs it any more, but for `keep_sketch`. `edge_bytes` are those of the stored
    graph, or 0 where there is none yet.
    """

    graph: Graph
    spec: EmbedSpec
    geometry: Geometry
    wide: Tiling
    narrow: Tiling
    threads: int
    folder: Path
    kept_bytes: int = 0
    keep_sketch: bool = False
    edge_bytes: int = 0

    def with_tiling(self, which: Which, tiling: Tiling) -> Setup:
        """The same with one of its tilings replaced."""
        return replace(self, wide=tiling) if which == "wide" else replace(self, narrow=tiling)

    @property
    def work(self) -> Path:
        """Folder of unfinished work."""
        return self.folder / "work"

    @property
    def sketch(self) -> Path:
        """Matrix of all products, side by side."""
        return self.folder / "sketch"

    @property
    def columns(self) -> int:
        """Columns of all products: the sketch, and a last one from which eigenvalues follow."""
        return stored_columns(self.spec)

    @property
    def is_wide(self) -> bool:
        """Whether the paper's sketch has more columns than rows."""
        return self.spec.is_paper and self.columns > self.graph.nodes

    @property
    def groups(self) -> int:
        """Groups of rows whose partial sums are reduced."""
        return math.ceil(self.graph.nodes / self.geometry.group_rows)

    @property
    def chunk_rows(self) -> int:
        """Rows that are multiplied at a time."""
        return min(self.geometry.chunk_rows, self.graph.nodes)

    @property
    def is_small(self) -> bool:
        """Whether one worker does it all sooner than a scheduler could share it out."""
        sketch_bytes = 4 * self.graph.nodes * self.columns
        return self.graph.blocks <= _FEW_BLOCKS and sketch_bytes <= _SMALL_SKETCH_BYTES

    def tall_rows(self, columns: int) -> int:
        """Rows of a stored chunk: as many of the plan's chunks as make a megabyte."""
        rows = self.geometry.chunk_rows
        while rows < self.graph.block_rows and 2 * rows * columns * 4 <= _TALL_BYTES:
            rows *= 2
        return rows

    def slices_array(
        self, path: Path, columns: int, tiling: Tiling, product: int | None = None
    ) -> ArraySpec:
        """A matrix of one or more products, of `product` columns each; its chunks are slices."""
        width = min(tiling.slice_columns, product or columns)
        # Narrow slices get taller chunks, or there would be a great many small files.
        chunks = (self.tall_rows(width), width)
        return ArraySpec(path, (self.graph.nodes, columns), chunks)

    def rows_array(self, path: Path) -> ArraySpec:
        """A matrix with whole rows in a chunk: the embedding or the basis."""
        dim = self.spec.dim
        return ArraySpec(path, (self.graph.nodes, dim), (self.geometry.chunk_rows, dim))

    def copied_bytes(self, columns: int, tiling: Tiling) -> int:
        """Bytes that cores move to read a matrix: slices are put side by side in memory."""
        times = 1 if tiling.slice_columns >= columns else 3
        return times * 4 * self.graph.nodes * columns

    def chunk_count(self, columns: int, tiling: Tiling) -> int:
        """Chunks of a matrix of slices, as they are read."""
        slices = math.ceil(columns / tiling.slice_columns)
        return slices * math.ceil(self.graph.nodes / self.geometry.chunk_rows)

    def again_bytes(self, columns: int, tiling: Tiling) -> int:
        """Bytes that are read again: a chunk of a narrow slice is taller than rows that are used.

        A thread keeps one chunk, and of several slices it needs the next one first.
        """
        width = min(tiling.slice_columns, columns)
        if width >= columns:
            return 0
        times = min(self.tall_rows(width), self.graph.nodes) // self.chunk_rows - 1
        return max(times, 0) * 4 * self.graph.nodes * columns


def stored_columns(spec: EmbedSpec) -> int:
    """Columns of all products together."""
    return spec.width * spec.products
