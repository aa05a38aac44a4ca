"""The certificate: how close the vectors are to the best possible ones.

It bounds what a perfect decomposition could do better, by what was measured:

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
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from figrl.engine.stage import Stats
from figrl.learn.factor import Matrix
from figrl.learn.operand import read_nodes
from figrl.store.graph import Graph

_PROBE_CHANCE = 0.5
"""c above: with 16 probes the bound fails once in five million runs."""

ROUNDING = 1e-5
"""Of squares summed up from products in float32, of columns that are orthonormal to about that."""

EXACT_NODES = 1500
"""Graphs up to this size are also decomposed exactly, in a fraction of a second."""


def cost_bound(
    moved: Matrix,
    values: npt.NDArray[np.float64],
    residuals: npt.NDArray[np.float64],
    square_norm: float,
    *,
    largest_probe: float,
    power: int,
) -> float | None:
    """Most that the projection cost can lie above the least possible, relative to that.

    `moved` is ``A = U^t L^2 U``, `residuals` are the lengths of ``L u - lambda u``, `square_norm`
    is ``||L||_F^2`` and `largest_probe` the largest length of a probe outside of U after
    ``L^(2 power)``. None where nothing can be said: the probes allow that all of L is in k other
    dimensions.
    """
    # No eigenvalue of L is larger than 1, so none of its square is.
    delta = 1.0
    if largest_probe > 0:
        delta = min(1.0, (largest_probe / _PROBE_CHANCE) ** (1 / power))
    squares = residuals**2 + ROUNDING * values**2
    between = (
        math.sqrt(float((squares * values**2).sum())) + math.sqrt(delta * float(squares.sum()))
    ) ** 2
    inside = np.maximum(scipy.linalg.eigvalsh(moved, check_finite=False), 0.0)
    gammas = np.geomspace(1e-9, 2.0, 200)
    excess = between / gammas + np.maximum(delta + gammas[:, None] - inside, 0.0).sum(axis=1)
    gain = min(float(excess.min()), delta * inside.size)
    cost = square_norm - float(np.trace(moved))
    gain += ROUNDING * square_norm
    return gain / (cost - gain) if cost > gain else None


def exact_cost(graph: Graph, regularization: float, captured: float, dim: int) -> Stats:
    """Relative projection cost by a dense decomposition; for graphs that are small."""
    matrix = np.zeros((graph.nodes, graph.nodes))
    scale = read_nodes(graph, 0, graph.nodes, regularization).scale
    for block in range(graph.blocks):
        for rows, columns, weights in graph.row_groups(block):
            matrix[rows, columns] = 1.0 if weights is None else weights
    matrix *= scale[:, None] * scale[None, :]
    squares = np.sort(scipy.linalg.eigvalsh(matrix, check_finite=False) ** 2)[::-1]
    least, cost = float(squares[dim:].sum()), float(squares.sum()) - captured
    # A graph of no more than k directions has nothing left to compare with.
    compared = least > 1e-9 * squares.sum()
    return {"exact_cost": max(cost - least, 0.0) / least if compared else 0.0}


def certificate_sentence(certificate: dict[str, Any], dim: int) -> str:
    """A sentence that says what a certificate means."""
    text = f"{dim} dimensions hold {certificate['share_captured']:.1%} of the graph's matrix"
    bound, exact = certificate["cost_bound"], certificate["exact_cost"]
    if exact is not None:
        return text + f"; what they leave is {exact:.2%} more than the best {dim} would leave."
    if bound is None:
        return text + ". How near that is to the best is not known: raise --power-iterations."
    return text + f"; what they leave is at most {bound:.2%} more than the best {dim} would leave."
