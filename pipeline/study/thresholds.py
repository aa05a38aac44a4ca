"""How news spreads under the linear threshold model, for many holes at a time.

A node becomes active once its active neighbours have at least a share of its degree that is drawn
uniformly. That is as likely to activate any set of nodes as if each node listened to a single
neighbour, drawn by the weights, and became active after it (Kempe et al. 2003, theorem 4.6; here
the weights at a node add up to its degree, so that each node listens to one). To whom nodes listen
makes trees that grow out of rings, and the nodes of a ring are active together or not at all.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.mixing import GOLDEN, mix64
from pipeline.study.adjacency import Adjacency
from pipeline.study.draws import UNIT, below, key_of, mixed_in
from pipeline.study.reach import Pools, Rows, count_reached

Sums = npt.NDArray[np.float64]


def sum_thresholds(
    adjacency: Adjacency,
    pools: Pools,
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    seed: int,
) -> Sums:
    """Let news spread, some runs one after another; sums as `count_reached` makes them.

    Parameters
    ----------
    adjacency : Adjacency
    pools : Pools
    times : int64 array, shape (nodes,) or (0,)
        Gets one more for each run and hole for which a node is active; nothing where it is empty.
    first_run, runs : int
        What a run draws depends on its number and the seed; the seeds of it also on the hole.
    """
    sums: Sums = _all_runs(
        adjacency.starts,
        adjacency.neighbours,
        adjacency.weights,
        adjacency.degrees if adjacency.weights is not None else np.empty(0),
        pools.members,
        pools.bounds,
        pools.places,
        pools.drawn,
        pools.keys(seed, "lt"),
        times,
        first_run,
        runs,
        key_of(seed, "lt"),
    )
    return sums


@numba.njit(nogil=True, cache=True)
def _all_runs(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
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
    lifted, waiting = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    known = np.zeros(nodes, np.int64)
    seeds = np.empty(drawn.max() + 1, np.int32)
    sums = np.zeros((holes + 1, 3))
    for run in range(runs):
        number = first_run + run
        _listen(starts, neighbours, weights, degrees, mixed_in(key, np.uint64(number)), above)
        _plant(above, sizes, lifted, waiting)
        of_holes = members, bounds, places, drawn, keys, number, 1 + run * holes
        count_reached(above, sizes, lifted, *of_holes, known, seeds, sums, times)
    return sums


@numba.njit(nogil=True, cache=True)
def _listen(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
    key: np.uint64,
    heard: Rows,
) -> None:
    """Draw to whom each node listens; one without neighbours listens to itself."""
    for node in range(heard.size):
        entry, count = starts[node], starts[node + 1] - starts[node]
        bits = mix64(key + np.uint64(node + 1) * GOLDEN)
        if count == 0:
            heard[node] = node
            continue
        if weights is None:
            entry += below(bits, count)
        else:
            left = np.float64(bits >> np.uint64(11)) * UNIT * degrees[node]
            while entry < starts[node + 1] - 1 and left >= weights[entry]:
                left -= weights[entry]
                entry += 1
        heard[node] = neighbours[entry]


@numba.njit(nogil=True, cache=True)
def _plant(above: Rows, sizes: Rows, lifted: Rows, waiting: Rows) -> None:
    """Make a forest of whom each node listens to: of each ring, one node is above the others.

    Its size is that of the whole piece, and the others are lifted to it.
    """
    nodes = above.size
    for node in range(nodes):
        sizes[node], lifted[node], waiting[node] = 1, node, 0
    for node in range(nodes):
        waiting[above[node]] += 1
    # Whom nobody listens to is counted first; what is left in the end is the rings.
    for node in range(nodes):
        at = node
        while waiting[at] == 0:
            waiting[at] = -1
            sizes[above[at]] += sizes[at]
            at = above[at]
            waiting[at] -= 1
    for node in range(nodes):
        if waiting[node] > 0:
            at = above[node]
            while at != node:
                sizes[node] += sizes[at]
                onward = above[at]
                above[at] = lifted[at] = node
                waiting[at] = 0
                at = onward
            above[node] = node
