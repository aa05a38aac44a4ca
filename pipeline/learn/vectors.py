"""From the sketch and its factor to one vector per node, and the basis for nodes to come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.files import open_zarr, write_rows
from pipeline.graph import Graph
from pipeline.learn.buffers import thread_buffer
from pipeline.learn.factor import projector
from pipeline.learn.projection import fill_projection
from pipeline.learn.sketch import inverse_root
from pipeline.run import Stats


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
    sketch = open_zarr(task.run / "sketch")
    embedding, basis = (open_zarr(task.run / name) for name in ("embedding", "basis"))
    project = projector(task.run / "factor")
    keys, degrees = open_zarr(task.graph.keys_path), open_zarr(task.graph.degrees_path)
    for begin in range(start, stop, task.chunk_rows):
        end = min(begin + task.chunk_rows, stop)
        vectors = np.asarray(sketch[begin:end]) @ project
        vectors *= inverse_root(np.asarray(degrees[begin:end])).astype(np.float32)[:, None]
        write_rows(embedding, begin, vectors)
        rows = thread_buffer("projection", (end - begin, task.sketch_size))
        scale = np.full(end - begin, 1 / math.sqrt(task.sketch_size), np.float32)
        fill_projection(
            np.asarray(keys[begin:end]), seed=task.seed, first_column=0, scale=scale, out=rows
        )
        write_rows(basis, begin, np.matmul(rows, project, out=vectors))
    return {
        "read_bytes": (stop - start) * task.sketch_size * 4,
        "written_bytes": 2 * (stop - start) * project.shape[1] * 4,
    }
