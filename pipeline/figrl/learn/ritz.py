"""The Ritz step: ``U^t L U`` gives signed eigenvalues and the rotation of U to Ritz vectors.

The same sums give the certificate, see `figrl.learn.certificate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from figrl.engine.reduce import Partials, reduce_stages
from figrl.engine.stage import Block, Cost, Memory, Stage, Stages, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn import certificate
from figrl.learn.factor import fix_signs
from figrl.learn.kernels import accumulate
from figrl.learn.operand import ProductTask, read_nodes
from figrl.learn.product import product_stage
from figrl.learn.rows import chunks_of_rows
from figrl.learn.setup import Setup
from figrl.learn.sketch import Powers, TransformTask, transform_stage
from figrl.store.files import save_array
from figrl.store.graph import ROW_GROUP_EDGES
from figrl.store.matrix import Floats, open_matrix


@dataclass(frozen=True)
class RitzTask:
    """Parameters shared by all groups of rows.

    `left` is ``[U, P]``, where P are the probes, and `product` is L times it.
    """

    setup: Setup
    left: Path
    product: Path
    partials: Partials


def ritz_stages(setup: Setup, powers: Powers) -> Stages[dict[str, Any]]:
    """Write U, multiply it by L once more, and rotate it to Ritz vectors; the certificate."""
    spec, graph, work = setup.spec, setup.graph, setup.work
    columns = spec.dim + setup.probes
    partials = Partials(work / "ritz", count=setup.groups)
    task = RitzTask(setup, work / "left", work / "ritz-product", partials)
    transform = TransformTask(setup, powers.last, task.left, setup.folder / "factor")
    shape = (setup.columns, columns)
    yield transform_stage(transform, "ritz-left", None, setup.narrow, shape)
    product = ProductTask(setup, setup.narrow, task.left, task.product, columns)
    written = setup.slices_array(task.product, columns, setup.narrow)
    yield product_stage(product, "ritz-product", None, (written,))
    normed = yield _norm_stage(task)
    square_norm = math.fsum(normed.stats[key]["square"] for key in sorted(normed.stats))
    yield _sums_stage(task, columns)
    left = yield from reduce_stages("ritz", task.partials, size_bytes=16 * columns * columns)
    solving = (task, left, square_norm, spec.dim, spec.power_iterations + 1)
    solved = yield Stage(
        "ritz-solve",
        solve_ritz,
        [Block("all", solving)],
        Memory(task_bytes=12 * 8 * columns * columns),
        expected={"captured": 0.5, "square_norm": 1.0, "cost_bound": None},
    )
    found = solved.only
    share = found["captured"] / found["square_norm"] if found["square_norm"] else 1.0
    facts = {**found, "share_captured": share, "exact_cost": None}
    # A small graph is also decomposed exactly.
    small = graph.nodes <= certificate.EXACT_NODES
    exact = yield Stage(
        "ritz-exact",
        certificate.exact_cost,
        [Block("all", (graph, spec.regularization, found["captured"], spec.dim))] if small else (),
        Memory(task_bytes=4 * 8 * graph.nodes * graph.nodes if small else 0),
        reads=(graph.path,),
        expected={"exact_cost": 0.0},
    )
    facts |= exact.only if small else {}
    return {**facts, "meaning": certificate.certificate_sentence(facts, spec.dim)}


def _norm_stage(task: RitzTask) -> Stage:
    graph, held = task.setup.graph, task.setup.narrow.operand_rows
    whole = held >= graph.nodes
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    block_bytes = 80 * min(graph.block_rows, graph.nodes) + 56 * entries
    operand_bytes = 4 * min(held, graph.nodes)
    return Stage(
        "ritz-norm",
        norm_block,
        numbered(task, graph.blocks),
        Memory(operand_bytes if whole else 0, block_bytes + (0 if whole else operand_bytes)),
        reads=(graph.path,),
        cost=Cost(
            read_bytes=8 * graph.edges, work={"entries": 2 * graph.edges, "rows": 2 * graph.edges}
        ),
        expected={"square": 1.0},
    )


def _sums_stage(task: RitzTask, columns: int) -> Stage:
    setup, nodes = task.setup, task.setup.graph.nodes
    held = 4 * 3 * setup.chunk_rows * columns + 8 * 3 * columns * columns
    return Stage(
        "ritz",
        sum_group,
        numbered(task, setup.groups),
        Memory(task_bytes=held),
        reads=(task.left, task.product),
        cost=Cost(
            read_bytes=8 * nodes * columns,
            written_bytes=16 * setup.groups * columns * columns,
            flops=4 * nodes * columns * columns,
            work={
                "gram": 2 * nodes * columns * columns,
                "gram_entries": 2 * nodes * columns,
                "copy": 2 * setup.copied_bytes(columns, setup.narrow),
                "chunks": 2 * setup.chunk_count(columns, setup.narrow),
            },
        ),
    )


def sum_group(task: RitzTask, group: int) -> Stats:
    """``X^t (L X)`` and ``(L X)^t (L X)`` over a group of rows, for ``X = [U, P]``."""
    left, product = open_matrix(task.left), open_matrix(task.product)
    rows, columns = left.shape
    chunk_rows, group_rows = task.setup.geometry.chunk_rows, task.setup.geometry.group_rows
    start = group * group_rows
    stop = min(start + group_rows, rows)
    sums = np.zeros((2, columns, columns))
    square = worker_state().buffer("square", (columns, columns))
    own = np.empty((min(chunk_rows, stop - start), columns), np.float32)
    for number, moved in enumerate(chunks_of_rows(product, start, stop, chunk_rows)):
        here = own[: moved.shape[0]]
        left.read((start + number * chunk_rows, 0), here)
        sums[0] += np.matmul(here.T, moved, out=square)
        sums[1] += np.matmul(moved.T, moved, out=square)
    task.partials.save(group, sums)
    return {"read_bytes": 8 * (stop - start) * columns, "written_bytes": sums.nbytes}


def norm_block(task: RitzTask, block: int) -> Stats:
    """Sum of the squares of L's entries in a row block."""
    graph, rows = task.setup.graph, task.setup.narrow.operand_rows
    start, stop = graph.block_range(block)
    sums = np.zeros((stop - start, 1), np.float32)

    def fill(part: int, operand: Floats) -> None:
        begin, end = graph.block_range(part)
        operand[begin:end, 0] = _inverse_degrees(task, begin, end)

    if rows >= graph.nodes:
        key = ("inverse degrees", graph.path, task.setup.spec.regularization)
        with worker_state().operand.use(key, (graph.nodes, 1), graph.blocks, fill) as operand:
            _add_squares(task, block, operand, 0, sums)
    else:
        for begin in range(0, graph.nodes, rows):
            end = min(begin + rows, graph.nodes)
            operand = worker_state().buffer("operand", (end - begin, 1))
            for low in range(begin, end, graph.block_rows):
                high = min(low + graph.block_rows, end)
                operand[low - begin : high - begin, 0] = _inverse_degrees(task, low, high)
            _add_squares(task, block, operand, begin, sums)
    own = _inverse_degrees(task, start, stop).astype(np.float64)
    return {
        "square": float(np.dot(own, sums[:, 0].astype(np.float64))),
        "read_bytes": graph.edge_bytes(block),
        "written_bytes": 0,
    }


