"""The Ritz step, and the certificate: how near the vectors are to the best there are.

``U^t L U`` gives signed eigenvalues and the rotation of U to Ritz vectors. The certificate bounds
what a perfect decomposition could do better, by what was measured:

    captured = ||L U||_F^2     cost = ||L||_F^2 - captured     best: the least cost of k dimensions

With ``A = U^t L^2 U`` (eigenvalues a_j), ``B`` the part of ``L^2`` between U and the rest, and
delta at least the largest eigenvalue of ``L^2`` on the rest, for every gamma > 0

    cost - best  <=  ||B||_F^2 / gamma + sum over j of max(delta + gamma - a_j, 0)

because ``[[A, B], [B^t, D]] <= [[A + B B^t / gamma, 0], [0, D + gamma]]``. Delta comes from
*probes*, normal columns that went through all products but had no part in U: with ``p = q + 1``,
``delta^p <= ||(I - U U^t) L^(2p) omega|| / c`` for at least one of the probes, but for a
probability of ``(2 Phi(c) - 1)^probes``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from pipeline.blocks import Stats
from pipeline.files import load_array, save_array
from pipeline.graph import Graph
from pipeline.learn.buffers import shared_operand, thread_buffer
from pipeline.learn.factor import Matrix, fix_signs
from pipeline.learn.kernels import accumulate
from pipeline.learn.rows import chunks_of_rows
from pipeline.learn.sketch import read_nodes
from pipeline.tiles import Floats, open_tiles

_PROBE_CHANCE = 0.5
"""c above: with 16 probes the bound fails once in five million runs."""

_ROUNDING = 1e-5
"""Of squares summed up from products in float32, of columns that are orthonormal to about that."""

EXACT_NODES = 1500
"""Graphs up to this size are also decomposed exactly, in a fraction of a second."""


@dataclass(frozen=True)
class RitzTask:
    """What every group of rows has to know.

    Attributes
    ----------
    graph : Graph
    left, product : Path
        ``[U, P]``, where P are the probes, and L times it.
    work, folder : Path
        Folders of the partial sums, and of the result.
    chunk_rows, group_rows : int
    operand_rows : int
        Rows of ``(D + tau)^-1`` held at a time for the norm of L.
    regularization : float
    sketch_columns : int
        Columns of the sketch, by the root of which R and its probes were divided.
    """

    graph: Graph
    left: Path
    product: Path
    work: Path
    folder: Path
    chunk_rows: int
    group_rows: int
    operand_rows: int
    regularization: float
    sketch_columns: int

    def partial(self, group: int) -> Path:
        """Where the sums of a group lie."""
        return self.work / f"sums-{group:06d}.npy"


def sum_group(task: RitzTask, group: int) -> Stats:
    """``X^t (L X)`` and ``(L X)^t (L X)`` over a group of rows, for ``X = [U, P]``."""
    left, product = open_tiles(task.left), open_tiles(task.product)
    rows, columns = left.shape
    start = group * task.group_rows
    stop = min(start + task.group_rows, rows)
    sums = np.zeros((2, columns, columns))
    square = thread_buffer("square", (columns, columns))
    own = np.empty((min(task.chunk_rows, stop - start), columns), np.float32)
    for number, moved in enumerate(chunks_of_rows(product, start, stop, task.chunk_rows)):
        here = own[: moved.shape[0]]
        left.read((start + number * task.chunk_rows, 0), here)
        sums[0] += np.matmul(here.T, moved, out=square)
        sums[1] += np.matmul(moved.T, moved, out=square)
    save_array(task.partial(group), sums)
    return {"read_bytes": 8 * (stop - start) * columns, "written_bytes": sums.nbytes}


def norm_block(task: RitzTask, block: int) -> Stats:
    """Sum of the squares of L's entries in a row block."""
    graph = task.graph
    start, stop = graph.block_range(block)
    sums = np.zeros((stop - start, 1), np.float32)

    def fill(part: int, operand: Floats) -> None:
        begin, end = graph.block_range(part)
        operand[begin:end, 0] = _inverse_degrees(task, begin, end)

    if task.operand_rows >= graph.nodes:
        key = ("inverse degrees", graph.path, task.regularization)
        with shared_operand.use(key, (graph.nodes, 1), graph.blocks, fill) as operand:
            _add_squares(task, block, operand, 0, sums)
    else:
        for begin in range(0, graph.nodes, task.operand_rows):
            end = min(begin + task.operand_rows, graph.nodes)
            operand = thread_buffer("operand", (end - begin, 1))
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
    scale = read_nodes(task.graph, start, stop, task.regularization).scale
    return (scale**2).astype(np.float32)


def _add_squares(task: RitzTask, block: int, operand: Floats, first: int, sums: Floats) -> None:
    start, _ = task.graph.block_range(block)
    for rows, columns, weights in task.graph.edge_runs(block):
        squares = None if weights is None else weights**2
        accumulate(rows, columns, squares, operand, sums, first_row=start, first_column=first)


