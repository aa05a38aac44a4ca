"""From the sketch and its factor to one vector per node, and the basis for nodes to come.

U = M V_k S_k^-1      B = Z_2q V_k S_k^-1          and both rotated, where there is a Ritz step
degree:  D^-1/2 U     unit:  rows of U |lambda|^p, brought to length 1
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.files import load_array
from pipeline.graph import Graph
from pipeline.learn.buffers import thread_buffer
from pipeline.learn.factor import projector
from pipeline.learn.kernels import scale_to_unit
from pipeline.learn.projection import fill_projection
from pipeline.learn.rows import chunks_of_rows, write_pieces
from pipeline.learn.signs import expand, fill_packed, packed_width
from pipeline.learn.sketch import Nodes, inverse_root, read_nodes
from pipeline.recipe import Recipe
from pipeline.tiles import Floats, open_tiles


@dataclass(frozen=True)
class VectorsTask:
    """What every row block has to know.

    Attributes
    ----------
    graph : Graph
    recipe : Recipe
    columns : int
        Columns of the sketch, with those of the probes.
    chunk_rows : int
        Rows that are multiplied at a time.
    factor : Path
        Folder of S and V.
    source : Path
        The sketch; or, where there is a Ritz step, U with the probes.
    before : Path or None
        ``Z_2q``; None where it is R.
    ritz : Path or None
        Folder of the rotation and the eigenvalues.
    vectors : tuple of Path
        Where the vectors go.
    basis : Path or None
        Where the basis goes; None where smoothing makes one.
    """

    graph: Graph
    recipe: Recipe
    columns: int
    chunk_rows: int
    factor: Path
    source: Path
    before: Path | None
    ritz: Path | None
    vectors: tuple[Path, ...]
    basis: Path | None


def vectors_block(task: VectorsTask, block: int) -> Stats:
    """Write the vectors of a row block, and its part of the basis."""
    start, stop = task.graph.block_range(block)
    source = open_tiles(task.source)
    nodes = read_nodes(task.graph, start, stop, task.recipe.regularization)
    to_vectors, to_basis = _matrices(task, source.shape[1])
    chunks = chunks_of_rows(source, start, stop, task.chunk_rows)
    scale = inverse_root(nodes.degrees).astype(np.float32)[:, None]

    def vectors(begin: int, out: Floats) -> None:
        np.matmul(next(chunks), to_vectors, out=out)
        if task.recipe.representation == "unit":
            scale_to_unit(out)
        else:
            out *= scale[begin - start : begin - start + len(out)]

    written = write_pieces(task.vectors, start, stop, task.chunk_rows, vectors)
    read = (stop - start) * source.shape[1] * 4
    if task.basis is not None:
        origin = _origin(task, nodes, start, stop)

        def basis(_: int, out: Floats) -> None:
            np.matmul(next(origin), to_basis, out=out)

        written += write_pieces([task.basis], start, stop, task.chunk_rows, basis)
        read += 0 if task.before is None else (stop - start) * task.columns * 4
    return {"read_bytes": read, "written_bytes": written}


def _matrices(task: VectorsTask, source_columns: int) -> tuple[Floats, Floats]:
    """What the source, and what ``Z_2q``, are multiplied by."""
    project = projector(task.factor)
    if task.ritz is None:
        return project, _with_rows(project, task.columns)
    rotation = load_array(task.ritz / "rotation.npy")
    if task.recipe.representation == "unit":
        rotation = rotation * np.abs(load_array(task.ritz / "values.npy")) ** task.recipe.exponent
    rotated = (project.astype(np.float64) @ rotation).astype(np.float32)
    return (
        _with_rows(rotation.astype(np.float32), source_columns),
        _with_rows(rotated, task.columns),
    )


def _with_rows(matrix: Floats, rows: int) -> Floats:
    """A matrix with zeros below it: the columns of probes have no part in vectors."""
    padded = np.zeros((rows, matrix.shape[1]), np.float32)
    padded[: len(matrix)] = matrix
    return padded


def _origin(task: VectorsTask, nodes: Nodes, start: int, stop: int) -> Iterator[Floats]:
    """Rows of ``Z_2q``, a chunk at a time."""
    if task.before is not None:
        yield from chunks_of_rows(open_tiles(task.before), start, stop, task.chunk_rows)
        return
    height = min(task.chunk_rows, stop - start)
    buffer = thread_buffer("in 0", (height, task.columns))
    for begin in range(0, stop - start, height):
        keys = nodes.keys[begin : begin + height]
        rows = buffer[: keys.size]
        _fill_rows(task, keys, rows)
        yield rows


def _fill_rows(task: VectorsTask, keys: npt.NDArray[np.uint64], out: Floats) -> None:
    """Write rows of ``R / sqrt(d)``."""
    scale = np.full(keys.size, 1 / math.sqrt(task.columns), np.float32)
    seed, size = task.recipe.seed, task.recipe.sketch_size
    if task.recipe.projection == "gaussian":
        fill_projection(keys, seed=seed, first_column=0, scale=scale, out=out)
    else:
        packed = np.empty((keys.size, packed_width(size, task.columns - size)), np.float32)
        fill_packed(keys, seed=seed, size=size, scale=scale, out=packed)
        expand(packed, size, out)
