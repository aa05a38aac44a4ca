"""Simulated runs beside measured ones, and those that no machine here can do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dask.system import CPU_COUNT

from figrl.bench.harness import planted_store
from figrl.bench.rates import measure_rates
from figrl.bench.results import Metric
from figrl.bench.scale import LIMIT_BYTES, SMALL_EDGES, embed_once
from figrl.bench.simulate import describe_simulated
from figrl.bench.simulated_stage import Modelled
from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates
from figrl.learn.plan import EmbedPlan, imagined_graph, plan_embedding
from figrl.learn.setup import Tiling
from figrl.learn.spec import EmbedOptions
from figrl.store.graph import open_graph
from figrl.store.layout import existing_store
from figrl.study.process import measure_in_process

WORKERS = (1, 2, 4)
_TIMES = 1.5
"""How far measured and simulated seconds may be from each other."""

GRAPHS = (10**8, 10**9, 10**10, 10**11)
FLEETS = (64, 1000)
_THREADS, _WORKER_BYTES, _MEAN_EDGES = 8, 64_000_000_000, 10
_NETWORK_RATE, _STORAGE_RATE = 12.5e9, 100e9


def bench_simulate(
    *, edges: int = 2_000_000, workers: Sequence[int] = WORKERS, rates: Rates | None = None
) -> list[Metric]:
    """Embed with some workers of one thread, and compare with the simulation of the same."""
    used = rates or measure_rates()
    found = []
    with planted_store(edges) as store, planted_store(SMALL_EDGES) as small:
        for number in workers:
            run = measure_in_process(
                embed_once, store=store, small=small, workers=number, threads=1
            )
            simulated = simulated_here(store, number, used)
            found.append(_beside(run.result["staged"], simulated, number, edges))
    return found


def simulated_here(store: str, workers: int, rates: Rates) -> float:
    """Seconds of the stages on some workers that share this machine."""
    memory = ClusterMemory(workers, 1, LIMIT_BYTES)
    plan = plan_embedding(open_graph(existing_store(store)), EmbedOptions(), memory)
    modelled = Modelled(memory, rates, cores=CPU_COUNT, workers_a_machine=workers)
    return float(describe_simulated(plan, modelled)["seconds"])


def _beside(measured: float, simulated: float, workers: int, edges: int) -> Metric:
    counted = f"{workers} worker{'' if workers == 1 else 's'} of 1 thread"
    what = f"simulate: {counted}, {edges / 1e6:.3g} M edges"
    apart = max(measured / simulated, simulated / measured)
    text = f"{measured:.2f} s measured, {simulated:.2f} s simulated: {measured / simulated:.2f} x"
    return Metric(what, apart, _TIMES, "x", detail=text)


@dataclass(frozen=True)
class Predicted:
    """A run on many workers, as it is planned and simulated.

    How products are cut, bytes and tasks are those where each worker has a disk of its own; so are
    `seconds` and what they are spent on. The others are with a fast network, and with a storage
    that all workers share.
    """

    nodes: int
    edges: int
    workers: int
    sketch: str
    smoothing: str
    moved_bytes: int
    tasks: int
    seconds: float
    binds: str
    network_seconds: float
    storage_seconds: float

    def describe(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def bench_workers(
    *, graphs: Sequence[int] = GRAPHS, fleets: Sequence[int] = FLEETS
) -> list[Predicted]:
    """Plan and simulate graphs of ten edges a node on workers of 8 threads and 64 GB."""
    return [predict(edges, workers) for edges in graphs for workers in fleets]


def predict(edges: int, workers: int) -> Predicted:
    """Plan and simulate one graph, by the ways in which workers reach the storage."""
    (plan, own), (_, network), (_, shared) = _ways(edges, workers)
    setup, spec = plan.setup, plan.setup.spec
    return Predicted(
        nodes=setup.graph.nodes,
        edges=edges,
        workers=workers,
        sketch=_cut(setup.wide, spec.width),
        smoothing=_cut(setup.narrow, spec.dim),
        moved_bytes=plan.describe()["network_bytes"],
        tasks=own["tasks"],
        seconds=own["seconds"],
        binds=own["binds"],
        network_seconds=network["seconds"],
        storage_seconds=shared["seconds"],
    )


def _ways(edges: int, workers: int) -> Iterator[tuple[EmbedPlan, dict[str, Any]]]:
    graph = imagined_graph(edges // _MEAN_EDGES, edges)
    for network, storage in ((None, math.inf), (_NETWORK_RATE, math.inf), (None, _STORAGE_RATE)):
        memory = ClusterMemory(workers, _THREADS, _WORKER_BYTES, storage, network)
        plan = plan_embedding(graph, EmbedOptions(), memory)
        yield plan, describe_simulated(plan, Modelled(memory, Rates()))


def _cut(tiling: Tiling, columns: int) -> str:
    slices = math.ceil(columns / tiling.slice_columns)
    text = f"{slices} slice{'' if slices == 1 else 's'}"
    if tiling.groups > 1:
        return f"{text} x {tiling.groups:,} groups"
    return f"{text}, chains" if tiling.chain else f"{text}, tiles"