def solve_ritz(task: RitzTask, groups: int, square_norm: float, dim: int, power: int) -> Stats:
    """Rotate U to Ritz vectors, and write down how good they are."""
    total = sum((load_array(task.partial(g)) for g in range(groups)), np.zeros(()))
    inner, moved = total[0], total[1]
    values, rotation = ritz_rotation(inner[:dim, :dim])
    save_array(task.folder / "rotation.npy", rotation)
    save_array(task.folder / "values.npy", values)
    moved_squares = np.einsum("ij,ik,kj->j", rotation, moved[:dim, :dim], rotation)
    residuals = np.sqrt(np.maximum(moved_squares - values**2, 0.0))
    of_probes = np.diag(moved)[dim:]
    outside = np.maximum(of_probes - (inner[:dim, dim:] ** 2).sum(axis=0), 0.0)
    # What is left of a difference is at least its rounding.
    outside += _ROUNDING * of_probes
    largest = math.sqrt(float(outside.max(initial=0.0)) * task.sketch_columns)
    captured = float(np.trace(moved[:dim, :dim]))
    return {
        "eigenvalues": [float(value) for value in values],
        "residuals": [float(value) for value in residuals],
        "square_norm": square_norm,
        "captured": captured,
        "cost_bound": cost_bound(
            moved[:dim, :dim], values, residuals, square_norm, largest_probe=largest, power=power
        ),
    }


def ritz_rotation(inner: Matrix) -> tuple[npt.NDArray[np.float64], Matrix]:
    """Eigenvalues by size, largest first, and the rotation to their vectors, signs fixed."""
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2, check_finite=False)
    order = np.argsort(-np.abs(values), kind="stable")
    rotation = np.ascontiguousarray(vectors[:, order])
    fix_signs(rotation)
    return values[order], rotation


def cost_bound(
    moved: Matrix,
    values: npt.NDArray[np.float64],
    residuals: npt.NDArray[np.float64],
    square_norm: float,
    *,
    largest_probe: float,
    power: int,
) -> float | None:
    """Most that the projection cost can lie above the least there is, relative to that.

    Parameters
    ----------
    moved : float64 array, k x k
        ``A = U^t L^2 U``.
    values, residuals : float64 arrays, shape (k,)
        Ritz values, and the lengths of ``L u - lambda u``.
    square_norm : float
        ``||L||_F^2``.
    largest_probe : float
        Largest length of a probe outside of U, after ``L^(2 power)``.
    power : int

    Returns
    -------
    float or None
        None where nothing can be said: the probes allow that all of L is in k other dimensions.
    """
    # No eigenvalue of L is larger than 1, so none of its square is.
    delta = 1.0
    if largest_probe > 0:
        delta = min(1.0, (largest_probe / _PROBE_CHANCE) ** (1 / power))
    squares = residuals**2 + _ROUNDING * values**2
    between = (
        math.sqrt(float((squares * values**2).sum())) + math.sqrt(delta * float(squares.sum()))
    ) ** 2
    inside = np.maximum(scipy.linalg.eigvalsh(moved, check_finite=False), 0.0)
    gammas = np.geomspace(1e-9, 2.0, 200)
    excess = between / gammas + np.maximum(delta + gammas[:, None] - inside, 0.0).sum(axis=1)
    gain = min(float(excess.min()), delta * inside.size)
    cost = square_norm - float(np.trace(moved))
    gain += _ROUNDING * square_norm
    return gain / (cost - gain) if cost > gain else None


def exact_cost(task: RitzTask, captured: float, dim: int) -> Stats:
    """Relative projection cost by a dense decomposition; for graphs that are small."""
    graph = task.graph
    matrix = np.zeros((graph.nodes, graph.nodes))
    scale = read_nodes(graph, 0, graph.nodes, task.regularization).scale
    for block in range(graph.blocks):
        for rows, columns, weights in graph.edge_runs(block):
            matrix[rows, columns] = 1.0 if weights is None else weights
    matrix *= scale[:, None] * scale[None, :]
    squares = np.sort(scipy.linalg.eigvalsh(matrix, check_finite=False) ** 2)[::-1]
    least, cost = float(squares[dim:].sum()), float(squares.sum()) - captured
    # A graph of no more than k directions has nothing left to compare with.
    compared = least > 1e-9 * squares.sum()
    return {"exact_cost": max(cost - least, 0.0) / least if compared else 0.0}


def certificate_sentence(certificate: dict[str, Any], dim: int) -> str:
    """Say in words what a certificate means."""
    text = f"{dim} dimensions hold {certificate['share_captured']:.1%} of the graph's matrix"
    bound, exact = certificate["cost_bound"], certificate["exact_cost"]
    if exact is not None:
        return text + f"; what they leave is {exact:.2%} more than the best {dim} would leave."
    if bound is None:
        return text + ". How near that is to the best is not known: raise --power-iterations."
    return text + f"; what they leave is at most {bound:.2%} more than the best {dim} would leave."
