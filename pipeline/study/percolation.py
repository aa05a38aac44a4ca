"""How news spreads under the independent cascade model, for many holes at a time.

Of an edge between two nodes only the first try counts, for at a second one both ends are active. So
all tries of a run can be made beforehand, one for each edge, and what is reached in the end are the
connected pieces of the edges that succeeded.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError
from pipeline.mixing import GOLDEN, mix64
from pipeline.study.adjacency import Adjacency
from pipeline.study.draws import UNIT, key_of, mixed_in
from pipeline.study.reach import Pools, Rows, count_reached

Sums = npt.NDArray[np.float64]

_GUIDE_BITS = 12


def sum_cascades(
    adjacency: Adjacency,
    pools: Pools,
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    seed: int,
    probability: float,
) -> Sums:
    """Let news spread, some runs one after another; sums as `count_reached` makes them.

    Parameters
    ----------
    adjacency : Adjacency
    pools : Pools
    times : int64 array, shape (nodes,) or (0,)
        Gets one more for each run and hole for which a node is active; nothing where it is empty.
    first_run, runs : int
        Edges that succeed depend on the number of a run and the seed; the seeds also on the hole.
    probability : float
        Chance of a try.
    """
    if not 0 <= probability <= 1:
        raise ConfigError(f"A probability has to be from 0 to 1; {probability} was given.")
    # Of tries that never succeed, more fail than there are edges.
    per_log = 1 / math.log1p(-max(probability, UNIT)) if probability < 1 else 0.0
    sums: Sums = _all_runs(
        adjacency.starts,
        adjacency.neighbours,
        per_log,
        _guide(per_log),
        pools.members,
        pools.bounds,
        pools.places,
        pools.drawn,
        pools.keys(seed, "ic"),
        times,
        first_run,
        runs,
        key_of(seed, "ic"),
    )
    return sums


@numba.njit(nogil=True, cache=True)
def _all_runs(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    per_log: float,
    guide: npt.NDArray[np.int64],
    members: Rows,
    bounds: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    key: np.uint64,
) -> Sums:
    """Do the runs one by one, and in each of them all holes."""
    nodes, holes = starts.size - 1, keys.size
    above, sizes = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    known = np.zeros(nodes, np.int64)
    seeds = np.empty(drawn.max() + 1, np.int32)
    sums = np.zeros((holes + 1, 3))
    for run in range(runs):
        number = first_run + run
        run_key = mixed_in(key, np.uint64(number))
        _join_pieces(starts, neighbours, per_log, guide, run_key, above, sizes)
        for node in range(nodes):
            above[node] = _root(above, node)
        of_holes = members, bounds, places, drawn, keys, number, 1 + run * holes
        # From any node of a piece news gets to its root, and so to all of it.
        count_reached(above, sizes, above, *of_holes, known, seeds, sums, times)
    return sums


@numba.njit(nogil=True, cache=True)
def _join_pieces(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    per_log: float,
    guide: npt.NDArray[np.int64],
    key: np.uint64,
    parents: Rows,
    sizes: Rows,
) -> None:
    """Join the ends of the edges whose try succeeds: each node gets a parent, a root its size.

    All tries are alike, so how many fail between two that succeed is drawn at once. An edge is
    stored twice; the entry with the smaller row counts.
    """
    for node in range(parents.size):
        parents[node], sizes[node] = node, 1
    node, entry = 0, _tries_failing(key, per_log, guide)
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
        entry += 1 + _tries_failing(key, per_log, guide)


@numba.njit(nogil=True, cache=True, inline="always")
def _root(parents: Rows, node: int) -> int:
    """Root of a node's piece; the way there is made shorter for the next one who asks."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@numba.njit(nogil=True, cache=True, inline="always")
def _tries_failing(key: np.uint64, per_log: float, guide: npt.NDArray[np.int64]) -> np.int64:
    """Draw how many tries fail before one succeeds: a geometric number, of a uniform one."""
    bits = mix64(key)
    failing: np.int64 = guide[bits >> np.uint64(64 - _GUIDE_BITS)]
    if failing < 0:
        failing = np.int64(np.log((np.float64(bits >> np.uint64(11)) + 1.0) * UNIT) * per_log)
    return failing


def _guide(per_log: float) -> npt.NDArray[np.int64]:
    """By the first bits of a draw: the number it gives, or -1 where the other bits matter.

    It makes a logarithm of nearly each draw a look into the cache, at the same result.
    """
    steps = np.arange(2**_GUIDE_BITS + 1) / 2**_GUIDE_BITS
    least, most = (np.log(ends) * per_log for ends in (steps[1:], steps[:-1] + UNIT))
    return np.where(least.astype(np.int64) == most.astype(np.int64), least, -1).astype(np.int64)
