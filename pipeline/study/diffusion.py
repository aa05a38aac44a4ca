"""How far news spreads from a structural hole, in its own cluster and in others."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError
from pipeline.files import load_array
from pipeline.run import map_once
from pipeline.study.adjacency import Adjacency, open_adjacency
from pipeline.study.percolation import count_cascades
from pipeline.study.spread import Model, count_active


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
    """Structural hole influence index of a node.

    Attributes
    ----------
    hole : int
    mean, error : float
        Mean over the runs of active nodes outside the hole's cluster over those inside it, and
        the standard error of that mean (nan for a single run).
    active : float
        Mean number of active nodes at the end of a run.
    runs : int
    """

    hole: int
    mean: float
    error: float
    active: float
    runs: int

    @classmethod
    def of(cls, hole: int, sums: RunSums) -> Shii:
        """Turn sums into means."""
        mean = sums.ratio / sums.runs
        error = math.nan
        if sums.runs > 1:
            variance = max(0.0, sums.ratio_squared / sums.runs - mean**2)
            error = math.sqrt(variance / (sums.runs - 1))
        return cls(hole, mean, error, sums.active / sums.runs, sums.runs)


def shii(
    client: distributed.Client | None,
    folder: Path,
    labels_path: Path,
    holes: Sequence[int],
    *,
    model: Model,
    runs: int = 10_000,
    seed: int = 0,
    probability: float = 0.1,
    chunk: int = 1000,
) -> list[Shii]:
    """Influence of each hole, its runs spread over the workers.

    Parameters
    ----------
    client : distributed.Client or None
        None computes with the threads of this process.
    folder : Path
        Written by `pipeline.study.adjacency.write_adjacency`; every worker has to see it.
    labels_path : Path
        An array file of integers: the cluster of each node.
    holes : sequence of int
        Rows of the nodes to judge.
    chunk : int
        Runs in one task. The result does not depend on it, up to the rounding of sums.
    """
    items = [
        (
            folder,
            labels_path,
            tuple(group),
            model,
            first,
            min(chunk, runs - first),
            seed,
            probability,
        )
        for group in ([[int(hole)] for hole in holes] if model == "lt" else [list(map(int, holes))])
        for first in range(0, runs, chunk)
    ]
    if client is not None:
        found = map_once(client, _chunk, items)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = [task.result() for task in [threads.submit(_chunk, *item) for item in items]]
    sums = {int(hole): RunSums(0, 0.0, 0.0, 0.0) for hole in holes}
    for part in found:
        for hole, of_hole in part.items():
            sums[hole] += of_hole
    return [Shii.of(int(hole), sums[int(hole)]) for hole in holes]


def _chunk(
    folder: Path,
    labels_path: Path,
    holes: Sequence[int],
    model: Model,
    first_run: int,
    runs: int,
    seed: int,
    probability: float,
) -> dict[int, RunSums]:
    return spread_ratios(
        open_adjacency(folder),
        load_array(labels_path, mapped=True),
        holes,
        model=model,
        first_run=first_run,
        runs=runs,
        seed=seed,
        probability=probability,
    )


def spread_ratios(
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
) -> dict[int, RunSums]:
    """Let news spread from each hole and some of its cluster, some times over.

    A run begins with the hole and ``max(1, round(seed_share |C|))`` others of its cluster ``C``,
    drawn without replacement (all others, where there are fewer). What it draws depends on
    nothing but the seed, the hole, the model and the number of the run.

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
    """
    if labels.shape != (adjacency.nodes,):
        raise ConfigError(
            f"There have to be as many labels as nodes; given are labels of shape {labels.shape} "
            f"and {adjacency.nodes:,} nodes."
        )
    pools = [_pool(labels, hole) for hole in holes]
    drawn = [min(pool.size - 1, max(1, round(seed_share * pool.size))) for pool in pools]
    nowhere = np.empty(0, np.int64)
    if model == "ic":
        final = count_cascades(adjacency, pools, drawn, nowhere, first_run, runs, seed, probability)
        return {hole: _sums(counts) for hole, counts in zip(holes, final, strict=True)}
    sums = {}
    for hole, pool, others in zip(holes, pools, drawn, strict=True):
        inside = np.asarray(labels == labels[hole])
        counts = count_active(adjacency, pool, others, inside, nowhere, first_run, runs, seed)
        sums[hole] = _sums(counts)
    return sums


def _pool(labels: npt.NDArray[Any], hole: int) -> npt.NDArray[np.int64]:
    """A hole, and the others of its cluster."""
    members = np.flatnonzero(labels == labels[hole])
    return np.concatenate([[hole], members[members != hole]]).astype(np.int64)


def _sums(counts: npt.NDArray[np.int64]) -> RunSums:
    ratios = (counts[:, 1] - counts[:, 0]) / counts[:, 0]
    total = float(counts[:, 1].sum())
    return RunSums(len(counts), float(ratios.sum()), float((ratios**2).sum()), total)


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
    pool = np.asarray(seeds, np.int64)
    times = np.zeros(adjacency.nodes, np.int64)
    if model == "ic":
        count_cascades(adjacency, [pool], [pool.size - 1], times, 0, runs, seed, probability)
    else:
        inside = np.zeros(adjacency.nodes, np.bool_)
        count_active(adjacency, pool, pool.size - 1, inside, times, 0, runs, seed)
    return times
