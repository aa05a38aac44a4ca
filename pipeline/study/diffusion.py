"""How far news spreads from structural holes, in their own clusters and in others (SHII)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.errors import ConfigError
from pipeline.files import load_array
from pipeline.job import Block, Job
from pipeline.study.adjacency import Adjacency, forget_adjacency, shared_adjacency
from pipeline.study.draws import Model
from pipeline.study.percolation import sum_cascades
from pipeline.study.reach import Pools
from pipeline.study.thresholds import sum_thresholds

_STEPS_IN_A_BLOCK, _FEWEST_BLOCKS = 150_000_000, 16
"""Nodes that the runs of a block look at, some seconds of work; and blocks, whatever that gives."""

_NODE_BYTES = 72
"""Memory of a task for a node: the forest of a run, and the clusters of the holes."""


@dataclass(frozen=True)
class RunSums:
    """Sums over some runs of a diffusion; those of parts of the runs add up."""

    runs: int
    ratio: float
    ratio_squared: float
    active: float

    def __add__(self, other: RunSums) -> RunSums:
        return RunSums(
            self.runs + other.runs,
            self.ratio + other.ratio,
            self.ratio_squared + other.ratio_squared,
            self.active + other.active,
        )


@dataclass(frozen=True)
class Shii:
    """Structural hole influence index: of a node, or the mean of several.

    Attributes
    ----------
    mean, error : float
        Mean over the runs of active nodes outside the hole's cluster over those inside it, and
        the standard error of that mean (nan for a single run).
    active : float
        Mean number of active nodes at the end of a run.
    runs : int
    """

    mean: float
    error: float
    active: float
    runs: int

    @classmethod
    def of(cls, sums: RunSums) -> Shii:
        """Turn sums into means."""
        mean = sums.ratio / sums.runs
        error = math.nan
        if sums.runs > 1:
            variance = max(0.0, sums.ratio_squared / sums.runs - mean**2)
            error = math.sqrt(variance / (sums.runs - 1))
        return cls(mean, error, sums.active / sums.runs, sums.runs)


@dataclass(frozen=True)
class Influence:
    """SHII of each hole, in their order, and of all of them together.

    The error of the mean of all is that of means of runs: holes share what a run draws.
    """

    holes: list[Shii]
    together: Shii


@dataclass(frozen=True)
class InfluenceTask:
    """What a block of runs has to know.

    Attributes
    ----------
    lists : Path
        Folder that `pipeline.study.adjacency.write_adjacency` wrote.
    labels, holes : Path
        Array files of integers: the cluster of each node, and the rows of the holes.
    model : {"lt", "ic"}
    seed : int
    probability : float
        Of the independent cascade model.
    """

    lists: Path
    labels: Path
    holes: Path
    model: Model
    seed: int = 0
    probability: float = 0.1


def influence_bytes(nodes: int, edges: int, *, weighted: bool, threads: int) -> int:
    """Memory that simulations need in a worker: the neighbour lists, and what each task holds."""
    lists = 8 * nodes + 2 * edges * (8 if weighted else 4)
    return lists + threads * _NODE_BYTES * nodes


def influence(job: Job, task: InfluenceTask, *, runs: int, nodes: int, members: int) -> Influence:
    """Simulate the influence of holes, in blocks of runs that are shared out.

    Parameters
    ----------
    job : Job
    task : InfluenceTask
    runs : int
    nodes, members : int
        Nodes of the graph, and of the holes' clusters, added up hole by hole: what a run looks at.
    """
    step = runs_in_a_block(runs, nodes, members)
    blocks = [
        Block(f"{first:09d}-{count}", (task, first, count))
        for first in range(0, runs, step)
        for count in [min(step, runs - first)]
    ]
    done = job.run(f"influence-{task.model}", influence_block, blocks)
    job.everywhere(forget_adjacency)
    # In the order of the runs, whichever block was done first.
    found = [done.stats[block.key] for block in blocks]
    total = np.sum([stats["sums"] for stats in found], axis=0)
    each = [Shii.of(RunSums(runs, *of_hole)) for of_hole in total.tolist()]
    return Influence(each[:-1], each[-1])


def runs_in_a_block(runs: int, nodes: int, members: int) -> int:
    """Runs that are worth a task, and of which a kill may cost all."""
    worth_a_task = _STEPS_IN_A_BLOCK // (nodes + 2 * members)
    return max(1, min(worth_a_task, -(-runs // _FEWEST_BLOCKS)))


def influence_block(task: InfluenceTask, first_run: int, runs: int) -> Stats:
    """Do some runs; tell the sums of each hole, and of all together."""
    labels = load_array(task.labels, mapped=True)
    sums = spread_sums(
        shared_adjacency(task.lists),
        labels,
        load_array(task.holes).tolist(),
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
) -> npt.NDArray[np.float64]:
    """Let news spread from each hole and some of its cluster, some times over.

    A run begins with the hole and ``max(1, round(seed_share |C|))`` others of its cluster ``C``,
    drawn without replacement (all others, where there are fewer). What a hole finds depends on
    nothing but the seed, the hole, the model and the numbers of the runs.

    Parameters
    ----------
    adjacency : Adjacency
    labels : int array, shape (nodes,)
    holes : sequence of int
    model : {"lt", "ic"}
        ``lt``: a node is active once active neighbours have at least a share of its degree that
        is uniform in (0, 1]. ``ic``: a newly active node activates each neighbour that is not,
        once, with `probability`.
    first_run, runs : int
        Number of the first run, and how many there are.

    Returns
    -------
    float64 array, shape (holes + 1, 3)
        Sums over the runs, of each hole and of the means over all holes: active nodes outside
        the cluster over those inside, the square of that, and all active nodes.
    """
    if labels.shape != (adjacency.nodes,):
        raise ConfigError(
            f"There have to be as many labels as nodes; given are labels of shape {labels.shape} "
            f"and {adjacency.nodes:,} nodes."
        )
    pools = Pools.of(labels, holes, share=seed_share)
    return _sums(adjacency, pools, model, np.empty(0, np.int64), first_run, runs, seed, probability)


def _sums(
    adjacency: Adjacency,
    pools: Pools,
    model: Model,
    times: npt.NDArray[np.int64],
    first_run: int,
    runs: int,
    seed: int,
    probability: float,
) -> npt.NDArray[np.float64]:
    if model == "ic":
        return sum_cascades(adjacency, pools, times, first_run, runs, seed, probability)
    return sum_thresholds(adjacency, pools, times, first_run, runs, seed)


def activations(
    adjacency: Adjacency,
    seeds: Sequence[int],
    *,
    model: Model,
    runs: int,
    seed: int,
    probability: float = 0.1,
) -> npt.NDArray[np.int64]:
    """Count in how many runs each node ends up active, from seeds that stay the same."""
    inside = np.zeros(adjacency.nodes, np.int64)
    inside[np.asarray(seeds)] = 1
    pools = Pools.of(inside, seeds[:1], share=1.0)
    times = np.zeros(adjacency.nodes, np.int64)
    _sums(adjacency, pools, model, times, 0, runs, seed, probability)
    return times
