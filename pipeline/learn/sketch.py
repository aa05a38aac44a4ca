"""Products Z_t = L Z_(t-1), a tile at a time; Z_0 = R / sqrt(d), and the sketch is the last.

    Z_t[i, s] = sum over j of L[i, j] Z_(t-1)[j, s]      i, j: blocks of rows    s: slice of columns

``L = (D + tau)^-1/2 W (D + tau)^-1/2``: the right factor is put into the operand when it is made,
the left one into the result, so the product itself only adds rows up. A slice needs nothing from
the others. Smoothing is such a product too, with neither factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.arrays import read_stretch
from pipeline.blocks import Stats
from pipeline.graph import EdgeCursor, EdgeRun, Graph
from pipeline.learn.buffers import kept, shared_operand, thread_buffer, thread_pair
from pipeline.learn.kernels import accumulate, scale_to_unit
from pipeline.learn.projection import fill_projection
from pipeline.learn.signs import accumulate_packed, fill_packed, packed_width
from pipeline.overlap import WriteBehind
from pipeline.tiles import Floats, open_tiles


@dataclass(frozen=True)
class SketchTask:
    """What every tile has to know.

    Attributes
    ----------
    graph : Graph
    operand : Path or None
        Zarr array of ``Z_(t-1)``; None for ``Z_0``, which is made from seeds.
    out : Path
        Zarr array of ``Z_t``.
    columns : int
        Columns of both.
    slice_columns : int
        Columns of a slice, a multiple of 4.
    operand_rows : int
        Rows of the operand held at a time, in whole chunks. Where it is all of them, the threads
        of a worker share one operand; where not, each goes through it in parts.
    seed : int
    kept_bytes : int
        Memory of a worker in which blocks of the graph may be kept from slice to slice.
    regularization : float
        tau: what is added to every degree.
    projection : str
        What ``Z_0`` is made of.
    probes : int
        Last columns of ``Z_0`` that are normal, whatever the projection.
    walk : "", "plain" or "lazy"
        A step of smoothing: rows become the mean of their neighbours', or lazily that and what
        they were, and are brought to length 1 where a slice has all columns.
    """

    graph: Graph
    operand: Path | None
    out: Path
    columns: int
    slice_columns: int
    operand_rows: int
    seed: int
    kept_bytes: int = 0
    regularization: float = 0.0
    projection: Literal["gaussian", "sparse-sign"] = "gaussian"
    probes: int = 0
    walk: Literal["", "plain", "lazy"] = ""

    @property
    def packed(self) -> bool:
        """Whether rows of the operand are codes of a sparse matrix; all columns then go at once."""
        return self.operand is None and self.projection == "sparse-sign"

    @property
    def slices(self) -> int:
        """Slices that make up the product."""
        return 1 if self.packed else math.ceil(self.columns / self.slice_columns)

    def slice_range(self, slice_number: int) -> tuple[int, int]:
        """First column of a slice, and the column after its last."""
        if self.packed:
            return 0, self.columns
        start = slice_number * self.slice_columns
        return start, min(start + self.slice_columns, self.columns)

    def operand_width(self, columns: tuple[int, int]) -> int:
        """Floats in a row of the operand of a slice."""
        if self.packed:
            return packed_width(self.columns - self.probes, self.probes)
        return columns[1] - columns[0]

    @property
    def add(self) -> Callable[..., None]:
        """What adds rows of the operand up along edges."""
        if self.packed:
            return partial(accumulate_packed, size=self.columns - self.probes)
        return accumulate


def inverse_root(degrees: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``D^-1/2``, and 0 for a node without edges."""
    return np.divide(
        1.0, np.sqrt(degrees), out=np.zeros_like(degrees, dtype=np.float64), where=degrees > 0
    )


def sketch_tile(task: SketchTask, block: int, slice_number: int) -> Stats:
    """Compute one tile of the product and write it, chunk by chunk."""
    graph = task.graph
    columns = task.slice_range(slice_number)
    if task.operand_rows < graph.nodes:
        return _tile_by_parts(task, block, columns)
    key = (graph.path, task.operand, task.columns, task.seed, task.regularization, columns)
    shape = (graph.nodes, task.operand_width(columns))

    def fill(part: int, operand: Floats) -> None:
        begin, end = graph.block_range(part)
        fill_operand(task, block_nodes(task, part), begin, columns[0], operand[begin:end])

    with shared_operand.use((*key, task.projection), shape, graph.blocks, fill) as operand:
        return _tile_by_chunks(task, block, columns, operand)


def _tile_by_chunks(
    task: SketchTask,
    block: int,
    columns: tuple[int, int],
    operand: Floats,
) -> Stats:
    """Add up the rows of a chunk, and write them while the next chunk is added up."""
    out = open_tiles(task.out)
    start, stop = task.graph.block_range(block)
    nodes = block_nodes(task, block)
    height, width = out.chunks[0], columns[1] - columns[0]
    buffers = thread_pair("out", (min(height, stop - start), width))
    edges, add = EdgeCursor(block_edges(task, block)), task.add
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, height)):
            end = min(begin + height, stop)
            chunk = buffers[number % 2][: end - begin]
            chunk[:] = 0
            for rows, neighbours, weights in edges.rows_below(end):
                add(rows, neighbours, weights, operand, chunk, first_row=begin)
            own = operand[begin:end] if task.walk == "lazy" else None
            finish_rows(task, nodes, slice(begin - start, end - start), chunk, own)
            write(out.write, (begin, columns[0]), chunk)
    return _tile_stats(task, block, (stop - start) * width * 4)


