"""What embedding a graph costs, known before it is run, and whether it fits."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.config import EmbedConfig
from pipeline.costs import (
    KEPT_ENTRY_BYTES,
    RESERVED_BYTES,
    Geometry,
    StageCost,
    Tiling,
    factor_costs,
    run_bytes,
    sketch_cost,
    tile_bytes,
    vectors_cost,
)
from pipeline.errors import ResourceError
from pipeline.graph import Graph
from pipeline.ingest.partition import choose_block_rows
from pipeline.measure import human_bytes
from pipeline.rates import Rates, known_rates
from pipeline.run import ClusterMemory

_MIN_SLICE, _SLICE_STEP = 16, 16
_PARTS = ("compute", "memory", "disk", "tasks")


@dataclass(frozen=True)
class EmbedPlan:
    """The cost of a run, stage by stage."""

    graph: Graph
    config: EmbedConfig
    memory: ClusterMemory
    sketch_size: int
    geometry: Geometry
    tiling: Tiling
    stages: tuple[StageCost, ...]

    @property
    def peak_bytes(self) -> int:
        """Most memory that a worker process will hold."""
        return max(stage.peak_bytes(self.memory.threads) for stage in self.stages)

    def cut_like(self, tiling: Tiling) -> EmbedPlan:
        """The same plan for a product that is cut otherwise."""
        stages = _stages(self.graph, self.config, self.sketch_size, self.geometry, tiling)
        return replace(self, tiling=tiling, stages=stages)

    def fits(self, tiling: Tiling) -> bool:
        """Whether a product that is cut like this fits the memory of the workers."""
        cost = sketch_cost(self.graph, self.sketch_size, tiling, self.geometry)
        return cost.peak_bytes(self.memory.threads) <= self.memory.allowed_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory of a worker in which the product may keep the graph from slice to slice.

        What the stage leaves of the memory that may be used; none where reading an entry again for
        every slice costs less than to write it to memory once.
        """
        rates, _ = known_rates()
        again = math.ceil(self.sketch_size / self.tiling.slice_columns) - 1
        if again / rates.entries < KEPT_ENTRY_BYTES / rates.touch:
            return 0
        (sketch,) = (stage for stage in self.stages if stage.name == "sketch")
        room = max(self.memory.allowed_bytes - sketch.peak_bytes(self.memory.threads), 0)
        entry_bytes = KEPT_ENTRY_BYTES + 4 * self.graph.weighted
        return min(room, entry_bytes * 2 * self.graph.edges + 16 * self.graph.nodes)

    @property
    def disk_bytes(self) -> int:
        """Disk that the run takes."""
        return sum(stage.written_bytes for stage in self.stages)

    def seconds(self, rates: Rates) -> dict[str, dict[str, float]]:
        """Predicted seconds of each stage, by what it takes them for."""
        shape = {"workers": self.memory.workers, "threads": self.memory.threads}
        return {stage.name: stage.seconds(rates, **shape) for stage in self.stages}

    @property
    def notes(self) -> list[str]:
        """What a person should know before the run."""
        if self.sketch_size <= self.graph.nodes:
            return []
        origin = "the paper's rule asks for" if self.config.sketch_size is None else "you asked for"
        return [
            f"{origin[0].upper()}{origin[1:]} {self.sketch_size:,} sketch columns, more than the "
            f"graph has nodes ({self.graph.nodes:,}): the sketch is larger than the matrix it "
            "stands for. A larger --epsilon or a --sketch-size would be cheaper."
        ]

    def check(self, free_disk_bytes: int) -> None:
        """Refuse what does not fit, with the numbers and the option to change."""
        threads, allowed = self.memory.threads, self.memory.allowed_bytes
        worst = max(self.stages, key=lambda stage: stage.peak_bytes(threads))
        if worst.peak_bytes(threads) > allowed:
            limit = math.ceil(worst.peak_bytes(threads) / self.memory.usable_share / 1e7) * 10
            raise ResourceError(
                f"Stage '{worst.name}' needs {human_bytes(worst.peak_bytes(threads))} in each "
                f"worker ({human_bytes(RESERVED_BYTES)} for the process, "
                f"{human_bytes(worst.shared_bytes)} shared, {human_bytes(worst.task_bytes)} for "
                f"each of {threads} threads); {human_bytes(allowed)} may be used of a limit of "
                f"{human_bytes(self.memory.limit_bytes)}. Raise --memory-limit to {limit}MB, use "
                "workers with fewer threads, or lower --sketch-size (or raise --epsilon)."
            )
        if self.disk_bytes > free_disk_bytes:
            raise ResourceError(
                f"The run needs {human_bytes(self.disk_bytes)} of disk, and "
                f"{human_bytes(free_disk_bytes)} are free. Free some, put the store elsewhere, or "
                "lower --sketch-size (or raise --epsilon)."
            )

    def describe(self) -> dict[str, Any]:
        """Give the plan as JSON can write it."""
        threads = self.memory.threads
        rates, measured = known_rates()
        seconds = self.seconds(rates)
        parts = {part: sum(stage[part] for stage in seconds.values()) for part in _PARTS}
        return {
            "nodes": self.graph.nodes,
            "edges": self.graph.edges,
            "dim": self.config.dim,
            "sketch_size": self.sketch_size,
            "workers": self.memory.workers,
            "threads_per_worker": threads,
            "memory_limit_bytes": self.memory.limit_bytes,
            "allowed_bytes": self.memory.allowed_bytes,
            "reserved_bytes": RESERVED_BYTES,
            "peak_worker_bytes": self.peak_bytes,
            "kept_bytes": self.kept_bytes,
            "disk_bytes": self.disk_bytes,
            "geometry": asdict(self.geometry),
            "tiling": asdict(self.tiling),
            "stages": [
                {
                    **asdict(stage),
                    "peak_bytes": stage.peak_bytes(threads),
                    "seconds": round(seconds[stage.name]["total"], 3),
                }
                for stage in self.stages
            ],
            "seconds": round(sum(stage["total"] for stage in seconds.values()), 3),
            "seconds_by_part": {part: round(value, 3) for part, value in parts.items()},
            "network_bytes": sum(stage.read_bytes + stage.written_bytes for stage in self.stages),
            "binds": max(parts, key=parts.__getitem__),
            "rates": {**asdict(rates), "measured": measured},
            "notes": self.notes,
        }


