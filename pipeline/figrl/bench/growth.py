"""Growth: the same pipeline on larger and larger graphs, within the same memory.

One run measures how the seconds of each stage grow, what embedding takes beside ingest, memory
beside what was planned, the error of the predicted seconds, and how close the two large stages of
the preset `paper` come to the limits of the hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from figrl.bench.harness import local_session, scratch, write_planted
from figrl.bench.rates import hardware_limits, measure_rates
from figrl.bench.results import Metric
from figrl.config import make_options
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


_PAPER_COLUMNS = 192
"""Columns of the preset `paper`; the paper's rule would ask for far more."""

_TIMES_INGEST = 5.0
"""How many times the seconds of ingest all other stages together may take."""


@dataclass(frozen=True)
class Grown:
    """Measurements of one graph size.

    Seconds of the stages, measured and predicted; peaks of the worker, measured and planned;
    columns times products with the graph, and bytes that the stages read and wrote.
    """

    edges: int
    nodes: int
    peak_bytes: int
    measured: dict[str, float]
    predicted: dict[str, float]
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)
    column_products: int = 0
    moved_bytes: int = 0

    @property
    def size(self) -> str:
        """The edges, for people."""
        return f"{self.edges / 1e6:.3g} M edges"


def bench_growth(
    *, sizes: Sequence[int] = SIZES, preset: str = "accurate", dim: int = 128
) -> list[Metric]:
    """Ingest and embed graphs of each size, in 6 GB for all processes together."""
    measure_in_process(measure)
    grown = [_grow(edges, preset, dim) for edges in sizes]
    metrics = [_exponent(grown, stage) for stage in _stages(grown)]
    metrics.append(_exponent(grown, "all stages"))
    for size in grown:
        metrics += [_beside_ingest(size), _memory(size), *_worker_memory(size)]
    metrics += [metric for size in grown[1:] for metric in _predictions(size)]
    if preset != "paper":
        return metrics
    return metrics + _shares(grown[-1], measure_in_process(hardware_limits).result)


def _stages(grown: Sequence[Grown]) -> list[str]:
    """Stages that every size has: large graphs combine partial sums once more."""
    return [name for name in grown[0].measured if all(name in size.measured for size in grown)]


def _grow(edges: int, preset: str, dim: int) -> Grown:
    with scratch() as folder:
        measure_in_process(write_planted, folder=folder, edges=edges)
        done = measure_in_process(ours, folder=folder, preset=preset, dim=dim)
    return Grown(peak_bytes=done.peak_bytes, **done.result)


def measure() -> None:
    """Measure the rates of the machine, from which the plan predicts seconds."""
    measure_rates()


def ours(folder: str, preset: str, dim: int) -> dict[str, Any]:
    """Ingest and embed; return the seconds of each stage, measured and predicted."""
    columns = {"sketch_size": _PAPER_COLUMNS} if preset == "paper" else {}
    config = make_options(EmbedOptions, {"preset": preset, "dim": dim, **columns})
    with local_session(LIMIT_BYTES - _DRIVER_BYTES) as session:
        stored = run_ingest(f"{folder}/edges/known", f"{folder}/store", IngestOptions(), session)
        learnt = run_embed(f"{folder}/store", config, session)
        graph = open_graph(existing_store(f"{folder}/store"))
        memory = session.memory(session.connected())
        plan = plan_embedding(graph, config, memory).describe(measured_rates())
    groups = group_by_name(learnt["stages"])
    learning = {name: group["seconds"] for name, group in groups.items()}
    planned = {stage["name"]: stage for stage in plan["stages"]}
    spec = plan["spec"]
    products = 1 if preset == "paper" else spec["depth"] + 1
    return {
        "edges": stored["edges"],
        "nodes": stored["nodes"],
        "measured": {"ingest": stored["seconds"], **learning},
        "predicted": {name: stage["seconds"] for name, stage in planned.items()},
        "peaks": {
            name: (groups[name]["peak_bytes"], stage["peak_bytes"] + plan["kept_bytes"])
            for name, stage in planned.items()
        },
        "column_products": spec["width"] * products + dim * spec["smoothing"],
        "moved_bytes": sum(
            group["read_bytes"] + group["written_bytes"] for group in groups.values()
        ),
    }


