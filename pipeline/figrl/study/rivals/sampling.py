"""Random draws of the rivals: from a discrete distribution, of neighbours, along walks.

A draw is a function of a 64-bit key; the next one has the key plus `GOLDEN`. So the same seed gives
the same draws in compiled code, whatever else draws random numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze.live_edges import UNIT, below, mixed_in
from figrl.errors import ConfigError
from figrl.store.mixing import GOLDEN, mix64

Nodes = npt.NDArray[np.int64]

NEGATIVE_POWER = 0.75
"""Negatives are drawn in proportion to this power of the degree, as in word2vec."""


class AliasTable(NamedTuple):
    """A discrete distribution from which a draw takes constant time (Walker, Vose).

    A place is drawn uniformly. It stands for itself with the probability `keep`, and else for its
    `alias`.
    """

    keep: npt.NDArray[np.float64]
    alias: Nodes


def alias_table(weights: npt.NDArray[np.float64]) -> AliasTable:
    """Table of the distribution in proportion to weights, which may be 0 but not all."""
    total = float(weights.sum())
    if weights.size == 0 or weights.min() < 0 or not 0 < total < np.inf:
        raise ConfigError(
            "A distribution needs weights that are finite, not negative, and not all 0; "
            f"{weights.size:,} weights with sum {total} were given."
        )
    return AliasTable(*_fill(weights * (weights.size / total)))


@numba.njit(nogil=True, cache=True)
def _fill(shares: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], Nodes]:
    """Fill places of less than a mean share with the excess of others."""
    count = shares.size
    keep, alias = np.ones(count), np.arange(count)
    left = shares.copy()
    # Small shares are stacked from the front of one array, large ones from its back.
    stack = np.empty(count, np.int64)
    small, large = 0, count
    for place in range(count):
        if left[place] < 1:
            stack[small] = place
            small += 1
        else:
            large -= 1
            stack[large] = place
    while small > 0 and large < count:
        small -= 1
        poor, rich = stack[small], stack[large]
        keep[poor], alias[poor] = left[poor], rich
        left[rich] -= 1 - left[poor]
        if left[rich] < 1:
            large += 1
            stack[small] = rich
            small += 1
    return keep, alias


def negative_table(degrees: npt.NDArray[np.float64]) -> AliasTable:
    """Distribution of negatives over the nodes; one without edges is never drawn."""
    return alias_table(np.where(degrees > 0, degrees, 0) ** NEGATIVE_POWER)


def seed_key(seed: int, purpose: int) -> np.uint64:
    """Key of the draws for one purpose, by the seed."""
    key = mixed_in(np.uint64(0), np.uint64(seed & (2**64 - 1)))
    return np.uint64(mixed_in(np.uint64(key), np.uint64(purpose)))


@numba.njit(nogil=True, cache=True, inline="always")
def draw(table: AliasTable, key: np.uint64) -> int:
    """Draw a place of the table."""
    at = np.float64(mix64(key) >> np.uint64(11)) * UNIT * table.keep.size
    place = int(at)
    return place if at - place < table.keep[place] else table.alias[place]


@numba.njit(nogil=True, cache=True)
def draw_many(table: AliasTable, count: int, key: np.uint64) -> Nodes:
    """Draw several places independently."""
    found = np.empty(count, np.int64)
    for i in range(count):
        found[i] = draw(table, key)
        key += GOLDEN
    return found


@numba.njit(nogil=True, cache=True, inline="always")
def draw_neighbour(
    starts: npt.NDArray[np.int64], neighbours: npt.NDArray[np.int32], node: int, key: np.uint64
) -> int:
    """Draw a neighbour uniformly; a node without any is its own neighbour."""
    degree = starts[node + 1] - starts[node]
    return neighbours[starts[node] + below(mix64(key), degree)] if degree > 0 else node


@numba.njit(nogil=True, cache=True)
def draw_neighbours(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    nodes: Nodes,
    count: int,
    key: np.uint64,
) -> Nodes:
    """Draw `count` neighbours of each node with replacement: an array (nodes, count)."""
    found = np.empty((nodes.size, count), np.int64)
    for i in range(nodes.size):
        for j in range(count):
            found[i, j] = draw_neighbour(starts, neighbours, nodes[i], key)
            key += GOLDEN
    return found


@numba.njit(nogil=True, cache=True)
def draw_walk_pairs(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    count: int,
    longest: int,
    key: np.uint64,
) -> Nodes:
    """Pairs of a uniform node and another one on a random walk from it, shape (count, 2).

    The other one is at a uniform place of the first `longest` steps. Where that is the node itself,
    the pair is drawn again, some times; it then stays, as it does for a node without neighbours.
    """
    pairs = np.empty((count, 2), np.int64)
    nodes = starts.size - 1
    for i in range(count):
        for _ in range(8):
            first = int(below(mix64(key), nodes))
            steps = 1 + below(mix64(key + GOLDEN), longest)
            key += np.uint64(2) * GOLDEN
            other = first
            for _ in range(steps):
                other = draw_neighbour(starts, neighbours, other, key)
                key += GOLDEN
            pairs[i, 0], pairs[i, 1] = first, other
            if other != first:
                break
    return pairs
