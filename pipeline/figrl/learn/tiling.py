"""How products are cut: the tiles that cost least among those that fit the memory of a worker."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from figrl.engine.cluster import ClusterMemory
from figrl.engine.rates import Rates
from figrl.engine.stage import RESERVED_BYTES, Stage, list_stages
from figrl.learn.embed import vectors_stages
from figrl.learn.projection import COLUMNS_PER_MIX
from figrl.learn.setup import WIDE_COLUMNS, Setup, Tiling, Which
from figrl.learn.sketch import sketch_stages

_MIN_SLICE, _SLICE_STEP = 16, 16
_CHAINED_FLOPS = 10_000_000_000
"""Of products between two that are written: a second or two, which is what a kill costs then."""

PARTS = ("compute", "memory", "disk", "tasks")
"""What seconds are spent on."""


@dataclass(frozen=True)
class PlannedStage:
    """A stage of the plan, in a worker that still holds the buffers of earlier stages.

    `fresh_bytes` is memory that it writes to for the first time.
    """

    stage: Stage
    peak_bytes: int
    fresh_bytes: int

    def seconds(self, rates: Rates, memory: ClusterMemory) -> dict[str, float]:
        """Predict how long the stage takes: computing and the disk overlap."""
        cost, tasks = self.stage.cost, len(self.stage.blocks)
        if not tasks:
            return dict.fromkeys((*PARTS, "total"), 0.0)
        threads, workers = memory.threads, memory.workers
        cores = threads if cost.whole_worker else min(workers * threads, tasks)
        busy = threads if cost.whole_worker else min(threads, tasks)
        parts = {
            "compute": rates.core_seconds(cost.work) / cores
            + rates.core_seconds(cost.worker_work) / busy,
            # Fresh pages come from the system one at a time, however many threads ask for them.
            "memory": self.fresh_bytes / rates.touch,
            "disk": (cost.read_bytes / rates.read + cost.written_bytes / rates.write) / workers,
            "tasks": tasks * rates.task_seconds + rates.stage_seconds,
        }
        busy_seconds = max(parts["compute"] + parts["memory"], parts["disk"])
        return {**parts, "total": busy_seconds + parts["tasks"]}


def plan_stages(stages: Sequence[Stage], threads: int) -> list[PlannedStage]:
    """Peak memory of each stage, with the buffers that workers hold since the last release."""
    planned = []
    shared = of_tasks = 0
    for stage in stages:
        if stage.releases_buffers:
            shared = of_tasks = 0
        held = shared + of_tasks
        if stage.blocks:
            shared = max(shared, stage.memory.shared_bytes)
            of_tasks = max(of_tasks, min(threads, len(stage.blocks)) * stage.memory.task_bytes)
        now = shared + of_tasks
        planned.append(PlannedStage(stage, RESERVED_BYTES + now, now - held))
    return planned


def _cost(setup: Setup, which: Which, memory: ClusterMemory) -> tuple[int, float]:
    """Peak memory and seconds of the stages that depend on a tiling."""
    stages = list_stages(sketch_stages(setup) if which == "wide" else vectors_stages(setup))
    planned, rates = plan_stages(stages, memory.threads), Rates()
    seconds = sum(stage.seconds(rates, memory)["total"] for stage in planned)
    return max(stage.peak_bytes for stage in planned), seconds


def choose_tiling(setup: Setup, which: Which, columns: int, memory: ClusterMemory) -> Setup:
    """Take the slices that cost least of those whose operand fits; parts of it where none does."""
    graph = setup.graph

    def with_tiling(width: int, rows: int) -> Setup:
        return setup.with_tiling(which, Tiling(width, rows))

    widths = _widths(setup, columns) if which == "wide" else _even_widths(columns, _SLICE_STEP)
    whole = [with_tiling(width, graph.nodes) for width in widths]
    costs = [(_cost(candidate, which, memory), candidate) for candidate in whole]
    fitting = [(s, candidate) for (peak, s), candidate in costs if peak <= memory.allowed_bytes]
    if fitting:
        return min(fitting, key=lambda pair: pair[0])[1]
    width = widths[-1]
    # Fewer rows than all, and beginning where chunks do, so that none is read twice.
    chunk_rows = setup.geometry.chunk_rows
    chunks = range(1, max((graph.nodes - 1) // chunk_rows, 1) + 1)

    def too_large(chunks: int) -> bool:
        return (
            _cost(with_tiling(width, chunks * chunk_rows), which, memory)[0] > memory.allowed_bytes
        )

    held = max(bisect.bisect_left(chunks, True, key=too_large), 1)
    return with_tiling(width, held * chunk_rows)


def chain_products(setup: Setup, which: Which, columns: int, memory: ClusterMemory) -> Setup:
    """The same with products in a row, if that fits: as many as a kill may undo."""
    tiling = setup.wide if which == "wide" else setup.narrow
    chain = _CHAINED_FLOPS // max(2 * 2 * setup.graph.edges * columns, 1)
    whole = tiling.slice_columns >= columns and tiling.operand_rows >= setup.graph.nodes
    if chain < 2 or not whole:
        return setup
    chained = setup.with_tiling(which, replace(tiling, chain=chain))
    return chained if _cost(chained, which, memory)[0] <= memory.allowed_bytes else setup


def _widths(setup: Setup, size: int) -> list[int]:
    """Widths of slices of the sketch, the widest first; chunks of the stored matrix fit in each."""
    if setup.is_wide:
        return _even_widths(size, WIDE_COLUMNS)
    if setup.spec.products == 1:
        return _even_widths(size, _SLICE_STEP)
    # All products lie in one matrix, so a slice divides each of them.
    even = (size // number for number in range(1, size + 1) if size % number == 0)
    return [w for w in even if w == size or (w >= _MIN_SLICE and w % COLUMNS_PER_MIX == 0)]


def _even_widths(size: int, step: int) -> list[int]:
    """Widths of slices, the widest first, each as even as it can be for its number of slices."""
    numbers = range(1, math.ceil(size / step) + 1)
    return sorted({math.ceil(size / number / step) * step for number in numbers}, reverse=True)
