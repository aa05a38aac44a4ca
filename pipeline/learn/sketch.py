"""Products Z_t = L Z_(t-1), a tile at a time; Z_0 = R / sqrt(d), and the sketch is the last.

    Z_t[i, s] = sum over j of L[i, j] Z_(t-1)[j, s]      i, j: blocks of rows    s: slice of columns

``L = D^-1/2 W D^-1/2``: the right factor is put into the operand when it is made, the left one
into the result, so the product itself only adds rows up. A slice needs nothing from the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from pipeline.files import open_zarr, write_tile
from pipeline.graph import Graph
from pipeline.learn.buffers import Floats, shared_operand, thread_buffer
from pipeline.learn.kernels import accumulate
from pipeline.learn.projection import fill_projection
from pipeline.run import Stats


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
        Rows of the operand held at a time. Where it is all of them, the threads of a worker share
        one operand; where not, each goes through it in parts.
    seed : int
    """

    graph: Graph
    operand: Path | None
    out: Path
    sketch_size: int
    slice_columns: int
    operand_rows: int
    seed: int

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
    """Compute one tile of the sketch and write it."""
    graph = task.graph
    start, stop = graph.block_range(block)
    first, last = task.columns(slice_number)
    keys, degrees = open_zarr(graph.keys_path), open_zarr(graph.degrees_path)
    out = thread_buffer("tile", (stop - start, last - first))
    out[:] = 0
    if task.operand_rows >= graph.nodes:
        key = (graph.path, task.operand, task.sketch_size, task.seed, first, last)
        shape = (graph.nodes, last - first)

        def fill(part: int, operand: Floats) -> None:
            begin, end = graph.block_range(part)
            _fill_operand(task, keys, degrees, begin, first, operand[begin:end])

        with shared_operand.use(key, shape, graph.blocks, fill) as operand:
            read_bytes = _add_block(graph, block, operand, 0, out)
    else:
        read_bytes = 0
        for begin in range(0, graph.nodes, task.operand_rows):
            end = min(begin + task.operand_rows, graph.nodes)
            part = thread_buffer("operand", (end - begin, last - first))
            _fill_operand(task, keys, degrees, begin, first, part)
            read_bytes += _add_block(graph, block, part, begin, out)
    out *= inverse_root(_read(degrees, start, stop)).astype(np.float32)[:, None]
    write_tile(open_zarr(task.out), (start, first), out)
    return {"read_bytes": read_bytes, "written_bytes": out.nbytes}


def _add_block(graph: Graph, block: int, operand: Floats, first_column: int, out: Floats) -> int:
    start, _ = graph.block_range(block)
    for rows, columns, weights in graph.edge_runs(block):
        accumulate(rows, columns, weights, operand, out, first_row=start, first_column=first_column)
    return graph.edge_bytes(block)


def _fill_operand(
    task: SketchTask,
    keys: zarr.Array[Any],
    degrees: zarr.Array[Any],
    start: int,
    first_column: int,
    out: Floats,
) -> None:
    """Write rows of ``D^-1/2 Z_(t-1)`` from `start` on."""
    stop = start + out.shape[0]
    scale = inverse_root(_read(degrees, start, stop))
    if task.operand is not None:
        stored = open_zarr(task.operand)[start:stop, first_column : first_column + out.shape[1]]
        np.multiply(stored, scale.astype(np.float32)[:, None], out=out)
        return
    scale /= math.sqrt(task.sketch_size)
    fill_projection(
        _read(keys, start, stop),
        seed=task.seed,
        first_column=first_column,
        scale=scale.astype(np.float32),
        out=out,
    )


def _read(array: zarr.Array[Any], start: int, stop: int) -> npt.NDArray[Any]:
    return np.asarray(array[start:stop])
