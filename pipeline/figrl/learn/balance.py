"""Dimensions of more even weight: ``H = (I - c v v^t) G^(-e/2)``.

G is the Gram matrix of vectors of length 1, and v its strongest direction, the mean that all nodes
have in common. Multiplied by H, vectors use their dimensions more evenly: clusters of a large graph
become easier to tell apart, and a regularised classifier sees more of them. On dense graphs the
common mean hides all else, and most of it is taken out; on sparse ones nothing of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figrl.engine.reduce import Partials
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats
from figrl.learn.factor import reduced_stages
from figrl.learn.setup import Setup
from figrl.learn.singular import Matrix
from figrl.store.arrays import ArraySpec
from figrl.store.files import load_array, save_array
from figrl.store.matrix import Floats

_EVENNESS = 0.35
"""The exponent e: 0 leaves the dimensions as they are, 1 gives all directions the same weight."""

_SPARSE, _SLOPE = 0.25, 2.4
"""The share c of the mean that is taken out grows with the weight of the vectors before smoothing,
which tells how dense a graph is, from the first on."""

_WEAKEST = 1e-6
"""Directions below this share of the strongest are not made stronger any further."""


def balance_stages(setup: Setup, vectors: ArraySpec, local: float) -> Stages[None]:
    """Sum up the Gram matrix of the rows of a matrix, brought to length 1, and store H.

    `local`: the weight that vectors before smoothing have in them.
    """
    _, left = yield from reduced_stages(
        setup, "smooth-gram", "gram", source=vectors, normalises=True
    )
    memory = Memory(task_bytes=6 * 8 * setup.spec.dim**2)
    yield Stage("smooth-balance", solve_balance, [Block("all", (setup, left, local))], memory)


def solve_balance(setup: Setup, partials: Partials, local: float) -> Stats:
    """Find H from the Gram matrix, and store it."""
    gram = partials.combined() / setup.graph.nodes
    save_array(_path(setup), balance(gram, mean_taken_out(local)))
    return {}


def mean_taken_out(local: float) -> float:
    """The share c of the common mean that is taken out."""
    return _SLOPE * max(local - _SPARSE, 0.0)


def load_balance(setup: Setup) -> Floats:
    """The stored matrix H."""
    return np.asarray(load_array(_path(setup)), np.float32)


def balance(gram: Matrix, taken_out: float) -> Matrix:
    """``(I - c v v^t) G^(-e/2)``, scaled so that rows keep their mean square length."""
    squares, directions = np.linalg.eigh((gram + gram.T) / 2)
    squares = np.maximum(squares, 0.0)
    if squares[-1] == 0:
        return np.eye(len(gram))
    weights = np.maximum(squares, _WEAKEST * squares[-1]) ** (-_EVENNESS / 2)
    weights[-1] *= 1 - taken_out
    weights *= np.sqrt(squares.sum() / (squares * weights**2).sum())
    return np.asarray((directions * weights) @ directions.T)


def _path(setup: Setup) -> Path:
    return setup.work / "balance.npy"
