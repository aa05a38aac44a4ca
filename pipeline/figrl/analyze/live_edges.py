"""Live-edge graphs: influence as reachability, for many structural holes at a time.

In both models of influence all random choices can be drawn before anything spreads, and for all
holes at once (Kempe, Kleinberg and Tardos, KDD 2003). The edges that were drawn form a forest: an
active node activates its whole subtree. So a run costs one pass over the graph and one over the
cluster of each hole, however far the influence goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numba
import numpy as np
import numpy.typing as npt

from figrl.store.mixing import GOLDEN, mix64

Model = Literal["lt", "ic"]
"""Linear threshold, or independent cascade."""

MODELS: tuple[Model, ...] = get_args(Model)

Rows = npt.NDArray[np.int32]

_SALTS: dict[Model, int] = {"lt": 0x6C74, "ic": 0x6963}
UNIT = 2.0**-53


def model_key(seed: int, model: Model) -> np.uint64:
    """Key of the random numbers of a model."""
    key = mixed_in(np.uint64(0), np.uint64(seed & (2**64 - 1)))
    return np.uint64(mixed_in(np.uint64(key), np.uint64(_SALTS[model])))


@numba.njit(nogil=True, cache=True)
def mixed_in(key: np.uint64, part: np.uint64) -> np.uint64:
    """Derive a key from a key and one more number."""
    return mix64(mix64(key ^ part) + GOLDEN)


@numba.njit(nogil=True, cache=True, inline="always")
def below(bits: np.uint64, count: int) -> np.int64:
    """Turn 64 random bits into a number from 0 to less than `count`."""
    return np.int64(np.float64(bits >> np.uint64(11)) * UNIT * count)


class SeedPools(NamedTuple):
    """Clusters of holes, from which the seeds of runs are drawn; one that holes share is held once.

    `members`: nodes of the clusters, cluster after cluster. `bounds`: first member of the cluster
    of each hole, and the one after its last. `places`: place of each hole in its cluster. `drawn`:
    other members of the cluster that are seeds of a run. `keys`: keys of the draws; each depends on
    its hole and not on the other holes.
    """

    members: Rows
    bounds: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    drawn: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]

    @classmethod
    def of(
        cls, labels: npt.NDArray[np.integer], holes: Sequence[int], *, share: float, key: np.uint64
    ) -> SeedPools:
        """Pools of holes, with a share of each as seeds: at least one node, if there is one."""
        own = labels[np.asarray(holes, np.int64)]
        inside = np.flatnonzero(np.isin(labels, own)).astype(np.int32)
        members = inside[np.argsort(labels[inside], kind="stable")]
        ends = (np.searchsorted(labels[members], own, side) for side in ("left", "right"))
        bounds = np.stack(list(ends), axis=1)
        spans = zip(holes, bounds.tolist(), strict=True)
        places = np.array([np.searchsorted(members[a:b], hole) for hole, (a, b) in spans])
        sizes = bounds[:, 1] - bounds[:, 0]
        wanted = np.maximum(1, np.round(share * sizes)).astype(np.int64)
        keys = np.array([mixed_in(key, np.uint64(hole)) for hole in holes], np.uint64)
        return cls(members, bounds, places, np.minimum(sizes - 1, wanted), keys)


class Forest(NamedTuple):
    """Live edges of a run.

    `parents`: an active ``parents[v]`` activates ``v``; a root is its own parent. `sizes`: nodes of
    each subtree; undefined for a node that another one represents. `representatives`: node that
    counts as the seed in place of a seed: an ancestor that the seed activates too, or the seed
    itself.
    """

    parents: Rows
    sizes: Rows
    representatives: Rows


class Tally(NamedTuple):
    """Counts over the runs of one call, and memory that each run uses again.

    `sums`: for each hole: active nodes outside its cluster per active node inside, the square of
    that, and all active nodes. Last, the means over the holes, summed in the same way. `times`:
    runs and holes for which each node became active; not counted where it is empty. `known`: ``2 *
    turn + 1`` for a node that is active in a turn, ``2 * turn`` for one that is not.
    """

    sums: npt.NDArray[np.float64]
    times: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    seeds: Rows


@numba.njit(nogil=True, cache=True)
def draw_seeds(pool: Rows, hole: int, drawn: int, key: np.uint64, seeds: Rows) -> int:
    """Draw the hole at a place of its pool and others without replacement; return their number.

    The pool is restored at the end, or a run would depend on the runs before it.
    """
    swaps = np.empty(drawn, np.int64)
    pool[0], pool[hole] = pool[hole], pool[0]
    for i in range(drawn):
        key += GOLDEN
        swaps[i] = 1 + i + below(mix64(key), pool.size - 1 - i)
        pool[1 + i], pool[swaps[i]] = pool[swaps[i]], pool[1 + i]
    for i in range(drawn + 1):
        seeds[i] = pool[i]
    for i in range(drawn - 1, -1, -1):
        pool[1 + i], pool[swaps[i]] = pool[swaps[i]], pool[1 + i]
    pool[0], pool[hole] = pool[hole], pool[0]
    return drawn + 1


@numba.njit(nogil=True, cache=True)
def count_reached(forest: Forest, pools: SeedPools, run: int, turns: int, tally: Tally) -> None:
    """Count the nodes that each hole and its seeds activate in one run.

    The seeds depend on the number of the run. `turns` is 1 in the first call with a tally, and
    larger by the number of holes in each further call.
    """
    holes = pools.keys.size
    all_ratios = all_reached = 0.0
    for hole in range(holes):
        turn = turns + hole
        pool = pools.members[pools.bounds[hole, 0] : pools.bounds[hole, 1]]
        key = mixed_in(pools.keys[hole], np.uint64(run))
        count = draw_seeds(pool, pools.places[hole], pools.drawn[hole], key, tally.seeds)
        reached = _count_subtrees(forest, tally.known, turn, tally.seeds[:count])
        inside = 0
        for i in range(pool.size):
            inside += _is_reached(forest.parents, tally.known, turn, pool[i])
        for node in range(tally.times.size):
            tally.times[node] += _is_reached(forest.parents, tally.known, turn, node)
        ratio = (reached - inside) / inside
        tally.sums[hole, 0] += ratio
        tally.sums[hole, 1] += ratio**2
        tally.sums[hole, 2] += reached
        all_ratios += ratio / holes
        all_reached += reached / holes
    tally.sums[holes, 0] += all_ratios
    tally.sums[holes, 1] += all_ratios**2
    tally.sums[holes, 2] += all_reached


@numba.njit(nogil=True, cache=True)
def _count_subtrees(forest: Forest, known: npt.NDArray[np.int64], turn: int, seeds: Rows) -> int:
    """Mark the seeds and count the nodes below them; nodes below two seeds count once."""
    tops = 0
    for i in range(seeds.size):
        top = forest.representatives[seeds[i]]
        if known[top] != 2 * turn + 1:
            known[top] = 2 * turn + 1
            seeds[tops] = top
            tops += 1
    reached = 0
    for i in range(tops):
        top = seeds[i]
        parent = forest.parents[top]
        if parent == top or not _is_reached(forest.parents, known, turn, parent):
            reached += forest.sizes[top]
    return reached


@numba.njit(nogil=True, cache=True, inline="always")
def _is_reached(parents: Rows, known: npt.NDArray[np.int64], turn: int, node: int) -> int:
    """Return 1 if a node or one of its ancestors is a seed, else 0; memoised along the path."""
    at = node
    while known[at] >> 1 != turn and parents[at] != at:
        at = parents[at]
    if known[at] >> 1 != turn:
        known[at] = 2 * turn
    answer: int = known[at]
    while node != at:
        known[node] = answer
        node = parents[node]
    return answer & 1
