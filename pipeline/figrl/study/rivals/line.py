"""LINE (Tang et al., WWW 2015): first- and second-order proximity by sampled edges.

The first order makes ``u_i . u_j`` large for the two ends of an edge. The second order does so for
``u_i . c_j``, with a context vector ``c`` of each node, so that nodes with the same neighbours get
similar vectors. For a sampled edge ``(i, j)`` and negatives ``n`` the loss is

    ``-log s(u_i . c_j) - sum_n log s(-u_i . c_n)``,  ``s(x) = 1 / (1 + exp(-x))``,

where ``c`` is ``u`` itself in the first order. Constants are those of the authors' program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze.adjacency import Adjacency
from figrl.errors import ConfigError
from figrl.store.mixing import GOLDEN
from figrl.study.rivals.sampling import AliasTable, alias_table, draw, negative_table, seed_key

Vectors = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int64]

FEWEST_SAMPLES, SAMPLES_PER_EDGE = 1_000_000, 200
"""Sampled edges of each order: the program's default; and what its authors take for Youtube, a
thousand million for five million edges."""


@dataclass(frozen=True)
class LineOptions:
    """Settings of LINE: vector length of both orders together, sampled edges of each order."""

    dim: int = 100
    samples: int | None = None
    negatives: int = 5
    rate: float = 0.025
    seed: int = 0


def line_vectors(graph: Adjacency, options: LineOptions) -> Vectors:
    """Vectors of both orders side by side, each of length 1; zero for a node without edges."""
    if options.dim < 2:
        raise ConfigError(
            f"LINE joins the vectors of two orders; dim is {options.dim}, at least 2 is needed."
        )
    half = options.dim // 2
    first = train_order(graph, options, order=1, dim=half)
    second = train_order(graph, options, order=2, dim=options.dim - half)
    linked = (np.diff(graph.starts) > 0)[:, None]
    return np.where(linked, np.hstack([_normalised(first), _normalised(second)]), np.float32(0))


def train_order(graph: Adjacency, options: LineOptions, *, order: int, dim: int) -> Vectors:
    """Vectors of one order, not normalised."""
    rng = np.random.default_rng([options.seed, order])
    vectors = ((rng.random((graph.nodes, dim), np.float32) - np.float32(0.5)) / dim).astype("f4")
    entries = graph.neighbours.size
    weights = np.ones(entries) if graph.weights is None else graph.weights.astype(np.float64)
    samples = options.samples
    if samples is None:
        samples = max(FEWEST_SAMPLES, SAMPLES_PER_EDGE * entries // 2)
    return train(
        np.repeat(np.arange(graph.nodes), np.diff(graph.starts)),
        graph.neighbours,
        alias_table(weights),
        negative_table(graph.degrees),
        vectors,
        order == 2,
        samples,
        options.negatives,
        options.rate,
        seed_key(options.seed, order),
    )


@numba.njit(nogil=True, cache=True)
def train(
    sources: Nodes,
    targets: npt.NDArray[np.int32],
    edges: AliasTable,
    negatives: AliasTable,
    start: Vectors,
    second_order: bool,
    samples: int,
    negatives_per_edge: int,
    rate: float,
    key: np.uint64,
) -> Vectors:
    """Vectors after so many sampled edges, from the vectors `start`, which are not changed.

    An edge is stored in both directions, as two entries of `sources` and `targets`. Contexts start
    at 0. The rate decreases linearly, to a ten-thousandth.
    """
    vectors = start.copy()
    contexts = np.zeros_like(start) if second_order else vectors
    chosen = np.empty(1 + negatives_per_edge, np.int64)
    change = np.empty(start.shape[1], np.float32)
    for sample in range(samples):
        entry = draw(edges, key)
        key += GOLDEN
        chosen[0] = targets[entry]
        for i in range(negatives_per_edge):
            chosen[1 + i] = draw(negatives, key)
            key += GOLDEN
        now = rate * max(1 - sample / samples, 1e-4)
        step(vectors, contexts, sources[entry], chosen, now, change)
    return vectors


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def step(
    vectors: Vectors,
    contexts: Vectors,
    source: int,
    chosen: Nodes,
    rate: float,
    change: Vectors,
) -> None:
    """Update the source and the chosen contexts, of which the first is the neighbour.

    The source changes last, by the sum over all chosen ones, which is collected in `change`.
    """
    change[:] = 0
    own = vectors[source]
    for i in range(chosen.size):
        other = contexts[chosen[i]]
        product = np.float32(0)
        for k in range(own.size):
            product += own[k] * other[k]
        label = 1.0 if i == 0 else 0.0
        size = np.float32((label - 1 / (1 + math.exp(-product))) * rate)
        for k in range(own.size):
            change[k] += size * other[k]
            other[k] += size * own[k]
    for k in range(own.size):
        own[k] += change[k]


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
