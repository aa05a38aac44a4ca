"""Products Z_t = L Z_(t-1), a tile at a time; Z_0 = R / sqrt(d), and the sketch is the last.

    Z_t[i, s] = sum over j of L[i, j] Z_(t-1)[j, s]      i, j: blocks of rows    s: slice of columns

``L = D^-1/2 W D^-1/2``: the right factor is put into the operand when it is made, the left one
into the result, so the product itself only adds rows up. A slice needs nothing from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.arrays import read_stretch
from pipeline.blocks import Stats
from pipeline.graph import EdgeCursor, EdgeRun, Graph
from pipeline.learn.buffers import kept, shared_operand, thread_buffer, thread_pair
from pipeline.learn.kernels import accumulate
from pipeline.learn.projection import fill_projection
from pipeline.overlap import WriteBehind
from pipeline.tiles import Floats, open_tiles


@dataclass(frozen=True)
class SketchTask:
    """What every tile has to know.

    Attributes
    ----------
    graph : Graph
    operand : Path or None
        Zarr array of ``Z_(t-1)``, n x d; None for ``Z_0``, which is made from seeds.
    out : Path
        Zarr array of ``Z_t``, n x d.
    sketch_size : int
        Columns d of the sketch.
    slice_columns : int
        Columns of a slice, a multiple of 4.
    operand_rows : int
        Rows of the operand held at a time, in whole chunks. Where it is all of them, the threads
        of a worker share one operand; where not, each goes through it in parts.
    seed : int
    kept_bytes : int
        Memory of a worker in which blocks of the graph may be kept from slice to slice.
    """

    graph: Graph
    operand: Path | None
    out: Path
    sketch_size: int
    slice_columns: int
    operand_rows: int
    seed: int
    kept_bytes: int = 0

    @property
    def slices(self) -> int:
        """Slices that make up the sketch."""
        return math.ceil(self.sketch_size / self.slice_columns)

    def columns(self, slice_number: int) -> tuple[int, int]:
        """First column of a slice, and the column after its last."""
        start = slice_number * self.slice_columns
        return start, min(start + self.slice_columns, self.sketch_size)


def inverse_root(degrees: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``D^-1/2``, and 0 for a node without edges."""
    return np.divide(
        1.0, np.sqrt(degrees), out=np.zeros_like(degrees, dtype=np.float64), where=degrees > 0
    )


def sketch_tile(task: SketchTask, block: int, slice_number: int) -> Stats:
    """Compute one tile of the sketch and write it, chunk by chunk."""
    graph = task.graph
    first, last = task.columns(slice_number)
    if task.operand_rows < graph.nodes:
        return _tile_by_parts(task, block, (first, last))
    key = (graph.path, task.operand, task.sketch_size, task.seed, first, last)
    shape = (graph.nodes, last - first)

    def fill(part: int, operand: Floats) -> None:
        begin, end = graph.block_range(part)
        _fill_operand(task, _block_nodes(task, part), begin, first, operand[begin:end])

    with shared_operand.use(key, shape, graph.blocks, fill) as operand:
        return _tile_by_chunks(task, block, (first, last), operand)


def _tile_by_chunks(
    task: SketchTask,
    block: int,
    columns: tuple[int, int],
    operand: Floats,
) -> Stats:
    """Add up the rows of a chunk, and write them while the next chunk is added up."""
    out = open_tiles(task.out)
    start, stop = task.graph.block_range(block)
    scale = _block_nodes(task, block).scale.astype(np.float32)
    height, width = out.chunks[0], columns[1] - columns[0]
    buffers = thread_pair("chunk", (min(height, stop - start), width))
    edges = EdgeCursor(_block_edges(task, block))
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, height)):
            end = min(begin + height, stop)
            chunk = buffers[number % 2][: end - begin]
            chunk[:] = 0
            for rows, neighbours, weights in edges.rows_below(end):
                accumulate(rows, neighbours, weights, operand, chunk, first_row=begin)
            chunk *= scale[begin - start : end - start, None]
            write(out.write, (begin, columns[0]), chunk)
    return _tile_stats(task, block, (stop - start) * width * 4)


def _tile_by_parts(task: SketchTask, block: int, columns: tuple[int, int]) -> Stats:
    """Go through the operand in parts, and over the edges once for each."""
    graph, (first, last) = task.graph, columns
    start, stop = graph.block_range(block)
    out = thread_buffer("tile", (stop - start, last - first))
    out[:] = 0
    for begin in range(0, graph.nodes, task.operand_rows):
        end = min(begin + task.operand_rows, graph.nodes)
        part = thread_buffer("operand", (end - begin, last - first))
        for low in range(begin, end, graph.block_rows):
            high = min(low + graph.block_rows, end)
            nodes = read_nodes(graph, low, high)
            _fill_operand(task, nodes, low, first, part[low - begin : high - begin])
        for rows, neighbours, weights in graph.edge_runs(block):
            accumulate(rows, neighbours, weights, part, out, first_row=start, first_column=begin)
    out *= _block_nodes(task, block).scale.astype(np.float32)[:, None]
    open_tiles(task.out).write((start, first), out)
    return _tile_stats(task, block, out.nbytes)


def _tile_stats(task: SketchTask, block: int, written_bytes: int) -> Stats:
    parts = math.ceil(task.graph.nodes / task.operand_rows)
    return {
        "read_bytes": parts * task.graph.edge_bytes(block),
        "written_bytes": written_bytes,
    }


@dataclass(frozen=True)
class Nodes:
    """Keys of some nodes, and ``D^-1/2``."""

    keys: npt.NDArray[np.uint64]
    scale: npt.NDArray[np.float64]


def read_nodes(graph: Graph, start: int, stop: int) -> Nodes:
    """Keys and ``D^-1/2`` of the rows from `start` up to `stop`."""
    rows = graph.block_rows
    degrees = read_stretch(graph.degrees_path, start, stop, chunk=rows, dtype=np.float64)
    keys = read_stretch(graph.keys_path, start, stop, chunk=rows, dtype=np.uint64)
    return Nodes(keys, inverse_root(degrees))


def _block_nodes(task: SketchTask, block: int) -> Nodes:
    """Nodes of a block, kept if there is room."""
    key = ("nodes", task.graph.path, block)
    nodes: Nodes | None = kept.get(key)
    if nodes is None:
        nodes = read_nodes(task.graph, *task.graph.block_range(block))
        size = nodes.keys.nbytes + nodes.scale.nbytes
        if kept.reserve(size, task.kept_bytes):
            kept.keep(key, nodes, size)
    return nodes


def _block_edges(task: SketchTask, block: int) -> Iterator[EdgeRun]:
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


def _fill_operand(
    task: SketchTask, nodes: Nodes, start: int, first_column: int, out: Floats
) -> None:
    """Write rows of ``D^-1/2 Z_(t-1)`` from `start` on."""
    if task.operand is not None:
        open_tiles(task.operand).read((start, first_column), out)
        out *= nodes.scale.astype(np.float32)[:, None]
        return
    fill_projection(
        nodes.keys,
        seed=task.seed,
        first_column=first_column,
        scale=(nodes.scale / math.sqrt(task.sketch_size)).astype(np.float32),
        out=out,
    )
