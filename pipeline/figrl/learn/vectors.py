"""From the sketch and its factor to one vector per node, and the basis for new nodes.

U = M V_k S_k^-1      B = Z_2q V_k S_k^-1          both rotated, where there is a Ritz step
degree:  D^-1/2 U     unit:  rows of U |lambda|^p, normalised
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figrl.engine.stage import Cost, Memory, Stage, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.factor import projector
from figrl.learn.kernels import scale_to_unit
from figrl.learn.operand import Nodes, inverse_root, read_nodes
from figrl.learn.projection import fill_projection
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup
from figrl.learn.sketch import Powers
from figrl.learn.sparse_sign import expand, fill_packed, packed_width
from figrl.store.arrays import ArraySpec
from figrl.store.files import load_array
from figrl.store.matrix import Floats, open_matrix


@dataclass(frozen=True)
class VectorsTask:
    """Parameters shared by all row blocks.

    `source` is the sketch or, where there is a Ritz step, U with the probes; `before` is ``Z_2q``,
    None where it is R; `basis` is None where smoothing makes one.
    """

    setup: Setup
    source: Path
    before: Path | None
    vectors: tuple[Path, ...]
    basis: Path | None


def vectors_stage(setup: Setup, powers: Powers, outputs: tuple[ArraySpec, ...]) -> Stage:
    """The vectors, or what smoothing starts from; and the basis, unless smoothing makes it."""
    spec, graph = setup.spec, setup.graph
    nodes, dim, columns = graph.nodes, spec.dim, setup.columns
    with_basis = not spec.smoothing
    basis = setup.rows_array(setup.folder / "basis") if with_basis else None
    task = VectorsTask(
        setup,
        source=setup.work / "left" if spec.certified else powers.last,
        before=powers.before,
        vectors=tuple(output.path for output in outputs),
        basis=None if basis is None else basis.path,
    )
    source = dim + setup.probes if spec.certified else columns
    tiling = setup.narrow if spec.certified else setup.wide
    stored = 4 * nodes * columns if with_basis and powers.before is not None else 0
    made = nodes * columns if with_basis and powers.before is None else 0
    flops = 2 * nodes * dim * (source + columns * with_basis)
    rows = setup.chunk_rows
    return Stage(
        "vectors",
        vectors_block,
        numbered(task, graph.blocks),
        Memory(task_bytes=4 * (5 * rows * columns + 6 * columns * dim + 6 * rows * dim)),
        reads=(task.source, setup.folder / "factor"),
        writes=outputs if basis is None else (*outputs, basis),
        frees=(
            setup.work / "left",
            setup.work / "ritz-product",
            *(() if powers.before is None else (powers.before,)),
        ),
        cost=Cost(
            read_bytes=4 * nodes * source + stored,
            written_bytes=4 * nodes * dim * (2 if with_basis else 1),
            flops=flops,
            work={
                "gemm": flops,
                "regenerate": made,
                "copy": setup.copied_bytes(source, tiling) + stored + 8 * nodes * dim,
                "chunks": setup.chunk_count(source, tiling) + 2 * math.ceil(nodes / rows),
            },
        ),
    )


def vectors_block(task: VectorsTask, block: int) -> Stats:
    """Write the vectors of a row block, and its part of the basis."""
    start, stop = task.setup.graph.block_range(block)
    source = open_matrix(task.source)
    nodes = read_nodes(task.setup.graph, start, stop, task.setup.spec.regularization)
    to_vectors, to_basis = _matrices(task, source.shape[1])
    chunks = chunks_of_rows(source, start, stop, task.setup.geometry.chunk_rows)
    scale = inverse_root(nodes.degrees).astype(np.float32)[:, None]

    def vectors(begin: int, out: Floats) -> None:
        np.matmul(next(chunks), to_vectors, out=out)
        if task.setup.spec.representation == "unit":
            scale_to_unit(out)
        else:
            out *= scale[begin - start : begin - start + len(out)]

    written = write_pieces(task.vectors, start, stop, task.setup.geometry.chunk_rows, vectors)
    read = (stop - start) * source.shape[1] * 4
    if task.basis is not None:
        origin = _origin(task, nodes, start, stop)

        def basis(_: int, out: Floats) -> None:
            np.matmul(next(origin), to_basis, out=out)

        written += write_pieces([task.basis], start, stop, task.setup.geometry.chunk_rows, basis)
        read += 0 if task.before is None else (stop - start) * task.setup.columns * 4
    return {"read_bytes": read, "written_bytes": written}


def _matrices(task: VectorsTask, source_columns: int) -> tuple[Floats, Floats]:
    """The small matrices by which the source and ``Z_2q`` are multiplied."""
    project = projector(task.setup.folder / "factor")
    if not task.setup.spec.certified:
        return project, _with_rows(project, task.setup.columns)
    ritz = task.setup.folder / "ritz"
    rotation = load_array(ritz / "rotation.npy")
    if task.setup.spec.representation == "unit":
        rotation = rotation * np.abs(load_array(ritz / "values.npy")) ** task.setup.spec.exponent
    rotated = (project.astype(np.float64) @ rotation).astype(np.float32)
    return (
        _with_rows(rotation.astype(np.float32), source_columns),
        _with_rows(rotated, task.setup.columns),
    )


def _with_rows(matrix: Floats, rows: int) -> Floats:
    """A matrix padded with rows of zeros: probes have no part in vectors."""
    padded = np.zeros((rows, matrix.shape[1]), np.float32)
    padded[: len(matrix)] = matrix
    return padded


def _origin(task: VectorsTask, nodes: Nodes, start: int, stop: int) -> Iterator[Floats]:
    """Rows of ``Z_2q``, a chunk at a time; without power iterations those of ``R / sqrt(d)``."""
    if task.before is not None:
        yield from chunks_of_rows(
            open_matrix(task.before), start, stop, task.setup.geometry.chunk_rows
        )
        return
    height = min(task.setup.geometry.chunk_rows, stop - start)
    columns, seed, size = task.setup.columns, task.setup.spec.seed, task.setup.spec.sketch_size
    buffer = worker_state().buffer("in 0", (height, columns))
    for begin in range(0, stop - start, height):
        keys = nodes.keys[begin : begin + height]
        rows = buffer[: keys.size]
        scale = np.full(keys.size, 1 / math.sqrt(columns), np.float32)
        if task.setup.spec.projection == "gaussian":
            fill_projection(keys, seed=seed, first_column=0, scale=scale, out=rows)
        else:
            packed = np.empty((keys.size, packed_width(size, columns - size)), np.float32)
            fill_packed(keys, seed=seed, size=size, scale=scale, out=packed)
            expand(packed, size, rows)
        yield rows
