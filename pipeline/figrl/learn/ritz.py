"""Rayleigh-Ritz: eigenvalues and eigenvectors of L in the space that the sketch spans.

    G = X^t X,  X = [K_1 ... K_(s+1)]        L K_1 = K_2        L K_i = (K_(i+1) + K_(i-1)) / 2

so ``M^t M``, ``M^t L M`` and ``(L M)^t (L M)`` are all made of blocks of G. The first is whitened,
without its directions that are only rounding, the second decomposed: ``U = M C``. The third gives
the residuals.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.linalg

from figrl.engine.reduce import Partials
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats
from figrl.learn.certificate import make_certificate, norm_stage
from figrl.learn.factor import Method, reduced_stages, solve_cost
from figrl.learn.setup import Setup
from figrl.learn.singular import Matrix, fix_signs
from figrl.learn.spec import EmbedSpec, Representation
from figrl.store.files import load_array, save_array

_DROPPED: dict[Method, float] = {"gram": 1e-7, "gram-double": 1e-9}
"""Share of the largest eigenvalue of ``M^t M`` below which a direction is rounding."""

_DOUBLE_FLOPS = 20_000_000_000
"""Up to this cost the Gram matrix is summed up in float64; on larger graphs the rounding of float32
evens out over the rows."""

WALK_STEPS = 5
"""Steps of the walk whose spectrum weighs the dimensions of the unit representation."""

Values = npt.NDArray[np.float64]


def walk_filter(values: Values) -> Values:
    """``(lambda + ... + lambda^5) / 5``: positive eigenvalues first, negative ones hardly count."""
    return np.asarray(sum(values**power for power in range(1, WALK_STEPS + 1)) / WALK_STEPS)


def ritz_stages(setup: Setup) -> Stages[Stats]:
    """Sum up the Gram matrix and decompose L; returns ``rank`` and ``certificate``."""
    cheap = setup.graph.nodes * setup.columns**2 <= _DOUBLE_FLOPS
    method: Method = "gram-double" if cheap else "gram"
    _, left = yield from reduced_stages(setup, "factor", method)
    solved = yield Stage(
        "factor-solve",
        solve_ritz,
        [Block("all", (setup, left, _DROPPED[method]))],
        Memory(task_bytes=9 * 8 * setup.columns**2),
        cost=solve_cost(setup),
        expected={"rank": setup.spec.directions, "eigenvalues": [0.0], "residuals": [0.0]},
    )
    normed = yield norm_stage(setup)
    square_norm = math.fsum(normed.stats[key]["square"] for key in sorted(normed.stats))
    certificate = make_certificate(
        solved.only, square_norm, setup.spec.directions, setup.spec.depth
    )
    return {"rank": solved.only["rank"], "certificate": certificate}


def solve_ritz(setup: Setup, partials: Partials, dropped: float) -> Stats:
    """Find the eigenvalues, and the coefficients C of the eigenvectors; store both."""
    spec = setup.spec
    # Only the upper triangle is summed up in float64.
    gram = np.triu(partials.combined())
    gram += np.triu(gram, 1).T
    values, coefficients, residuals = decompose(gram, spec.width, spec.depth, dropped)
    order = _order(values, spec.representation)[: spec.directions]
    values, residuals = values[order], residuals[order]
    coefficients = np.ascontiguousarray(coefficients[:, order])
    fix_signs(coefficients)
    # Where the space has fewer directions than the vectors have dimensions, the rest is zero; so is
    # the dimension of prominence until the end.
    missing, unknown = spec.dim - order.size, spec.directions - order.size
    save_array(_folder(setup) / "values.npy", np.pad(values, (0, missing)))
    save_array(_folder(setup) / "coefficients.npy", np.pad(coefficients, ((0, 0), (0, missing))))
    return {
        "rank": int(order.size),
        "eigenvalues": np.pad(values, (0, unknown)).tolist(),
        "residuals": np.pad(residuals, (0, unknown)).tolist(),
    }


def decompose(
    gram: Matrix, width: int, depth: int, dropped: float
) -> tuple[Values, Matrix, Values]:
    """Eigenvalues of L in the space of M, coefficients of its eigenvectors, and residuals.

    Directions of M whose share of the strongest one is below `dropped` are left out.
    """
    size = width * depth
    moved = _times_matrix(gram, width, depth)
    squares, vectors = scipy.linalg.eigh(gram[:size, :size], check_finite=False)
    kept = squares > dropped * max(squares[-1], 0.0)
    whitened = vectors[:, kept] / np.sqrt(squares[kept])
    inner = whitened.T @ moved[:size] @ whitened
    values, rotation = scipy.linalg.eigh((inner + inner.T) / 2, check_finite=False)
    coefficients = whitened @ rotation
    twice = _times_matrix(moved.T, width, depth)
    lengths = np.einsum("ij,ij->j", coefficients, twice @ coefficients)
    return values, coefficients, np.sqrt(np.maximum(lengths - values**2, 0.0))


def _times_matrix(inner: Matrix, width: int, depth: int) -> Matrix:
    """Inner products with the columns of ``L M``, from those with the columns of X."""
    columns = [inner[:, i * width : (i + 1) * width] for i in range(depth + 1)]
    inside = [(columns[i + 1] + columns[i - 1]) / 2 for i in range(1, depth)]
    return np.hstack([columns[1], *inside])


def _order(values: Values, representation: Representation) -> npt.NDArray[np.int64]:
    """Eigenvalues that become dimensions, in their order."""
    if representation == "degree":
        return np.argsort(-np.abs(values), kind="stable")
    order = np.argsort(-walk_filter(values), kind="stable")
    return order[values[order] > 0] if representation == "product" else order


def ritz_matrices(setup: Setup) -> tuple[Matrix, Matrix]:
    """Matrices that give vectors and basis, both with the weights of the dimensions.

    ``[K_1 ... K_(s+1)]`` times the first are the vectors, but for the scale of each row;
    ``[R / sqrt(b), K_1 ... K_(s-1)]`` times the second is the basis B with ``U = L B``:
    ``B = sum of T_(i-1) C_i``, ``T_0 = R / sqrt(b)``, ``T_1 = K_1``, ``T_i = 2 K_i - T_(i-2)``.
    """
    width, depth = setup.spec.width, setup.spec.depth
    coefficients = load_array(_folder(setup) / "coefficients.npy")
    coefficients = coefficients * _weights(setup.spec, load_array(_folder(setup) / "values.npy"))
    to_vectors = np.pad(coefficients, ((0, width), (0, 0)))
    blocks = np.array(coefficients.reshape(depth, width, -1))
    for i in range(depth - 1, 1, -1):
        blocks[i - 2] -= blocks[i]
        blocks[i] *= 2
    return to_vectors, blocks.reshape(depth * width, -1)


def _weights(spec: EmbedSpec, values: Values) -> Values:
    """Weight of each dimension."""
    if spec.representation == "unit":
        return walk_filter(values)
    return np.sqrt(np.abs(values)) if spec.representation == "product" else np.ones(values.size)


def _folder(setup: Setup) -> Path:
    return setup.folder / "ritz"