def plan_embedding(graph: Graph, config: EmbedConfig, memory: ClusterMemory) -> EmbedPlan:
    """Work out blocks, slices and costs for a graph on a cluster."""
    size = config.resolve_sketch_size(graph.nodes)
    geometry = Geometry.of(graph, size)
    tiling = _choose_tiling(graph, size, geometry, memory)
    stages = _stages(graph, config, size, geometry, tiling)
    return EmbedPlan(graph, config, memory, size, geometry, tiling, stages)


def _stages(
    graph: Graph, config: EmbedConfig, size: int, geometry: Geometry, tiling: Tiling
) -> tuple[StageCost, ...]:
    return (
        sketch_cost(graph, size, tiling, geometry),
        *factor_costs(graph, size, geometry, tiling),
        vectors_cost(graph, size, config.dim, geometry, tiling),
    )


def _choose_tiling(graph: Graph, size: int, geometry: Geometry, memory: ClusterMemory) -> Tiling:
    """Take the slices that cost least of those whose operand fits; parts of it where none does."""
    rates, _ = known_rates()

    def cost(tiling: Tiling) -> StageCost:
        return sketch_cost(graph, size, tiling, geometry)

    def seconds(tiling: Tiling) -> float:
        shape = {"workers": memory.workers, "threads": memory.threads}
        return cost(tiling).seconds(rates, **shape)["total"]

    fitting = [
        tiling
        for tiling in (Tiling(columns, graph.nodes) for columns in _widths(size))
        if cost(tiling).peak_bytes(memory.threads) <= memory.allowed_bytes
    ]
    return (
        min(fitting, key=seconds) if fitting else _operand_in_parts(graph, size, geometry, memory)
    )


def _widths(size: int) -> list[int]:
    """Widths of slices, the widest first, each as even as it can be for its number of slices."""
    numbers = range(1, math.ceil(size / _MIN_SLICE) + 1)
    widths = {math.ceil(size / number / _SLICE_STEP) * _SLICE_STEP for number in numbers}
    return sorted(widths, reverse=True)


def _operand_in_parts(graph: Graph, size: int, geometry: Geometry, memory: ClusterMemory) -> Tiling:
    columns = min(_MIN_SLICE, math.ceil(size / 4) * 4)
    room = (memory.allowed_bytes - RESERVED_BYTES) // memory.threads - run_bytes(graph)
    rows = (room - tile_bytes(graph, geometry, columns, parts=2)) // (4 * columns)
    # Fewer than all, and beginning where chunks do, so that none is read twice.
    rows, chunk = min(rows, graph.nodes - 1), geometry.chunk_rows
    return Tiling(slice_columns=columns, operand_rows=max(rows // chunk * chunk, chunk))


def imagined_graph(nodes: int, edges: int) -> Graph:
    """A graph that is not there, for a plan: unweighted, its edges spread evenly over blocks."""
    block_rows = choose_block_rows(nodes, 2 * edges)
    blocks = math.ceil(nodes / block_rows)
    return Graph(
        path=Path(),
        version="imagined",
        nodes=nodes,
        edges=edges,
        block_rows=block_rows,
        blocks=blocks,
        largest_block_edges=math.ceil(2 * edges / blocks),
        id_kind="int",
        id_starts=(0, nodes),
        weighted=False,
        mean_degree=2 * edges / nodes,
    )
