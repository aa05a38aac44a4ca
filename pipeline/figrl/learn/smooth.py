"""Smoothing: a low-pass filter of the graph, and dimensions of more even weight.

    Z = T_(s-1)(P / a) Y_0 / T_(s-1)(1 / a)      P = D^-1 W    T: Chebyshev polynomial
    B = unit(c Z + (1 - c) Y_0)                  Y = P B
    vectors: unit(Y H), and prominence           H: from the Gram matrix of rows of unit(Y)

The polynomial of degree s - 1 keeps what varies slowly along edges, and damps the rest: s products
do what takes more than twice as many steps ``Y <- unit(P Y)``. Smoothed vectors tell communities
apart, Y_0 tells near neighbours apart, so both are mixed: Y_0 counts the more, the more of the
graph's matrix its dimensions hold. On dense graphs, where Z is nearly the same for all nodes, that
is what keeps vectors apart. H makes the few strong directions weaker (`balance`).

The last step is a mean over neighbours, so a new node's vector is ``unit(p_j B H)`` with its own
prominence, and ``B H`` is the fold-in basis. Rows of zeros, of nodes without edges, stay zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figrl.engine.stage import Cost, Memory, Stage, Stages, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.balance import balance_stages, load_balance
from figrl.learn.chain import GraphByBlocks, graph_of
from figrl.learn.kernels import scale_to_unit
from figrl.learn.operand import Columns, ProductTask, read_nodes
from figrl.learn.product import product_stage
from figrl.learn.prominence import add_prominence
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup
from figrl.store.arrays import ArraySpec
from figrl.store.matrix import Floats, open_matrix

_DAMPED = 0.85
"""The bound a: what varies along edges with an eigenvalue of P between -a and a is damped."""

_LOCAL_BY_SHARE, _MOST_LOCAL = 4.0, 0.5
"""Weight 1 - c of the vectors before smoothing: the first, times the share of the graph's matrix
that they hold, and at most the second. docs/quality.md has the table behind these numbers."""


def local_weight(share: float) -> float:
    """Weight of the vectors before smoothing, whose dimensions hold a share of the matrix."""
    return min(_LOCAL_BY_SHARE * share, _MOST_LOCAL)


def recurrence(steps: int) -> list[tuple[float, float]]:
    """Factors ``(f, g)`` with ``Z_i = f P Z_(i-1) - g Z_(i-2)``, for i from 1 on.

    ``Z_i`` is ``T_i(P / a) Y_0 / T_i(1 / a)``, so that a vector that is the same for all nodes
    stays as it is.

    Examples
    --------
    >>> recurrence(1)
    [(1.0, 0.0)]
    """
    factors, ratio = [(1.0, 0.0)], _DAMPED
    while len(factors) < steps:
        following = 1 / (2 / _DAMPED - ratio)
        factors.append((2 / _DAMPED * following, ratio * following))
        ratio = following
    return factors


def smoothed_array(setup: Setup, step: int) -> ArraySpec:
    """Where ``Z_step`` lies until it is no longer needed; the first are the vectors ``Y_0``."""
    return _array(setup, f"smooth-{step:03d}")


def _array(setup: Setup, name: str) -> ArraySpec:
    return setup.slices_array(setup.work / name, setup.spec.dim, setup.narrow)


def _mixed(setup: Setup) -> ArraySpec:
    return _array(setup, "smooth-mixed")


def _means(setup: Setup) -> ArraySpec:
    return _array(setup, "smooth-means")


def smooth_stages(setup: Setup, share: float) -> Stages[None]:
    """All steps from ``Y_0``, whose dimensions hold a share of the matrix, to the embedding.

    Where one worker has all columns, it mixes in ``Y_0`` on the way; rows in slices are mixed by a
    stage of its own, because their length is that of all slices together.
    """
    steps, local = setup.spec.smoothing, local_weight(share)
    task = step_product(setup, steps)
    mixes = task.tiling.chain > 0 and task.slices == 1
    yield from _filter_stages(setup, local, steps if mixes else steps - 1)
    if not mixes:
        yield _mix_stage(setup, local)
        yield product_stage(task, "smooth", steps, (_means(setup),))
    yield from balance_stages(setup, _means(setup), local)
    yield _store_stage(setup)


def _filter_stages(setup: Setup, local: float, last: int) -> Iterator[Stage]:
    """The steps up to one, in chains or one after the other."""
    chain = max(setup.narrow.chain, 1)
    for first in range(1, last + 1, chain):
        end = min(first + chain - 1, last)
        writes = _left_by(setup, first, end)
        # Y_0 is mixed in at the end.
        older = [step for step in (first - 2, first - 1) if 0 < step < end - 1]
        if end == setup.spec.smoothing:
            older = [step for step in (0, first - 2, first - 1) if step >= 0]
        yield product_stage(
            step_product(setup, first),
            "smooth",
            first,
            writes,
            chain=(run_steps, (setup, local, first, end)),
            times=end - first + 1,
            frees=tuple(smoothed_array(setup, step).path for step in dict.fromkeys(older)),
        )


def _left_by(setup: Setup, first: int, end: int) -> tuple[ArraySpec, ...]:
    """What steps leave for those after them: the last two results."""
    if end == setup.spec.smoothing:
        return _mixed(setup), _means(setup)
    return tuple(smoothed_array(setup, step) for step in (end - 1, end) if step >= first)


def step_product(setup: Setup, step: int) -> ProductTask:
    """The product of a step: ``Z_step``, or the means over neighbours that are the last one."""
    if step == setup.spec.smoothing:
        operand, out, before, factors = _mixed(setup), _means(setup), None, (1.0, 0.0)
    else:
        operand, out = smoothed_array(setup, step - 1), smoothed_array(setup, step)
        before = Columns(smoothed_array(setup, step - 2).path) if step > 1 else None
        factors = recurrence(step)[-1]
    return ProductTask(
        setup,
        setup.narrow,
        Columns(operand.path),
        Columns(out.path),
        setup.spec.dim,
        before=before,
        factors=factors,
        smooths=True,
    )


def run_steps(setup: Setup, local: float, first: int, end: int, slice_number: int) -> Stats:
    """Some steps of a slice in the memory of this worker; what later ones need is stored."""
    task = step_product(setup, first)
    column, last_column = task.slice_range(slice_number)
    shape = (setup.graph.nodes, last_column - column)
    with worker_state().matrices.use(2, shape) as (latest, earlier):
        graph = graph_of(task)
        graph.read(Columns(smoothed_array(setup, first - 1).path), column, latest)
        if first > 1:
            graph.read(Columns(smoothed_array(setup, first - 2).path), column, earlier)
        for step in range(first, end + 1):
            if step == setup.spec.smoothing:
                _mix_matrix(setup, local, graph, latest)
            graph.multiply(step_product(setup, step), latest, earlier)
            latest, earlier = earlier, latest
        left = _left_by(setup, first, end)
        for target, matrix in zip(left, (earlier, latest)[-len(left) :], strict=True):
            graph.write(Columns(target.path), column, matrix)
        size = latest.nbytes
        return {
            "read_bytes": graph.edge_bytes + min(first, 2) * size,
            "written_bytes": len(left) * size,
        }


def _mix_matrix(setup: Setup, local: float, graph: GraphByBlocks, matrix: Floats) -> None:
    mix, height = _mixer(setup, local), setup.geometry.chunk_rows

    def mix_rows(block: int) -> None:
        begin, end = setup.graph.block_range(block)
        for low in range(begin, end, height):
            mix(low, matrix[low : min(low + height, end)])

    graph.each_block(mix_rows)


def _mixer(setup: Setup, local: float) -> Callable[[int, Floats], None]:
    """A function that makes ``unit(c Z + (1 - c) Y_0)`` of rows of Z, in place, from a row on."""
    original = open_matrix(smoothed_array(setup, 0).path)

    def mix(begin: int, rows: Floats) -> None:
        rows *= np.float32(1 - local)
        rows += np.float32(local) * original.read((begin, 0), np.empty_like(rows))
        scale_to_unit(rows)

    return mix


@dataclass(frozen=True)
class RowsTask:
    """Parameters shared by all row blocks of a stage that goes over rows of smoothed vectors."""

    setup: Setup
    local: float = 0.0


def mix_block(task: RowsTask, block: int) -> Stats:
    """Mix the smoothed rows of a row block with those before smoothing."""
    setup = task.setup
    start, stop = setup.graph.block_range(block)
    height = setup.geometry.chunk_rows
    latest = smoothed_array(setup, setup.spec.smoothing - 1)
    smoothed = chunks_of_rows(open_matrix(latest.path), start, stop, height)
    mix = _mixer(setup, task.local)

    def mixed(begin: int, out: Floats) -> None:
        np.copyto(out, next(smoothed))
        mix(begin, out)

    written = write_pieces([_mixed(setup).path], start, stop, height, mixed)
    return {"read_bytes": 2 * written, "written_bytes": written}


def _mix_stage(setup: Setup, local: float) -> Stage:
    last = setup.spec.smoothing - 1
    reads, frees = (
        tuple(dict.fromkeys(smoothed_array(setup, step).path for step in steps))
        for steps in ((0, last), (0, max(last - 1, 0), last))
    )
    task = RowsTask(setup, local)
    return _rows_stage("smooth-mix", mix_block, task, reads, (_mixed(setup),), frees)


def store_block(task: RowsTask, block: int) -> Stats:
    """Write the vectors and the basis of a row block."""
    setup = task.setup
    start, stop = setup.graph.block_range(block)
    height = setup.geometry.chunk_rows
    weights = load_balance(setup)

    degrees = read_nodes(setup.graph, start, stop).degrees

    def balanced(source: Path, normalises: bool) -> Callable[[int, Floats], None]:
        chunks: Iterator[Floats] = chunks_of_rows(open_matrix(source), start, stop, height)

        def fill(begin: int, out: Floats) -> None:
            np.matmul(next(chunks), weights, out=out)
            if normalises:
                scale_to_unit(out)
                own = degrees[begin - start : begin - start + len(out)]
                add_prominence(setup.spec, own, setup.graph.mean_degree, out)

        return fill

    vectors, basis = _stored(setup)
    written = 0
    for source, target, normalises in (
        (_means(setup), vectors, True),
        (_mixed(setup), basis, False),
    ):
        fill = balanced(source.path, normalises)
        written += write_pieces([target.path], start, stop, height, fill)
    return {"read_bytes": written, "written_bytes": written}


def _stored(setup: Setup) -> tuple[ArraySpec, ArraySpec]:
    vectors, basis = (setup.rows_array(setup.folder / name) for name in ("embedding", "basis"))
    return vectors, basis


def _store_stage(setup: Setup) -> Stage:
    """The embedding and the basis, with whole rows in a chunk."""
    sources = (_means(setup).path, _mixed(setup).path)
    flops = 4 * setup.graph.nodes * setup.spec.dim**2
    task = RowsTask(setup)
    return _rows_stage("embedding", store_block, task, sources, _stored(setup), sources, flops)


def _rows_stage(
    name: str,
    function: Callable[[RowsTask, int], Stats],
    task: RowsTask,
    reads: tuple[Path, ...],
    writes: tuple[ArraySpec, ...],
    frees: tuple[Path, ...],
    flops: int = 0,
) -> Stage:
    setup, dim = task.setup, task.setup.spec.dim
    tall = min(max(array.chunks[0] for array in writes), setup.graph.nodes)
    size = 4 * setup.graph.nodes * dim
    return Stage(
        name,
        function,
        numbered(task, setup.graph.blocks),
        Memory(task_bytes=4 * dim * (5 * setup.chunk_rows + 3 * tall + 2 * dim)),
        reads=reads,
        writes=writes,
        frees=frees,
        cost=Cost(
            read_bytes=len(reads) * size,
            again_bytes=len(reads) * setup.again_bytes(dim, setup.narrow),
            written_bytes=len(writes) * size,
            flops=flops,
            work={
                "gemm": flops,
                "copy": len(reads) * setup.copied_bytes(dim, setup.narrow) + len(writes) * size,
                "chunks": setup.chunk_count(2 * dim, setup.narrow),
            },
        ),
    )
