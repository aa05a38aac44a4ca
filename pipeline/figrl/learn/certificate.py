"""The certificate: what share of the graph's matrix the dimensions hold, and how exact they are.

    captured = ||L U||_F^2   share = captured / ||L||_F^2   residual r_j = ||L u_j - lambda_j u_j||

L is symmetric, so it has an eigenvalue within r_j of every lambda_j, whatever the sketch missed.
All of it follows from the Gram matrix of the products; only ``||L||_F`` takes a look at the edges.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Cost, Memory, Stage, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.learn.kernels import accumulate
from figrl.learn.operand import read_nodes
from figrl.learn.setup import Setup
from figrl.store.graph import ROW_GROUP_EDGES
from figrl.store.matrix import Floats


def norm_stage(setup: Setup) -> Stage:
    """``||L||_F^2``, in parts of it that are summed up by the caller."""
    graph, held = setup.graph, _held_rows(setup)
    whole = held >= graph.nodes
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    block_bytes = 80 * min(graph.block_rows, graph.nodes) + 56 * entries
    operand_bytes, passes = 4 * held, math.ceil(graph.nodes / held)
    edge_bytes = setup.edge_bytes or 8 * graph.edges
    return Stage(
        "norm",
        norm_block,
        numbered(setup, graph.blocks),
        Memory(operand_bytes if whole else 0, block_bytes + (0 if whole else operand_bytes)),
        reads=(graph.path,),
        cost=Cost(
            read_bytes=passes * edge_bytes,
            work={"entries": passes * 2 * graph.edges, "rows": 2 * graph.edges},
        ),
        expected={"square": 1.0},
    )


def _held_rows(setup: Setup) -> int:
    """Rows of the only column that take no more memory than the operand of a product.

    All threads share the whole column; of parts each has its own.
    """
    room = setup.wide.operand_rows * setup.wide.slice_columns
    nodes = setup.graph.nodes
    return nodes if room >= nodes else max(room // setup.threads, 1)


def norm_block(setup: Setup, block: int) -> Stats:
    """Sum of the squares of L's entries in a row block."""
    graph, rows = setup.graph, _held_rows(setup)
    start, stop = graph.block_range(block)
    sums = np.zeros((stop - start, 1), np.float32)

    def fill(part: int, operand: Floats) -> None:
        begin, end = graph.block_range(part)
        operand[begin:end, 0] = _inverse_degrees(setup, begin, end)

    if rows >= graph.nodes:
        key = ("inverse degrees", graph.path, setup.spec.regularization)
        with worker_state().operand.use(key, (graph.nodes, 1), graph.blocks, fill) as operand:
            _add_squares(setup, block, operand, 0, sums)
    else:
        for begin in range(0, graph.nodes, rows):
            end = min(begin + rows, graph.nodes)
            operand = worker_state().buffer("operand", (end - begin, 1))
            for low in range(begin, end, graph.block_rows):
                high = min(low + graph.block_rows, end)
                operand[low - begin : high - begin, 0] = _inverse_degrees(setup, low, high)
            _add_squares(setup, block, operand, begin, sums)
    own = _inverse_degrees(setup, start, stop).astype(np.float64)
    return {
        "square": float(np.dot(own, sums[:, 0].astype(np.float64))),
        "read_bytes": math.ceil(graph.nodes / rows) * graph.edge_bytes(block),
        "written_bytes": 0,
    }


def _inverse_degrees(setup: Setup, start: int, stop: int) -> npt.NDArray[np.float32]:
    scale = read_nodes(setup.graph, start, stop, setup.spec.regularization).scale
    return (scale**2).astype(np.float32)


def _add_squares(setup: Setup, block: int, operand: Floats, first: int, sums: Floats) -> None:
    start, _ = setup.graph.block_range(block)
    for rows, columns, weights in setup.graph.row_groups(block):
        squares = None if weights is None else weights**2
        accumulate(rows, columns, squares, operand, sums, first_row=start, first_column=first)


Grade = Literal["good", "usual", "poor"]

_GOOD, _USUAL = 0.03, 0.20
"""Shares of ``||L U||_F^2`` outside the span of U; docs/quality.md says where they come from."""

_DEEP = 8
"""Depth of the default, to which shallower sketches are advised."""


def judge(outside: float, depth: int) -> tuple[Grade, str]:
    """Grade of a run and what to change, by the share of ``||L U||_F^2`` outside the span of U."""
    remedy = f"a depth of {_DEEP if depth < _DEEP else 2 * depth} in place of {depth}"
    if outside <= _GOOD:
        return "good", "Good: the dimensions are close to exact eigenvectors."
    if outside <= _USUAL:
        text = f"Usual for a quick sketch: the dimensions are approximate; {remedy} is more exact."
        return "usual", text
    return "poor", f"Poor: the sketch is too shallow for so many dimensions. Take {remedy}."


def make_certificate(found: Stats, square_norm: float, dim: int, depth: int) -> dict[str, Any]:
    """What the manifest says of the accuracy, from the eigenvalues and residuals of the factor."""
    values, residuals = np.array(found["eigenvalues"]), np.array(found["residuals"])
    captured = float((values**2 + residuals**2).sum())
    share = min(captured / square_norm, 1.0) if square_norm else 1.0
    largest, median = float(residuals.max(initial=0.0)), float(np.median(residuals))
    outside = float((residuals**2).sum()) / captured if captured else 0.0
    grade, judgement = judge(outside, depth)
    return {
        "grade": grade,
        "share_outside": outside,
        "eigenvalues": found["eigenvalues"],
        "residuals": found["residuals"],
        "largest_residual": largest,
        "square_norm": square_norm,
        "captured": captured,
        "share_captured": share,
        "meaning": (
            f"{judgement} {dim} dimensions hold {share:.1%} of the graph's matrix; their "
            "eigenvalues are right "
            f"to within {largest:.2g}, half of them to within {median:.2g}."
        ),
    }
