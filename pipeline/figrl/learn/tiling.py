"""How products are cut: the tiles that cost least among those that fit the memory of a worker."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates
from figrl.engine.stage import RESERVED_BYTES, Stage, list_stages
from figrl.learn.embed import sketch_readers, vectors_stages
from figrl.learn.projection import COLUMNS_PER_MIX
from figrl.learn.setup import WIDE_COLUMNS, Setup, Tiling, Which
from figrl.learn.sketch import sketch_stages

_MIN_SLICE, _SLICE_STEP = 16, 16
_NARROW_SLICES = (8, 4)
"""Of a grid of many workers: less than a line of the processor's cache, but each reads less."""

_CHAINED_FLOPS = 10_000_000_000
"""Of products between two that are written: a second or two, which is what a kill costs then."""

_FEW_WORKERS = 8
"""Up to so many, what fits whole is not read often enough for a grid to be tried."""

_CELLS_PER_WORKER = (1 / 16, 1 / 8, 0.25, 0.5, 1, 2, 4)
"""Cells of a grid that are tried: fewer read the operand less often, more take less memory."""

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

    def asked_bytes(self, workers: int) -> int:
        """Bytes that workers ask for; those that have no block read nothing."""
        return self.stage.cost.all_read_bytes(min(workers, len(self.stage.blocks)))

    def seconds(self, rates: Rates, memory: ClusterMemory) -> dict[str, float]:
        """Predict how long the stage takes.

        A block of a thread computes while others read; one of a whole worker does the one after
        the other. Disks of workers that have no block are of no use.
        """
        cost, tasks = self.stage.cost, len(self.stage.blocks)
        if not tasks:
            return dict.fromkeys((*PARTS, "total"), 0.0)
        threads, workers = memory.threads, min(memory.workers, tasks)
        # Workers that have a task less than others wait for them.
        rounds = math.ceil(tasks / workers)
        cores = threads * tasks / rounds if cost.whole_worker else min(workers * threads, tasks)
        busy = threads if cost.whole_worker else min(threads, tasks)
        disks = tasks / rounds if cost.whole_worker else workers
        read = self.asked_bytes(workers) + cost.again_bytes
        parts = {
            "compute": rates.core_seconds(cost.work) / cores
            + rates.core_seconds(cost.worker_work) / busy,
            # Fresh pages come from the system one at a time, however many threads ask for them.
            "memory": self.fresh_bytes / rates.touch,
            "disk": max(
                memory.disk_seconds(rates, read, cost.written_bytes) / disks,
                (read + cost.written_bytes) / memory.storage_rate,
            ),
            "tasks": tasks * rates.task_seconds + rates.stage_seconds,
        }
        computing = parts["compute"] + parts["memory"]
        both = sum if cost.whole_worker else max
        busy_seconds = both((computing, parts["disk"]))
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
    """Peak memory of the stages that are cut by a tiling; seconds of those and of their readers."""
    cut = list_stages(sketch_stages(setup) if which == "wide" else vectors_stages(setup))
    planned, rates = plan_stages(cut, memory.threads), Rates()
    peak = max(stage.peak_bytes for stage in planned)
    if which == "wide" and memory.workers > _FEW_WORKERS:
        planned += plan_stages(sketch_readers(setup), memory.threads)
    return peak, sum(stage.seconds(rates, memory)["total"] for stage in planned)


def choose_tiling(setup: Setup, which: Which, columns: int, memory: ClusterMemory) -> Setup:
    """Take the way to spread products that costs least of those that fit."""
    widths = _widths(setup, columns) if which == "wide" else _even_widths(columns, _SLICE_STEP)
    held = [
        setup.with_tiling(which, tiling)
        for width in widths
        for tiling in _ways_to_hold(setup, which, width, memory)
    ]
    fitting = _fitting(held, which, memory)
    if not fitting or memory.workers > _FEW_WORKERS:
        if memory.workers > _FEW_WORKERS and not setup.is_wide:
            widths = [*widths, *(w for w in _NARROW_SLICES if columns % w == 0)]
        grids = [grid for width in widths for grid in _grids(setup, which, width, memory)]
        fitting += _fitting(grids, which, memory)
        # Where nothing fits, the plan is refused with the smallest of them.
        fitting = fitting or [(math.inf, grids[-1])]
    return min(fitting, key=lambda pair: pair[0])[1]


def _fitting(
    candidates: list[Setup], which: Which, memory: ClusterMemory
) -> list[tuple[float, Setup]]:
    """Seconds of the candidates that fit."""
    costs = [(_cost(candidate, which, memory), candidate) for candidate in candidates]
    return [(s, candidate) for (peak, s), candidate in costs if peak <= memory.allowed_bytes]


def _ways_to_hold(
    setup: Setup, which: Which, width: int, memory: ClusterMemory
) -> Iterator[Tiling]:
    """Tilings that hold all rows of a slice of the operand: shared by tiles, or one worker's."""
    nodes = setup.graph.nodes
    yield Tiling(width, nodes)
    columns = setup.spec.width if which == "wide" else setup.spec.dim
    # A single slice would leave the other workers without work.
    if memory.workers > 1 and width < columns and not setup.is_small:
        most = setup.spec.products if which == "wide" else max(setup.spec.smoothing, 1)
        chain = min(max(_chained(setup, width), 1), most)
        yield from (Tiling(width, nodes, chain, holds) for holds in (True, False))


def _grids(setup: Setup, which: Which, width: int, memory: ClusterMemory) -> Iterator[Setup]:
    """Grids of row groups, each with the largest parts of the operand that fit beside its rows."""
    # Fewer rows than all, and beginning where chunks do, so that none is read twice.
    chunk_rows, blocks = setup.geometry.chunk_rows, setup.graph.blocks
    most = max((setup.graph.nodes - 1) // chunk_rows, 1)
    columns = setup.spec.width if which == "wide" else setup.spec.dim
    slices = math.ceil(columns / width)
    # Rounded down: of a cell more than there are workers, all others wait for one.
    wanted = {max(int(memory.workers * cells / slices), 1) for cells in _CELLS_PER_WORKER}
    # And so many that the rows of a group take half of the memory.
    room = max(memory.allowed_bytes - RESERVED_BYTES, 1)
    wanted.add(math.ceil(2 * 4 * setup.graph.nodes * width / room))
    for groups in sorted({min(count, blocks) for count in wanted}):
        small = setup.with_tiling(which, Tiling(width, chunk_rows, groups=groups))
        room = memory.allowed_bytes - _cost(small, which, memory)[0]
        chunks = min(1 + max(room, 0) // (4 * width * chunk_rows), most)
        yield setup.with_tiling(which, Tiling(width, chunks * chunk_rows, groups=groups))


def _chained(setup: Setup, columns: int) -> int:
    """Products of some columns that a kill may undo."""
    return _CHAINED_FLOPS // max(2 * 2 * setup.graph.edges * columns, 1)


def chain_products(setup: Setup, which: Which, columns: int, memory: ClusterMemory) -> Setup:
    """The same with all columns of some products in a row in one worker, if that fits."""
    tiling, chain = setup.wide if which == "wide" else setup.narrow, _chained(setup, columns)
    whole = tiling.slice_columns >= columns and tiling.operand_rows >= setup.graph.nodes
    if chain < 2 or not whole:
        return setup
    chained = setup.with_tiling(which, replace(tiling, chain=chain, holds_graph=True))
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
