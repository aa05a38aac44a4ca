"""From the sketch and its factor to one vector per node, and the basis for nodes to come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.graph import Graph
from pipeline.learn.buffers import thread_pair
from pipeline.learn.factor import chunks_of_rows, projector
from pipeline.learn.projection import fill_projection
from pipeline.learn.sketch import read_nodes
from pipeline.overlap import WriteBehind
from pipeline.tiles import Floats, Tiles, open_tiles


@dataclass(frozen=True)
class VectorsTask:
    """What every row block has to know."""

    graph: Graph
    run: Path
    sketch_size: int
    chunk_rows: int
    seed: int


def vectors_block(task: VectorsTask, block: int) -> Stats:
    """Write ``Y = D^-1/2 M V_k S_k^-1`` and ``B = R V_k S_k^-1 / sqrt(d)`` for a row block."""
    start, stop = task.graph.block_range(block)
    sketch, embedding, basis = (
        open_tiles(task.run / name) for name in ("sketch", "embedding", "basis")
    )
    project = projector(task.run / "factor")
    nodes = read_nodes(task.graph, start, stop)
    height = task.chunk_rows
    shape = (min(height, stop - start), project.shape[1])
    buffers = thread_pair("vectors", shape), thread_pair("basis", shape)
    with WriteBehind() as write:
        for number, rows in enumerate(chunks_of_rows(sketch, start, stop, height)):
            begin = start + number * height
            end = begin + rows.shape[0]
            vectors, folded = (pair[number % 2][: end - begin] for pair in buffers)
            np.matmul(rows, project, out=vectors)
            vectors *= nodes.scale[begin - start : end - start, None].astype(np.float32)
            _fill_rows(task, nodes.keys[begin - start : end - start], rows)
            np.matmul(rows, project, out=folded)
            write(_write_chunks, begin, (embedding, vectors), (basis, folded))
    return {
        "read_bytes": (stop - start) * task.sketch_size * 4,
        "written_bytes": 2 * (stop - start) * project.shape[1] * 4,
    }


def _fill_rows(task: VectorsTask, keys: npt.NDArray[np.uint64], out: Floats) -> None:
    """Write rows of ``R / sqrt(d)`` over those of the sketch, which are not needed any more."""
    scale = np.full(keys.size, 1 / math.sqrt(task.sketch_size), np.float32)
    fill_projection(keys, seed=task.seed, first_column=0, scale=scale, out=out)


def _write_chunks(start: int, *chunks: tuple[Tiles, Floats]) -> None:
    for tiles, rows in chunks:
        tiles.write((start, 0), rows)
