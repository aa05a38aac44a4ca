"""Whom news reaches from each of many holes, once the chances of a run are drawn.

In both models of influence all that is left to chance can be drawn before the news sets out, and
for all holes at once (Kempe, Kleinberg and Tardos, KDD 2003). What was drawn makes a forest: news
that is at a node gets to all nodes below it. So a run costs one pass over the graph and one over
the cluster of each hole, however far the news goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from pipeline.study.draws import Model, draw_seeds, key_of, mixed_in

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pools:
    """The clusters of some holes; each cluster is there once, whatever number of holes it has.

    Attributes
    ----------
    members : int32 array
        Nodes of the clusters, one cluster after the other.
    bounds : int64 array, shape (holes, 2)
        Where the cluster of each hole begins and ends.
    places : int64 array, shape (holes,)
        Where each hole is in its cluster.
    drawn : int64 array, shape (holes,)
        How many others of the cluster are seeds of a run with it.
    """

    members: Rows
    bounds: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    drawn: npt.NDArray[np.int64]

    @classmethod
    def of(cls, labels: npt.NDArray[np.integer], holes: Sequence[int], *, share: float) -> Pools:
        """Clusters of holes, and a share of each as seeds: at least one node, if there is one."""
        rows = np.asarray(holes, np.int64)
        names, of_hole = np.unique(labels[rows], return_inverse=True)
        inside = np.flatnonzero(np.isin(labels, names)).astype(np.int32)
        order = np.argsort(labels[inside], kind="stable")
        members = inside[order]
        ends: npt.NDArray[np.int64] = np.cumsum(np.bincount(np.searchsorted(names, labels[inside])))
        bounds = np.stack([np.append(0, ends[:-1]), ends], axis=1)[of_hole]
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        places = ranks[np.searchsorted(inside, rows)] - bounds[:, 0]
        sizes = bounds[:, 1] - bounds[:, 0]
        wanted = np.maximum(1, np.round(share * sizes)).astype(np.int64)
        return cls(members, bounds, places, np.minimum(sizes - 1, wanted))

    def keys(self, seed: int, model: Model) -> npt.NDArray[np.uint64]:
        """Key of the seeds of each hole, which depend on the hole and not on those beside it."""
        rows = self.members[self.bounds[:, 0] + self.places]
        keys: npt.NDArray[np.uint64] = _keyed(key_of(seed, model), rows)
        return keys


@numba.njit(nogil=True, cache=True)
def _keyed(key: np.uint64, rows: Rows) -> npt.NDArray[np.uint64]:
    keys = np.empty(rows.size, np.uint64)
    for i in range(rows.size):
        keys[i] = mixed_in(key, np.uint64(rows[i]))
    return keys


@numba.njit(nogil=True, cache=True)
def count_reached(
    above: Rows,
    sizes: Rows,
    lifted: Rows,
    members: Rows,
    bounds: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    number: int,
    turns: int,
    known: npt.NDArray[np.int64],
    seeds: Rows,
    sums: npt.NDArray[np.float64],
    times: npt.NDArray[np.int64],
) -> None:
    """Count whom the news of each hole reaches in one run, and add it to the sums.

    Parameters
    ----------
    above : int32 array, shape (nodes,)
        The forest: news at ``above[v]`` gets to ``v``; a root is above itself.
    sizes : int32 array, shape (nodes,)
        Nodes below each node, and itself; of a node that is lifted, anything.
    lifted : int32 array, shape (nodes,)
        Where a seed counts: a node above it that news gets to from it too, or itself.
    members, bounds, places, drawn
        Of the holes, as in `Pools`.
    keys : uint64 array, shape (holes,)
    number : int
        Of the run.
    turns : int
        Larger by the number of holes in each call with the same `known`, and 1 at first.
    known : int64 array, shape (nodes,)
        Zeros at first; what earlier turns left is told by its turn.
    seeds : int32 array
        Room for the seeds of a hole.
    sums : float64 array, shape (holes + 1, 3)
        Of each hole: nodes reached outside its cluster for each one inside, the square of that,
        and all nodes reached. Last, the means over the holes, added up in the same way.
    times : int64 array, shape (nodes,) or (0,)
        Gets one more for each hole whose news reaches a node; nothing where it is empty.
    """
    holes = keys.size
    all_ratios = all_reached = 0.0
    for hole in range(holes):
        turn = turns + hole
        pool = members[bounds[hole, 0] : bounds[hole, 1]]
        key = mixed_in(keys[hole], np.uint64(number))
        count = draw_seeds(pool, places[hole], drawn[hole], key, seeds)
        reached = _reached_in_all(above, sizes, lifted, known, turn, seeds[:count])
        inside = 0
        for i in range(pool.size):
            inside += _is_reached(above, known, turn, pool[i])
        for node in range(times.size):
            times[node] += _is_reached(above, known, turn, node)
        ratio = (reached - inside) / inside
        sums[hole, 0] += ratio
        sums[hole, 1] += ratio**2
        sums[hole, 2] += reached
        all_ratios += ratio / holes
        all_reached += reached / holes
    sums[holes, 0] += all_ratios
    sums[holes, 1] += all_ratios**2
    sums[holes, 2] += all_reached


@numba.njit(nogil=True, cache=True)
def _reached_in_all(
    above: Rows, sizes: Rows, lifted: Rows, known: npt.NDArray[np.int64], turn: int, seeds: Rows
) -> int:
    """Mark the seeds, and count the nodes below them; what is below two of them counts once."""
    tops = 0
    for i in range(seeds.size):
        top = lifted[seeds[i]]
        if known[top] != 2 * turn + 1:
            known[top] = 2 * turn + 1
            seeds[tops] = top
            tops += 1
    reached = 0
    for i in range(tops):
        top = seeds[i]
        if above[top] == top or not _is_reached(above, known, turn, above[top]):
            reached += sizes[top]
    return reached


@numba.njit(nogil=True, cache=True, inline="always")
def _is_reached(above: Rows, known: npt.NDArray[np.int64], turn: int, node: int) -> int:
    """Go up until it is known whether there is a seed: 1, or 0; and keep it for all on the way."""
    at = node
    while known[at] >> 1 != turn and above[at] != at:
        at = above[at]
    if known[at] >> 1 != turn:
        known[at] = 2 * turn
    answer: int = known[at]
    while node != at:
        known[node] = answer
        node = above[node]
    return answer & 1
