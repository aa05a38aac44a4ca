"""Growth: the same pipeline on larger and larger graphs, within the same memory.

One run measures how the seconds of each stage grow, the peak memory of all processes, the error of
the predicted seconds, and how close the two large stages come to the limits of the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figrl.bench.harness import local_session, scratch, write_planted
from figrl.bench.rates import hardware_limits, measure_rates
from figrl.bench.results import Metric
from figrl.engine.rates import measured_rates
from figrl.engine.stage import group_by_name
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.plan import plan_embedding
from figrl.learn.spec import EmbedOptions
from figrl.serve.runs import run_embed
from figrl.store.graph import open_graph
from figrl.store.layout import existing_store
from figrl.study.process import measure_in_process

SIZES = (1_000_000, 10_000_000, 100_000_000)
LIMIT_BYTES = 6_000_000_000

_DRIVER_BYTES = 500_000_000
"""For the driver and the scheduler; the worker may use the rest."""


@dataclass(frozen=True)
class Grown:
    """Measurements of one graph size."""

    edges: int
    nodes: int
    peak_bytes: int
    measured: dict[str, float]
    predicted: dict[str, float]


def bench_growth(
    *, sizes: Sequence[int] = SIZES, sketch_size: int = 192, dim: int = 128
) -> list[Metric]:
    """Ingest and embed graphs of each size, in 6 GB for all processes together."""
    measure_in_process(measure)
    hardware = measure_in_process(hardware_limits).result
    grown = [_grow(edges, sketch_size, dim) for edges in sizes]
    metrics = [_exponent(grown, stage) for stage in grown[-1].measured]
    for size in grown:
        what = f"peak memory of all processes at {size.edges / 1e6:.3g} M edges"
        metrics.append(Metric(what, size.peak_bytes / 1e9, LIMIT_BYTES / 1e9, "GB"))
    metrics += [metric for size in grown[1:] for metric in _predictions(size)]
    return metrics + _shares(grown[-1], sketch_size, hardware)


def _grow(edges: int, sketch_size: int, dim: int) -> Grown:
    with scratch() as folder:
        measure_in_process(write_planted, folder=folder, edges=edges)
        done = measure_in_process(ours, folder=folder, sketch_size=sketch_size, dim=dim)
    return Grown(peak_bytes=done.peak_bytes, **done.result)


def measure() -> None:
    """Measure the rates of the machine, from which the plan predicts seconds."""
    measure_rates()


def ours(folder: str, sketch_size: int, dim: int) -> dict[str, Any]:
    """Ingest and embed; return the seconds of each stage, measured and predicted."""
    with local_session(LIMIT_BYTES - _DRIVER_BYTES) as session:
        stored = run_ingest(f"{folder}/edges/known", f"{folder}/store", IngestOptions(), session)
        config = EmbedOptions(preset="paper", dim=dim, sketch_size=sketch_size)
        learnt = run_embed(f"{folder}/store", config, session)
        graph = open_graph(existing_store(f"{folder}/store"))
        memory = session.memory(session.connected())
        plan = plan_embedding(graph, config, memory).describe(measured_rates())
    groups = group_by_name(learnt["stages"])
    learning = {name: group["seconds"] for name, group in groups.items()}
    return {
        "edges": stored["edges"],
        "nodes": stored["nodes"],
        "measured": {"ingest": stored["seconds"], **learning},
        "predicted": {stage["name"]: stage["seconds"] for stage in plan["stages"]},
    }


def _exponent(grown: Sequence[Grown], stage: str) -> Metric:
    """Slope of the logarithm of seconds over that of edges."""
    seconds = [size.measured[stage] for size in grown]
    slope = float(np.polyfit(np.log([size.edges for size in grown]), np.log(seconds), 1)[0])
    detail = ", ".join(
        f"{value:.3g} s at {size.edges / 1e6:.3g} M"
        for size, value in zip(grown, seconds, strict=True)
    )
    return Metric(f"growth of {stage} with edges, exponent", slope, 1.1, detail=detail)


def _predictions(size: Grown) -> list[Metric]:
    metrics = []
    for stage, predicted in size.predicted.items():
        measured = size.measured[stage]
        what = f"predicted seconds of {stage} at {size.edges / 1e6:.3g} M edges, off by a factor"
        detail = f"predicted {predicted:.3g} s, measured {measured:.3g} s"
        factor = math.exp(abs(math.log(predicted / measured)))
        metrics.append(Metric(what, factor, 1.5, "x", False, detail))
    return metrics


def _shares(size: Grown, sketch_size: int, hardware: dict[str, float]) -> list[Metric]:
    """Least seconds that the hardware allows, over those measured."""
    matrix_bytes = 4 * size.nodes * sketch_size
    # The operand is written, its rows are summed along both directions of the edges, and the
    # result is written to memory and to disk.
    moved = 4 * 2 * size.edges * sketch_size + 3 * matrix_bytes
    memory, sgemm = hardware["memory_bytes"], hardware["sgemm_flops"]
    factor = max(size.nodes * sketch_size**2 / sgemm, matrix_bytes / memory)
    metrics = []
    for stage, least, machine in (
        ("sketch", moved / memory, f"memory moves {memory / 1e9:.3g} GB/s"),
        ("factor", factor, f"sgemm does {sgemm / 1e9:.3g} GFLOP/s"),
    ):
        measured = size.measured[stage]
        what = f"{stage} at {size.edges / 1e6:.3g} M edges: share of what the hardware allows"
        detail = f"{machine}: {least:.3g} s at least, {measured:.3g} s measured"
        metrics.append(Metric(what, least / measured, 0.5, "", True, detail))
    return metrics
