"""From the sketch and its factor to one vector per node, and the basis for new nodes.

degree:   D^-1/2 U                          the paper's
unit:     rows of U f(lambda), normalised   f: the walk filter; then prominence
product:  (D + tau)^1/2 U |lambda|^1/2      positive lambda only

The basis B has ``U = L B``, with the same weights of the dimensions: a new node's vector is its row
of L times B, and the scale of its representation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figrl.engine.stage import Cost, Memory, Stage, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.kernels import scale_to_unit
from figrl.learn.operand import Nodes, inverse_root, read_nodes
from figrl.learn.projection import fill_projection
from figrl.learn.prominence import add_prominence
from figrl.learn.ritz import ritz_matrices
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup
from figrl.learn.singular import projector
from figrl.store.arrays import ArraySpec
from figrl.store.matrix import Floats, open_matrix


@dataclass(frozen=True)
class VectorsTask:
    """Parameters shared by all row blocks: where vectors go, and the basis if it is wanted."""

    setup: Setup
    vectors: Path
    basis: Path | None


def vectors_stage(setup: Setup, vectors: ArraySpec, *, with_basis: bool) -> Stage:
    """The vectors, or what smoothing begins with; and the basis, unless smoothing makes it."""
    basis = setup.rows_array(setup.folder / "basis") if with_basis else None
    nodes, dim, columns = setup.graph.nodes, setup.spec.dim, setup.columns
    arrays = (vectors,) if basis is None else (vectors, basis)
    task = VectorsTask(setup, vectors.path, None if basis is None else basis.path)
    reads = 1 + (basis is not None and not setup.spec.is_paper)
    made = 0 if basis is None else nodes * setup.spec.width
    flops = 2 * nodes * dim * columns * len(arrays)
    rows = setup.chunk_rows
    return Stage(
        "vectors",
        vectors_block,
        numbered(task, setup.graph.blocks),
        Memory(task_bytes=4 * (5 * rows * columns + 6 * columns * dim + 6 * rows * dim)),
        reads=(setup.sketch,),
        writes=arrays,
        frees=() if setup.keep_sketch else (setup.sketch,),
        cost=Cost(
            read_bytes=4 * nodes * columns * reads,
            again_bytes=setup.again_bytes(columns, setup.wide),
            written_bytes=4 * nodes * dim * len(arrays),
            flops=flops,
            work={
                "gemm": flops,
                "regenerate": made,
                "copy": reads * setup.copied_bytes(columns, setup.wide)
                + 4 * nodes * dim * len(arrays),
                "chunks": reads * setup.chunk_count(columns, setup.wide)
                + len(arrays) * math.ceil(nodes / rows),
            },
        ),
        # The decomposition before it may have taken much.
        releases_buffers=not setup.spec.is_paper,
    )


def vectors_block(task: VectorsTask, block: int) -> Stats:
    """Write the vectors of a row block, and its part of the basis."""
    setup = task.setup
    start, stop = setup.graph.block_range(block)
    nodes = read_nodes(setup.graph, start, stop, setup.spec.regularization)
    to_vectors, to_basis = _matrices(setup)
    height = setup.geometry.chunk_rows
    sketch = chunks_of_rows(open_matrix(setup.sketch), start, stop, height)

    def vectors(begin: int, out: Floats) -> None:
        np.matmul(next(sketch), to_vectors, out=out)
        which = slice(begin - start, begin - start + len(out))
        _scale(setup, nodes, which, out)
        if task.basis is not None:
            add_prominence(setup.spec, nodes.degrees[which], setup.graph.mean_degree, out)

    written = write_pieces([task.vectors], start, stop, height, vectors)
    read = (stop - start) * setup.columns * 4
    if task.basis is not None:
        origin = _origin(setup, nodes, start, stop)

        def basis(_: int, out: Floats) -> None:
            np.matmul(next(origin), to_basis, out=out)

        written += write_pieces([task.basis], start, stop, height, basis)
        read += 0 if setup.spec.is_paper else (stop - start) * setup.columns * 4
    return {"read_bytes": read, "written_bytes": written}


def _matrices(setup: Setup) -> tuple[Floats, Floats]:
    """The small matrices by which the sketch, and what it came from, are multiplied."""
    if setup.spec.is_paper:
        project = projector(setup.folder / "factor")
        return project, project
    to_vectors, to_basis = ritz_matrices(setup)
    return to_vectors.astype(np.float32), to_basis.astype(np.float32)


def _scale(setup: Setup, nodes: Nodes, which: slice, rows: Floats) -> None:
    """Scale rows as the representation asks for."""
    degrees, tau = nodes.degrees[which], setup.spec.regularization
    if setup.spec.representation == "unit":
        scale_to_unit(rows)
    elif setup.spec.representation == "degree":
        rows *= inverse_root(degrees).astype(np.float32)[:, None]
    else:
        rows *= np.sqrt(degrees + tau).astype(np.float32)[:, None]


def _origin(setup: Setup, nodes: Nodes, start: int, stop: int) -> Iterator[Floats]:
    """Rows of ``[R / sqrt(b), K_1 ... K_(s-1)]``, a chunk at a time."""
    width, columns = setup.spec.width, setup.spec.sketch_size
    chunk_rows = setup.geometry.chunk_rows
    height = min(chunk_rows, stop - start)
    buffer = worker_state().buffer("origin", (height, columns))
    # Depth 1 needs R alone.
    stored = None
    if columns > width:
        stored = chunks_of_rows(open_matrix(setup.sketch), start, stop, chunk_rows)
    for begin in range(0, stop - start, height):
        keys = nodes.keys[begin : begin + height]
        scale = np.full(keys.size, 1 / math.sqrt(width), np.float32)
        rows = buffer[: keys.size]
        fill_projection(
            keys, seed=setup.spec.seed, first_column=0, scale=scale, out=rows[:, :width]
        )
        if stored is not None:
            rows[:, width:] = next(stored)[:, : columns - width]
        yield rows
