"""How news spreads under the independent cascade model, for many holes at a time.

Of an edge between two nodes only the first try counts, for at a second one both ends are active. So
all tries of a run can be made beforehand, one for each edge, and what is reached in the end are the
connected pieces of the edges that succeeded. Those are found once for a run, for all holes: a
simulation node by node took twenty times as long for 42 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError
from pipeline.mixing import GOLDEN, mix64
from pipeline.study.adjacency import Adjacency
from pipeline.study.spread import UNIT, draw_seeds, key_of, mixed_in

_GUIDE_BITS = 12


def count_cascades(
    adjacency: Adjacency,
    pools: Sequence[npt.NDArray[np.int64]],
    drawn: Sequence[int],
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    seed: int,
    probability: float,
) -> npt.NDArray[np.int64]:
    """Let news spread, some runs one after another, and count whom it has reached in the end.

    Parameters
    ----------
    adjacency : Adjacency
    pools : sequence of int64 array
        For each hole, the nodes of its cluster: the first is a seed of every run.
    drawn : sequence of int
        For each hole, how many of the others are seeds too, anew in each run.
    times : int64 array, shape (nodes,) or (0,)
        Gets one more for each run and hole for which a node is active; nothing where it is empty.
    first_run, runs : int
        Edges that succeed depend on the number of a run and the seed; the seeds also on the hole.
    probability : float
        Chance of a try.

    Returns
    -------
    int64 array, shape (holes, runs, 2)
        Active nodes inside the cluster, and active nodes in all.
    """
    if not 0 <= probability <= 1:
        raise ConfigError(f"A probability has to be from 0 to 1; {probability} was given.")
    # Of tries that never succeed, more fail than there are edges.
    per_log = 1 / math.log1p(-max(probability, UNIT)) if probability < 1 else 0.0
    final: npt.NDArray[np.int64] = _all_runs(
        adjacency.starts,
        adjacency.neighbours,
        per_log,
        _guide(per_log),
        np.concatenate(pools).astype(np.int64),
        np.cumsum([0, *(pool.size for pool in pools)]).astype(np.int64),
        np.asarray(drawn, np.int64),
        np.array([key_of(seed, "ic", int(pool[0])) for pool in pools], np.uint64),
        times,
        first_run,
        runs,
        key_of(seed, "ic"),
    )
    return final


@numba.njit(nogil=True, cache=True)
def _all_runs(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    per_log: float,
    guide: npt.NDArray[np.int64],
    pools: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    key: np.uint64,
) -> npt.NDArray[np.int64]:
    """Do the runs one by one, and in each of them all holes."""
    nodes, holes = starts.size - 1, keys.size
    parents, sizes = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    seen = np.full(nodes, -1, np.int64)
    marks, queue = np.zeros(nodes, np.uint16), np.empty(nodes, np.int32)
    final = np.zeros((holes, runs, 2), np.int64)
    for run in range(runs):
        number = np.uint64(first_run + run)
        _join_pieces(starts, neighbours, per_log, guide, mixed_in(key, number), parents, sizes)
        for hole in range(holes):
            pool = pools[bounds[hole] : bounds[hole + 1]]
            draw_seeds(pool, drawn[hole], mixed_in(keys[hole], number), np.uint16(1), marks, queue)
            turn = run * holes + hole
            for i in range(drawn[hole] + 1):
                root = _root(parents, queue[i])
                if seen[root] != turn:
                    seen[root] = turn
                    final[hole, run, 1] += sizes[root]
            for i in range(pool.size):
                final[hole, run, 0] += seen[_root(parents, pool[i])] == turn
            for i in range(times.size):
                times[i] += seen[_root(parents, i)] == turn
    return final


@numba.njit(nogil=True, cache=True)
def _join_pieces(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    per_log: float,
    guide: npt.NDArray[np.int64],
    key: np.uint64,
    parents: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int32],
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
def _root(parents: npt.NDArray[np.int32], node: int) -> int:
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
