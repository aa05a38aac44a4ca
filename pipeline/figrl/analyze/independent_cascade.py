"""The independent cascade model as a live-edge graph.

Only the first attempt along an edge counts, for at a second one both ends are active. So all
attempts of a run can be drawn beforehand, one for each edge, and what becomes active are the
connected components of the edges whose attempt succeeds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze.live_edges import UNIT, Rows
from figrl.errors import ConfigError
from figrl.store.mixing import GOLDEN, mix64

_GUIDE_BITS = 12


class Gaps(NamedTuple):
    """Distribution of the number of failures before a success, which is geometric.

    `per_log`: ``1 / log(1 - p)``: a uniform number ``u`` gives ``floor(per_log * log(u))``
    failures. `guide`: by the first bits of a draw: its number of failures, or -1 where the other
    bits matter. It replaces nearly all logarithms by a cached lookup, with the same result.
    """

    per_log: float
    guide: npt.NDArray[np.int64]

    @classmethod
    def of(cls, probability: float) -> Gaps:
        """Distribution for a probability of success."""
        if not 0 <= probability <= 1:
            raise ConfigError(f"A probability has to be from 0 to 1; {probability} was given.")
        # With probability 0, the first gap is longer than the list of edges.
        per_log = 1 / math.log1p(-max(probability, UNIT)) if probability < 1 else 0.0
        steps = np.arange(2**_GUIDE_BITS + 1) / 2**_GUIDE_BITS
        low, high = (np.log(ends) * per_log for ends in (steps[1:], steps[:-1] + UNIT))
        same = low.astype(np.int64) == high.astype(np.int64)
        return cls(per_log, np.where(same, low, -1).astype(np.int64))


@numba.njit(nogil=True, cache=True)
def draw_cascade_components(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    gaps: Gaps,
    key: np.uint64,
    parents: Rows,
    sizes: Rows,
) -> None:
    """Join the ends of edges whose attempt succeeds: each node gets its root, a root its size.

    Attempts are independent and alike, so the number of failures between two successes is drawn at
    once. An edge is stored twice; the entry with the smaller row counts.
    """
    for node in range(parents.size):
        parents[node], sizes[node] = node, 1
    node, entry = 0, _draw_gap(key, gaps)
    while entry < neighbours.size:
        while starts[node + 1] <= entry:
            node += 1
        if neighbours[entry] > node:
            one, other = _root(parents, node), _root(parents, neighbours[entry])
            if one != other:
                if sizes[one] < sizes[other]:
                    one, other = other, one
                parents[other] = one
                sizes[one] += sizes[other]
        key += GOLDEN
        entry += 1 + _draw_gap(key, gaps)
    for node in range(parents.size):
        parents[node] = _root(parents, node)


@numba.njit(nogil=True, cache=True, inline="always")
def _root(parents: Rows, node: int) -> int:
    """Find the root of a node, halving the path on the way."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@numba.njit(nogil=True, cache=True, inline="always")
def _draw_gap(key: np.uint64, gaps: Gaps) -> np.int64:
    """Draw the number of failures before a success."""
    bits = mix64(key)
    failures: np.int64 = gaps.guide[bits >> np.uint64(64 - _GUIDE_BITS)]
    if failures < 0:
        uniform = (np.float64(bits >> np.uint64(11)) + 1.0) * UNIT
        failures = np.int64(np.log(uniform) * gaps.per_log)
    return failures