def _seconds(size: Grown, stage: str) -> float:
    return sum(size.measured.values()) if stage == "all stages" else size.measured[stage]


def _beside_ingest(size: Grown) -> Metric:
    """All stages after ingest, over ingest."""
    ingest = size.measured["ingest"]
    after = sum(size.measured.values()) - ingest
    detail = (
        f"{after:.3g} s, ingest {ingest:.3g} s; {size.column_products:,} column products, "
        f"{size.moved_bytes / 1e9:.3g} GB read and written"
    )
    what = f"stages after ingest over ingest at {size.size}"
    return Metric(what, after / ingest, _TIMES_INGEST, "x", detail=detail)


def _memory(size: Grown) -> Metric:
    what = f"peak memory of all processes at {size.size}"
    return Metric(what, size.peak_bytes / 1e9, LIMIT_BYTES / 1e9, "GB")


def _worker_memory(size: Grown) -> list[Metric]:
    """Peak of the worker in each stage, over the planned one."""
    return [
        Metric(
            f"memory of {stage} at {size.size}, share of what was planned",
            measured / planned,
            1.0,
            detail=f"{measured / 1e9:.3g} GB, planned {planned / 1e9:.3g} GB",
        )
        for stage, (measured, planned) in size.peaks.items()
    ]


def _exponent(grown: Sequence[Grown], stage: str) -> Metric:
    """Slope of the logarithm of seconds over that of edges."""
    seconds = [_seconds(size, stage) for size in grown]
    slope = float(
        np.polyfit(np.log([size.edges for size in grown]), np.log(np.maximum(seconds, 1e-3)), 1)[0]
    )
    detail = ", ".join(
        f"{value:.3g} s at {size.edges / 1e6:.3g} M"
        for size, value in zip(grown, seconds, strict=True)
    )
    return Metric(f"growth of {stage} with edges, exponent", slope, 1.1, detail=detail)


def _predictions(size: Grown) -> list[Metric]:
    metrics = []
    for stage, predicted in size.predicted.items():
        measured = size.measured[stage]
        what = f"predicted seconds of {stage} at {size.size}, off by a factor"
        detail = f"predicted {predicted:.3g} s, measured {measured:.3g} s"
        factor = math.exp(abs(math.log(max(predicted, 1e-3) / max(measured, 1e-3))))
        metrics.append(Metric(what, factor, 1.5, "x", False, detail))
    return metrics


def _shares(size: Grown, hardware: dict[str, float]) -> list[Metric]:
    """Least seconds that the hardware allows, over those measured."""
    matrix_bytes = 4 * size.nodes * _PAPER_COLUMNS
    # The operand is written, its rows are summed along both directions of the edges, and the
    # result is written to memory and to disk.
    moved = 4 * 2 * size.edges * _PAPER_COLUMNS + 3 * matrix_bytes
    memory, sgemm = hardware["memory_bytes"], hardware["sgemm_flops"]
    factor = max(size.nodes * _PAPER_COLUMNS**2 / sgemm, matrix_bytes / memory)
    metrics = []
    for stage, least, machine in (
        ("sketch", moved / memory, f"memory moves {memory / 1e9:.3g} GB/s"),
        ("factor", factor, f"sgemm does {sgemm / 1e9:.3g} GFLOP/s"),
    ):
        measured = size.measured[stage]
        what = f"{stage} at {size.size}: share of what the hardware allows"
        detail = f"{machine}: {least:.3g} s at least, {measured:.3g} s measured"
        metrics.append(Metric(what, least / measured, 0.5, "", True, detail))
    return metrics
