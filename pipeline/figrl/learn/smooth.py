"""Smoothing: each vector becomes the mean of its neighbours' vectors, normalised.

    Y_t = unit(P Y_(t-1))          P = D^-1 W

A new node's vector is one step from ``Y_(s-1)``, which is therefore the fold-in basis. How many
steps a graph gains from is decided while it is smoothed, from the length of the mean vector: it
grows as vectors become parallel. Where the first step makes it jump, as on dense graphs, no step is
taken; else steps go on until it would be too long.

Rows of zeros, of nodes without edges, stay zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figrl.engine.stage import Block, Cost, Memory, Stage, StageResult, Stages, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.chain import GraphInMemory
from figrl.learn.kernels import add_rows, scale_to_unit
from figrl.learn.operand import Columns, ProductTask
from figrl.learn.product import product_stage
from figrl.learn.rows import chunks_of_rows, write_pieces
from figrl.learn.setup import Setup
from figrl.store.arrays import ArraySpec
from figrl.store.graph import Graph
from figrl.store.matrix import Floats, open_matrix

_LARGEST_JUMP = 0.12
"""Growth of the mean vector in the first step above which no step is taken."""

_LONGEST_MEAN, _LESS_BY_SHARE = 0.82, 5.0
"""Length that the mean vector may reach: the first, less the second times the share of the graph's
matrix that the dimensions hold. Where they hold much of it, there is less to gain from neighbours;
docs/quality.md has the table behind these numbers."""

AUTO_STEPS = 30
"""Most steps where their number is not given."""

Arrays = tuple[ArraySpec, ArraySpec | None]
"""The latest vectors, and those of the step before."""


def steps_after(lengths: Sequence[float], asked: int | None, share: float) -> int | None:
    """Steps to keep, given the lengths of the mean before and after each step so far.

    `share` is that of the graph's matrix that the dimensions hold. None where one more step is to
    be taken.
    """
    longest = _LONGEST_MEAN - _LESS_BY_SHARE * share
    done = len(lengths) - 1
    if asked is not None:
        return asked if done == asked else None
    if done == 0:
        return None if lengths[0] < longest else 0
    grown = lengths[-1] - lengths[-2]
    if done == 1 and grown > _LARGEST_JUMP:
        return 0
    return done if done == AUTO_STEPS or lengths[-1] + grown > longest else None


def smoothed_array(setup: Setup, step: int, suffix: str = "") -> ArraySpec:
    """Where ``Y_step`` lies until the embedding is stored."""
    path = setup.work / f"smooth-{step:03d}{suffix}"
    return setup.slices_array(path, setup.spec.dim, setup.narrow)


def mean_length(graph: Graph, totals: Sequence[Sequence[float]]) -> float:
    """Length of the mean vector, from the sums over row blocks, in their order."""
    return float(np.linalg.norm(np.sum(totals, axis=0))) / graph.nodes


def block_totals(result: StageResult) -> list[list[float]]:
    """Sums of the vectors of each row block of a stage."""
    return [result.stats[key]["total"] for key in sorted(result.stats)]


def smooth_stages(setup: Setup, length: float, share: float) -> Stages[int]:
    """All steps from ``Y_0``, whose mean has a length, and the embedding; the number of steps."""
    asked, chain = setup.spec.smoothing, setup.narrow.chain
    lengths, done = [length], 0
    kept = steps_after(lengths, asked, share)
    first: Arrays = (smoothed_array(setup, 0), None)
    arrays = first
    most = AUTO_STEPS if asked is None else asked
    while done < most:
        times, needed = min(chain, most - done), kept is None
        if chain > 1:
            found, after = yield from _chain_stages(
                setup, arrays, range(done + 1, done + times + 1), lengths, share, needed
            )
        else:
            found, after = yield from _step_stages(setup, arrays, done + 1, needed)
        if needed:
            lengths, arrays = [*lengths, *found], after
            kept = steps_after(lengths, asked, share)
        done += times
    taken = most if kept is None else kept
    yield _store_stage(setup, arrays if taken else first)
    return taken


def _step_stages(
    setup: Setup, arrays: Arrays, step: int, needed: bool
) -> Stages[tuple[Sequence[float], Arrays]]:
    """One step, shared by the workers; where a slice has not all columns, rows are scaled after."""
    latest, before = arrays
    out = smoothed_array(setup, step)
    whole = setup.narrow.slice_columns >= setup.spec.dim
    raw = smoothed_array(setup, step, "-sum")
    written = out if whole else raw
    result = yield product_stage(
        _product(setup, latest, written),
        "smooth",
        step,
        (written,),
        frees=(before.path,) if needed and before is not None else (),
        needed=needed,
        expected={"total": [0.0]},
    )
    if not whole:
        result = yield _rows_stage(
            "smooth-normalise",
            RowsTask(setup, ((raw.path, out.path),), normalises=True),
            (out,),
            (raw.path,) if needed else (),
            step=step,
            needed=needed,
        )
    length = mean_length(setup.graph, block_totals(result)) if needed else 0.0
    return [length], (out, latest)


def _chain_stages(
    setup: Setup, arrays: Arrays, steps: range, lengths: Sequence[float], share: float, needed: bool
) -> Stages[tuple[Sequence[float], Arrays]]:
    """Up to `times` steps in the memory of one worker, which looks at the mean after each."""
    latest, before = arrays
    end, times = steps[-1], len(steps)
    out, out_before = smoothed_array(setup, end), smoothed_array(setup, end, "-before")
    old = (latest.path, before.path) if before is not None else ()
    task = _product(setup, latest, out)
    result = yield product_stage(
        task,
        "smooth",
        steps[0],
        (out, out_before),
        chain=(run_steps, Block("all", (task, out_before.path, tuple(lengths), share, times))),
        times=times,
        frees=old if needed else (),
        needed=needed,
        expected={"lengths": [0.0] * times},
    )
    return result.only["lengths"] if needed else (), (out, out_before)


def _product(setup: Setup, operand: ArraySpec, out: ArraySpec) -> ProductTask:
    return ProductTask(
        setup,
        setup.narrow,
        Columns(operand.path),
        Columns(out.path),
        setup.spec.dim,
        smooths=True,
    )


def run_steps(
    task: ProductTask, before: Path, lengths: tuple[float, ...], share: float, times: int
) -> Stats:
    """Smooth in the memory of this worker until enough steps are taken; store the last two."""
    graph, found = GraphInMemory(task), list(lengths)
    with worker_state().matrices.use(2, (task.graph.nodes, task.columns)) as (latest, earlier):
        assert task.operand is not None
        graph.read(task.operand, latest)
        for _ in range(times):
            graph.multiply(task, latest, earlier)
            latest, earlier = earlier, latest
            found.append(mean_length(task.graph, _totals(task.graph, latest)))
            if steps_after(found, task.spec.smoothing, share) is not None:
                break
        graph.write(task.out, latest)
        graph.write(Columns(before), earlier)
        size = latest.nbytes
    return {
        "lengths": found[len(lengths) :],
        "read_bytes": graph.edge_bytes + size,
        "written_bytes": 2 * size,
    }


def _totals(graph: Graph, matrix: Floats) -> list[list[float]]:
    totals = np.zeros((graph.blocks, matrix.shape[1]))
    for block in range(graph.blocks):
        begin, end = graph.block_range(block)
        add_rows(matrix[begin:end], totals[block])
    return totals.tolist()


def _store_stage(setup: Setup, arrays: Arrays) -> Stage:
    """The embedding and the basis, with whole rows in a chunk."""
    targets = (setup.folder / "embedding", setup.folder / "basis")
    pairs = tuple(
        (source.path, target)
        for source, target in zip(arrays, targets, strict=True)
        if source is not None
    )
    writes = tuple(setup.rows_array(target) for _, target in pairs)
    return _rows_stage("embedding", RowsTask(setup, pairs), writes, tuple(s for s, _ in pairs))


@dataclass(frozen=True)
class RowsTask:
    """Parameters shared by all row blocks: matrices that are copied, and normalised or not."""

    setup: Setup
    pairs: tuple[tuple[Path, Path], ...]
    normalises: bool = False


def copy_block(task: RowsTask, block: int) -> Stats:
    """Copy the rows of a row block; the sum of those that were normalised."""
    setup = task.setup
    start, stop = setup.graph.block_range(block)
    height, written = setup.geometry.chunk_rows, 0
    total = np.zeros(setup.spec.dim)
    for source, target in task.pairs:
        chunks = chunks_of_rows(open_matrix(source), start, stop, height)

        def copied(_: int, out: Floats, chunks: Iterator[Floats] = chunks) -> None:
            np.copyto(out, next(chunks))
            if task.normalises:
                scale_to_unit(out)
                add_rows(out, total)

        written += write_pieces([target], start, stop, height, copied)
    return {"read_bytes": written, "written_bytes": written, "total": total.tolist()}


def _rows_stage(
    name: str,
    task: RowsTask,
    writes: tuple[ArraySpec, ...],
    frees: tuple[Path, ...],
    *,
    step: int | None = None,
    needed: bool = True,
) -> Stage:
    setup, dim = task.setup, task.setup.spec.dim
    tall = min(max(array.chunks[0] for array in writes), setup.graph.nodes)
    moved = 4 * setup.graph.nodes * dim * len(writes)
    return Stage(
        name,
        copy_block,
        numbered(task, setup.graph.blocks) if needed else (),
        Memory(task_bytes=4 * dim * (3 * setup.chunk_rows + 3 * tall)),
        reads=tuple(source for source, _ in task.pairs),
        writes=writes,
        frees=frees,
        step=step,
        cost=Cost(
            read_bytes=moved,
            written_bytes=moved,
            work={
                "copy": setup.copied_bytes(dim, setup.narrow) + moved,
                "chunks": setup.chunk_count(2 * dim, setup.narrow),
            },
        ),
        expected={"total": [0.0]},
    )