def _tile_by_parts(task: SketchTask, block: int, columns: tuple[int, int]) -> Stats:
    """Go through the operand in parts, and over the edges once for each."""
    graph, (first, last), add = task.graph, columns, task.add
    start, stop = graph.block_range(block)
    out = thread_buffer("tile", (stop - start, last - first))
    out[:] = 0
    for begin in range(0, graph.nodes, task.operand_rows):
        end = min(begin + task.operand_rows, graph.nodes)
        part = thread_buffer("operand", (end - begin, task.operand_width(columns)))
        for low in range(begin, end, graph.block_rows):
            high = min(low + graph.block_rows, end)
            nodes = read_nodes(graph, low, high, task.regularization)
            fill_operand(task, nodes, low, first, part[low - begin : high - begin])
        for rows, neighbours, weights in graph.edge_runs(block):
            add(rows, neighbours, weights, part, out, first_row=start, first_column=begin)
    own = None
    if task.walk == "lazy" and task.operand is not None:
        own = thread_buffer("operand", (stop - start, last - first))
        open_tiles(task.operand).read((start, first), own)
    finish_rows(task, block_nodes(task, block), slice(None), out, own)
    open_tiles(task.out).write((start, first), out)
    return _tile_stats(task, block, out.nbytes)


def finish_rows(
    task: SketchTask, nodes: Nodes, which: slice, rows: Floats, own: Floats | None
) -> None:
    """Make of sums over neighbours what the product asks for; `own` is what rows were before."""
    if not task.walk:
        rows *= nodes.scale[which].astype(np.float32)[:, None]
        return
    rows *= (inverse_root(nodes.degrees[which]) ** 2).astype(np.float32)[:, None]
    if own is not None:
        rows += own
    if task.slices == 1:
        scale_to_unit(rows)


def _tile_stats(task: SketchTask, block: int, written_bytes: int) -> Stats:
    parts = math.ceil(task.graph.nodes / task.operand_rows)
    return {
        "read_bytes": parts * task.graph.edge_bytes(block),
        "written_bytes": written_bytes,
    }


@dataclass(frozen=True)
class Nodes:
    """Keys of some nodes, their degrees, and ``(D + tau)^-1/2``."""

    keys: npt.NDArray[np.uint64]
    degrees: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]


def read_nodes(graph: Graph, start: int, stop: int, regularization: float = 0.0) -> Nodes:
    """Keys, degrees and scales of the rows from `start` up to `stop`."""
    rows = graph.block_rows
    degrees = read_stretch(graph.degrees_path, start, stop, chunk=rows, dtype=np.float64)
    keys = read_stretch(graph.keys_path, start, stop, chunk=rows, dtype=np.uint64)
    return Nodes(keys, degrees, inverse_root(degrees + regularization))


def block_nodes(task: SketchTask, block: int) -> Nodes:
    """Nodes of a block, kept if there is room."""
    key = ("nodes", task.graph.path, task.regularization, block)
    nodes: Nodes | None = kept.get(key)
    if nodes is None:
        nodes = read_nodes(task.graph, *task.graph.block_range(block), task.regularization)
        size = nodes.keys.nbytes + nodes.degrees.nbytes + nodes.scale.nbytes
        if kept.reserve(size, task.kept_bytes):
            kept.keep(key, nodes, size)
    return nodes


def block_edges(task: SketchTask, block: int) -> Iterator[EdgeRun]:
    """Entries of a block, kept if there is room, and else read a row group at a time."""
    key = ("edges", task.graph.path, block)
    runs: list[EdgeRun] | None = kept.get(key)
    if runs is not None:
        yield from runs
        return
    collected: list[EdgeRun] = []
    keeping, reserved = True, 0
    try:
        for run in task.graph.edge_runs(block):
            size = sum(part.nbytes for part in run if part is not None)
            # Once a run found no room, the block is not kept, whatever becomes free meanwhile.
            keeping = keeping and kept.reserve(size, task.kept_bytes)
            if keeping:
                collected.append(run)
                reserved += size
            else:
                collected.clear()
            yield run
        if keeping:
            kept.keep(key, collected, reserved)
            reserved = 0
    finally:
        kept.give_back(reserved)


def fill_operand(
    task: SketchTask, nodes: Nodes, start: int, first_column: int, out: Floats
) -> None:
    """Write rows of ``(D + tau)^-1/2 Z_(t-1)`` from `start` on."""
    if task.operand is not None:
        open_tiles(task.operand).read((start, first_column), out)
        if not task.walk:
            out *= nodes.scale.astype(np.float32)[:, None]
        return
    scale = (nodes.scale / math.sqrt(task.columns)).astype(np.float32)
    if task.packed:
        size = task.columns - task.probes
        fill_packed(nodes.keys, seed=task.seed, size=size, scale=scale, out=out)
    else:
        fill_projection(nodes.keys, seed=task.seed, first_column=first_column, scale=scale, out=out)