def _inverse_degrees(task: RitzTask, start: int, stop: int) -> npt.NDArray[np.float32]:
    scale = read_nodes(task.setup.graph, start, stop, task.setup.spec.regularization).scale
    return (scale**2).astype(np.float32)


def _add_squares(task: RitzTask, block: int, operand: Floats, first: int, sums: Floats) -> None:
    start, _ = task.setup.graph.block_range(block)
    for rows, columns, weights in task.setup.graph.row_groups(block):
        squares = None if weights is None else weights**2
        accumulate(rows, columns, squares, operand, sums, first_row=start, first_column=first)


def solve_ritz(
    task: RitzTask, partials: Partials, square_norm: float, dim: int, power: int
) -> Stats:
    """Rotate U to Ritz vectors, and measure how good they are."""
    total = partials.combined()
    inner, moved = total[0], total[1]
    own = inner[:dim, :dim]
    values, vectors = scipy.linalg.eigh((own + own.T) / 2, check_finite=False)
    order = np.argsort(-np.abs(values), kind="stable")
    values, rotation = values[order], np.ascontiguousarray(vectors[:, order])
    fix_signs(rotation)
    save_array(task.setup.folder / "ritz" / "rotation.npy", rotation)
    save_array(task.setup.folder / "ritz" / "values.npy", values)
    moved_squares = np.einsum("ij,ik,kj->j", rotation, moved[:dim, :dim], rotation)
    residuals = np.sqrt(np.maximum(moved_squares - values**2, 0.0))
    of_probes = np.diag(moved)[dim:]
    outside = np.maximum(of_probes - (inner[:dim, dim:] ** 2).sum(axis=0), 0.0)
    # What is left of a difference is at least its rounding.
    outside += certificate.ROUNDING * of_probes
    largest = math.sqrt(float(outside.max(initial=0.0)) * task.setup.columns)
    captured = float(np.trace(moved[:dim, :dim]))
    return {
        "eigenvalues": [float(value) for value in values],
        "residuals": [float(value) for value in residuals],
        "square_norm": square_norm,
        "captured": captured,
        "cost_bound": certificate.cost_bound(
            moved[:dim, :dim], values, residuals, square_norm, largest_probe=largest, power=power
        ),
    }
