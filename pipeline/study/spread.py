"""How news spreads under the linear threshold model, compiled and seeded.

A run costs as much as the edges of the nodes that it reaches: arrays of all nodes are made once for
many runs, and what an earlier run left in them is told by its marks.
"""

from __future__ import annotations

from typing import Literal

import numba
import numpy as np
import numpy.typing as npt

from pipeline.mixing import GOLDEN, mix64
from pipeline.study.adjacency import Adjacency

Model = Literal["lt", "ic"]
"""Linear threshold, or independent cascade."""

_SALTS: dict[Model, int] = {"lt": 0x6C74, "ic": 0x6963}
UNIT = 2.0**-53

_RUNS_MARKED = 2**15 - 1
"""Runs until the marks, of 16 bits and two a run, are used up. Small ones stay in the cache."""


def count_active(
    adjacency: Adjacency,
    pool: npt.NDArray[np.int64],
    drawn: int,
    inside: npt.NDArray[np.bool_],
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    seed: int,
) -> npt.NDArray[np.int64]:
    """Let news spread, some runs one after another, and count whom it has reached in the end.

    Parameters
    ----------
    adjacency : Adjacency
    pool : int64 array
        Its first is a seed of each run; `drawn` of the others are too, anew in each run.
    inside : bool array, shape (nodes,)
        Nodes of the cluster.
    times : int64 array, shape (nodes,) or (0,)
        Gets one more for each run in which a node is active; nothing where it is empty.
    first_run, runs : int
        What a run draws depends on its number, the seed, the model and the first of the pool.

    Returns
    -------
    int64 array, shape (runs, 2)
        Active nodes inside the cluster, and active nodes in all.
    """
    final: npt.NDArray[np.int64] = _all_runs(
        adjacency.starts,
        adjacency.neighbours,
        adjacency.weights,
        adjacency.degrees,
        pool,
        drawn,
        inside,
        times,
        first_run,
        runs,
        key_of(seed, "lt", int(pool[0])),
    )
    return final


def key_of(seed: int, model: Model, *parts: int) -> np.uint64:
    """Key of the random numbers of a model, and of what else they depend on."""
    key = np.uint64(0)
    for part in (seed & (2**64 - 1), _SALTS[model], *parts):
        key = np.uint64(mixed_in(key, np.uint64(part)))
    return key


@numba.njit(nogil=True, cache=True)
def mixed_in(key: np.uint64, part: np.uint64) -> np.uint64:
    """Make a key of a key and one more number."""
    return mix64(mix64(key ^ part) + GOLDEN)


@numba.njit(nogil=True, cache=True)
def _all_runs(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
    pool: npt.NDArray[np.int64],
    drawn: int,
    inside: npt.NDArray[np.bool_],
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    key: np.uint64,
) -> npt.NDArray[np.int64]:
    """Do the runs one by one."""
    nodes = starts.size - 1
    marks = np.zeros(nodes, np.uint16)
    missing = np.empty(nodes, np.float64)
    queue = np.empty(nodes, np.int32)
    final = np.zeros((runs, 2), np.int64)
    for run in range(runs):
        run_key = mixed_in(key, np.uint64(first_run + run))
        if run % _RUNS_MARKED == 0:
            marks[:] = 0
        active = np.uint16(2 * (run % _RUNS_MARKED) + 2)
        draw_seeds(pool, drawn, run_key, active, marks, queue)
        # Not what the seeds were drawn with.
        run_key = mix64(~run_key)
        of_graph = starts, neighbours, weights, degrees
        reached = _linear_threshold(*of_graph, run_key, active, marks, missing, queue, drawn + 1)
        for i in range(reached):
            final[run, 0] += inside[queue[i]]
        for i in range(reached if times.size else 0):
            times[queue[i]] += 1
        final[run, 1] = reached
    return final


@numba.njit(nogil=True, cache=True)
def draw_seeds(
    pool: npt.NDArray[np.int64],
    drawn: int,
    key: np.uint64,
    active: np.uint16,
    marks: npt.NDArray[np.uint16],
    queue: npt.NDArray[np.int32],
) -> None:
    """Put the first of the pool and some others, all different, at the front of the queue."""
    chosen = np.empty(drawn, np.int64)
    for i in range(drawn):
        key += GOLDEN
        left = pool.size - 1 - i
        chosen[i] = 1 + i + np.int64(np.float64(mix64(key) >> np.uint64(11)) * UNIT * left)
        pool[1 + i], pool[chosen[i]] = pool[chosen[i]], pool[1 + i]
    for i in range(drawn + 1):
        queue[i] = pool[i]
        marks[pool[i]] = active
    # The pool goes back to its order, else a run would depend on those before it.
    for i in range(drawn - 1, -1, -1):
        pool[1 + i], pool[chosen[i]] = pool[chosen[i]], pool[1 + i]


@numba.njit(nogil=True, cache=True)
def _linear_threshold(
    starts: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
    key: np.uint64,
    active: np.uint16,
    marks: npt.NDArray[np.uint16],
    missing: npt.NDArray[np.float64],
    queue: npt.NDArray[np.int32],
    queued: int,
) -> int:
    """Activate each node whose active neighbours have weight enough; count the active ones."""
    done = 0
    while done < queued:
        node = queue[done]
        done += 1
        for entry in range(starts[node], starts[node + 1]):
            other = neighbours[entry]
            if marks[other] == active:
                continue
            if marks[other] < active - 1:
                # Drawn by node and not in turn, so that only nodes that are reached draw.
                bits = mix64(key + np.uint64(other + 1) * GOLDEN) >> np.uint64(11)
                missing[other] = (np.float64(bits) + 1.0) * UNIT * degrees[other]
                marks[other] = active - 1
            missing[other] -= 1.0 if weights is None else np.float64(weights[entry])
            if missing[other] <= 0.0:
                marks[other] = active
                queue[queued] = other
                queued += 1
    return queued
