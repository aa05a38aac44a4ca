"""Structural hole influence index (SHII): how far influence spreads from holes, by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze import live_edges
from figrl.analyze.adjacency import Adjacency, lists_bytes, shared_adjacency
from figrl.analyze.independent_cascade import Gaps, draw_cascade_components
from figrl.analyze.linear_threshold import draw_threshold_parents, root_cycles
from figrl.analyze.live_edges import Model, Rows
from figrl.engine.runner import Runner
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats
from figrl.engine.worker import release_buffers
from figrl.errors import ConfigError
from figrl.store.files import load_array

Sums = npt.NDArray[np.float64]

_STEPS_IN_A_BLOCK, _FEWEST_BLOCKS = 150_000_000, 16
"""Nodes that the runs of a block visit, some seconds of work; and the fewest blocks of a stage."""

_NODE_BYTES = 72
"""Memory of a task per node: the forest of a run, and the clusters of the holes."""

_NO_MEMORY = Memory()


@dataclass(frozen=True)
class Shii:
    """Structural hole influence index of a node, or the mean of several.

    `mean`, `error`: mean over the runs of active nodes outside the hole's cluster per active node
    inside, and the standard error of that mean (nan for a single run). `active`: mean number of
    active nodes at the end of a run.
    """

    mean: float
    error: float
    active: float
    runs: int

    @classmethod
    def of(cls, runs: int, ratio: float, ratio_squared: float, active: float) -> Shii:
        """Means of sums over runs."""
        mean = ratio / runs
        variance = max(0.0, ratio_squared / runs - mean**2)
        error = math.sqrt(variance / (runs - 1)) if runs > 1 else math.nan
        return cls(mean, error, active / runs, runs)


@dataclass(frozen=True)
class Influence:
    """SHII of each hole, in their order, and of all together."""

    holes: list[Shii]
    together: Shii
    """Its error is that of the means of runs: holes share the random draws of a run."""


@dataclass(frozen=True)
class InfluenceTask:
    """Parameters shared by all blocks of runs.

    `lists`: folder of `write_adjacency`. `labels`, `holes`: array files: the cluster of each node,
    and the rows of the holes. `probability`: of the independent cascade model.
    """

    lists: Path
    labels: Path
    holes: Path
    model: Model
    seed: int = 0
    probability: float = 0.1


def influence_memory(nodes: int, edges: int, *, weighted: bool) -> Memory:
    """Memory of simulations: threads share the neighbour lists."""
    return Memory(lists_bytes(nodes, edges, weighted=weighted), _NODE_BYTES * nodes)


def influence(
    runner: Runner, task: InfluenceTask, *, runs: int, nodes: int, members: int
) -> Influence:
    """Simulate the influence of holes; see `influence_stages`."""
    found = runner.run(influence_stages(task, runs=runs, nodes=nodes, members=members))
    runner.on_every_worker(release_buffers)
    return found


def influence_stages(
    task: InfluenceTask, *, runs: int, nodes: int, members: int, memory: Memory = _NO_MEMORY
) -> Stages[Influence]:
    """Simulate the influence of holes, in blocks of runs.

    A run visits the nodes of the graph, and the members of the clusters of all holes. Workers keep
    the neighbour lists until their buffers are released.
    """
    step = runs_in_a_block(runs, nodes, members)
    parts = [(first, min(step, runs - first)) for first in range(0, runs, step)]
    blocks = [Block(f"{first:09d}-{count}", (task, first, count)) for first, count in parts]
    name, reads = f"influence-{task.model}", (task.lists, task.labels, task.holes)
    none = {"sums": [[0.0, 0.0, 0.0]]}
    done = yield Stage(name, influence_block, blocks, memory, reads, expected=none)
    # In the order of the runs, whichever block was done first.
    total = np.sum([done.stats[block.key]["sums"] for block in blocks], axis=0)
    each = [Shii.of(runs, *sums) for sums in total.tolist()]
    return Influence(each[:-1], each[-1])


def runs_in_a_block(runs: int, nodes: int, members: int) -> int:
    """Runs that are worth a task, and that are lost when its worker dies."""
    worth_a_task = _STEPS_IN_A_BLOCK // (nodes + 2 * members)
    return max(1, min(worth_a_task, -(-runs // _FEWEST_BLOCKS)))


def influence_block(task: InfluenceTask, first_run: int, runs: int) -> Stats:
    """Simulate some runs; return the sums of each hole, and of all together."""
    sums = spread_sums(
        shared_adjacency(task.lists),
        load_array(task.labels, mapped=True, checked=False),
        load_array(task.holes, checked=False).tolist(),
        model=task.model,
        first_run=first_run,
        runs=runs,
        seed=task.seed,
        probability=task.probability,
    )
    return {"sums": sums.tolist()}


def spread_sums(
    adjacency: Adjacency,
    labels: npt.NDArray[Any],
    holes: Sequence[int],
    *,
    model: Model,
    first_run: int,
    runs: int,
    seed: int,
    probability: float = 0.1,
    seed_share: float = 0.1,
    times: npt.NDArray[np.int64] | None = None,
) -> Sums:
    """Simulate how influence spreads from each hole and seeds of its cluster.

    A run starts with the hole and ``max(1, round(seed_share |C|))`` others of its cluster ``C``,
    drawn without replacement (all others, where there are fewer). The result of a hole depends
    only on the seed, the hole, the model and the numbers of the runs.

    `model`: ``lt``: a node becomes active once its active neighbours have at least a share of its
    degree that is uniform in (0, 1]. ``ic``: a newly active node activates each inactive neighbour,
    once, with `probability`. `first_run`, `runs`: number of the first run, and number of runs.
    `times`: incremented for each run and hole in which a node becomes active. Returns sums over the
    runs, for each hole and for the means over all holes: active nodes outside the cluster per
    active node inside, the square of that, and all active nodes.
    """
    if labels.shape != (adjacency.nodes,):
        raise ConfigError(
            f"There have to be as many labels as nodes; given are labels of shape {labels.shape} "
            f"and {adjacency.nodes:,} nodes."
        )
    key = live_edges.model_key(seed, model)
    weighted = model == "lt" and adjacency.weights is not None
    sums: Sums = _simulate(
        adjacency.starts,
        adjacency.neighbours,
        adjacency.weights,
        adjacency.degrees if weighted else np.empty(0),
        Gaps.of(probability),
        model == "ic",
        live_edges.SeedPools.of(labels, holes, share=seed_share, key=key),
        np.empty(0, np.int64) if times is None else times,
        first_run,
        runs,
        key,
    )
    return sums


@numba.njit(nogil=True, cache=True)
def _simulate(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
    gaps: Gaps,
    cascade: bool,
    pools: live_edges.SeedPools,
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    key: np.uint64,
) -> Sums:
    """Draw the live edges of one run after the other, and count for all holes what they reach."""
    nodes, holes = starts.size - 1, pools.keys.size
    parents, sizes = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    # From any node of a component, a cascade reaches the root and so all of it.
    forest = live_edges.Forest(parents, sizes, parents if cascade else np.empty(nodes, np.int32))
    pending = np.empty(nodes, np.int32)
    seeds = np.empty(pools.drawn.max() + 1, np.int32)
    tally = live_edges.Tally(np.zeros((holes + 1, 3)), times, np.zeros(nodes, np.int64), seeds)
    for run in range(runs):
        number = first_run + run
        run_key = live_edges.mixed_in(key, np.uint64(number))
        if cascade:
            draw_cascade_components(starts, neighbours, gaps, run_key, parents, sizes)
        else:
            draw_threshold_parents(starts, neighbours, weights, degrees, run_key, parents)
            root_cycles(forest, pending)
        live_edges.count_reached(forest, pools, number, 1 + run * holes, tally)
    return tally.sums
