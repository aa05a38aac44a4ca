"""Growth: the same pipeline on ever larger graphs, in memory that stays the same.

One run tells how the seconds of each stage grow, how much memory all processes take, how well the
plan predicted it, and how near the machine's own limits the two large stages come.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.api import Session, run_embed, run_ingest
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig, IngestConfig
from pipeline.rates import measure_rates
from pipeline.stages import planned_stage
from pipeline.study.bench.lines import Figure
from pipeline.study.bench.process import run_apart

SIZES = (1_000_000, 10_000_000, 100_000_000)
LIMIT_BYTES = 6_000_000_000

_DRIVER_BYTES = 500_000_000
"""For the process that runs the job and the scheduler; the worker may use the rest."""


@dataclass(frozen=True)
class Grown:
    """What one size took."""

    edges: int
    nodes: int
    peak_bytes: int
    measured: dict[str, float]
    predicted: dict[str, float]


def bench_growth(
    *, sizes: Sequence[int] = SIZES, sketch_size: int = 192, dim: int = 128
) -> list[Figure]:
    """Ingest and embed graphs of each size, in 6 GB for all processes together."""
    run_apart(f"{__name__}:measure")
    hardware = run_apart("pipeline.study.bench.hardware:limits").result
    grown = [_grow(edges, sketch_size, dim) for edges in sizes]
    figures = [_exponent(grown, stage) for stage in grown[-1].measured]
    figures += [_peak(size) for size in grown]
    figures += [figure for size in grown[1:] for figure in _predictions(size)]
    return figures + _shares(grown[-1], sketch_size, hardware)


def _grow(edges: int, sketch_size: int, dim: int) -> Grown:
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        run_apart("pipeline.study.bench.ingest:make", folder=folder, edges=edges, ids="int")
        done = run_apart(f"{__name__}:ours", folder=folder, sketch_size=sketch_size, dim=dim)
    return Grown(peak_bytes=done.peak_bytes, **done.result)


def measure() -> None:
    """Measure the machine, for the plan."""
    measure_rates()


def ours(folder: str, sketch_size: int, dim: int) -> dict[str, Any]:
    """Ingest and embed; tell the seconds of each stage, and what the plan had said."""
    limit = LIMIT_BYTES - _DRIVER_BYTES
    with connect(ClusterConfig(), limit) as client:
        session = Session(client, limit)
        stored = run_ingest(f"{folder}/edges/known", f"{folder}/store", IngestConfig(), session)
        config = EmbedConfig(preset="paper", dim=dim, sketch_size=sketch_size)
        learnt = run_embed(f"{folder}/store", config, session)
    stages = {stage["name"]: stage["seconds"] for stage in learnt["stages"]}
    return {
        "edges": stored["edges"],
        "nodes": stored["nodes"],
        "measured": {"ingest": stored["seconds"], **_by_planned_stage(stages, learnt["plan"])},
        "predicted": {stage["name"]: stage["seconds"] for stage in learnt["plan"]["stages"]},
    }


def _by_planned_stage(stages: dict[str, float], plan: dict[str, Any]) -> dict[str, float]:
    """Seconds by the stages of the plan, which counts the rounds of a combination as one."""
    named = {stage["name"]: 0.0 for stage in plan["stages"]}
    for name, seconds in stages.items():
        named[planned_stage(name)] += seconds
    return named


def _exponent(grown: Sequence[Grown], stage: str) -> Figure:
    """Slope of the logarithm of seconds over that of edges."""
    seconds = [size.measured[stage] for size in grown]
    slope = float(np.polyfit(np.log([size.edges for size in grown]), np.log(seconds), 1)[0])
    detail = ", ".join(
        f"{value:.3g} s at {size.edges / 1e6:.3g} M"
        for size, value in zip(grown, seconds, strict=True)
    )
    return Figure(f"growth of {stage} with edges, exponent", slope, 1.1, detail=detail)


def _peak(size: Grown) -> Figure:
    what = f"peak memory of all processes at {size.edges / 1e6:.3g} M edges"
    return Figure(what, size.peak_bytes / 1e9, LIMIT_BYTES / 1e9, "GB")


def _predictions(size: Grown) -> list[Figure]:
    figures = []
    for stage, predicted in size.predicted.items():
        measured = size.measured[stage]
        what = f"predicted seconds of {stage} at {size.edges / 1e6:.3g} M edges, off by a factor"
        detail = f"predicted {predicted:.3g} s, measured {measured:.3g} s"
        figures.append(
            Figure(what, math.exp(abs(math.log(predicted / measured))), 1.5, "x", False, detail)
        )
    return figures


def _shares(size: Grown, sketch_size: int, hardware: dict[str, float]) -> list[Figure]:
    """Least seconds that the machine allows over those that were measured."""
    matrix_bytes = 4 * size.nodes * sketch_size
    # The operand is written, its rows are added up along both directions of the edges, the result
    # is written, and the disk reads it.
    moved = 4 * 2 * size.edges * sketch_size + 3 * matrix_bytes
    memory, sgemm = hardware["memory_bytes"], hardware["sgemm_flops"]
    least = {
        "sketch": (moved / memory, f"memory moves {memory / 1e9:.3g} GB/s"),
        "factor": (
            max(size.nodes * sketch_size**2 / sgemm, matrix_bytes / memory),
            f"sgemm does {sgemm / 1e9:.3g} GFLOP/s",
        ),
    }
    return [
        Figure(
            f"{stage} at {size.edges / 1e6:.3g} M edges: share of what the hardware allows",
            seconds / size.measured[stage],
            0.5,
            at_least=True,
            detail=f"{machine}: {seconds:.3g} s at least, {size.measured[stage]:.3g} s measured",
        )
        for stage, (seconds, machine) in least.items()
    ]
