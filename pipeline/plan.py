"""What embedding a graph costs, known before it is run, and whether it fits."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
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
    Tilings,
)
from pipeline.errors import ResourceError
from pipeline.graph import Graph
from pipeline.ingest.partition import choose_block_rows
from pipeline.measure import human_bytes
from pipeline.rates import Rates, known_rates
from pipeline.recipe import Recipe, make_recipe
from pipeline.run import ClusterMemory
from pipeline.stages import embed_stages, sketch_columns, sketch_costs, vectors_costs

_MIN_SLICE, _SLICE_STEP = 16, 16
_FEW_BLOCKS, _SMALL_SKETCH_BYTES = 2, 64 * (1 << 20)
_CHAINED_FLOPS = 10_000_000_000
"""Of products between two that are written: a second or two, which is what a kill costs then."""
_PARTS = ("compute", "memory", "disk", "tasks")


@dataclass(frozen=True)
class EmbedPlan:
    """The cost of a run, stage by stage."""

    graph: Graph
    config: EmbedConfig
    recipe: Recipe
    memory: ClusterMemory
    geometry: Geometry
    tilings: Tilings
    stages: tuple[StageCost, ...]

    @property
    def tiling(self) -> Tiling:
        """How products with all columns of the sketch are cut."""
        return self.tilings.sketch

    @property
    def narrow(self) -> Tiling:
        """How products with as many columns as a vector has are cut."""
        return self.tilings.vectors

    @property
    def sketch_size(self) -> int:
        """Columns of the sketch."""
        return self.recipe.sketch_size

    @property
    def columns(self) -> int:
        """Columns of the sketch and the probes."""
        return sketch_columns(self.recipe)

    @property
    def probes(self) -> int:
        """Columns that are there for the certificate alone."""
        return self.columns - self.sketch_size

    @property
    def norm_rows(self) -> int:
        """Rows of a single column that are held at a time."""
        return self.narrow.operand_rows

    @property
    def peak_bytes(self) -> int:
        """Most memory that a worker process will hold."""
        return max(stage.peak_bytes(self.memory.threads) for stage in self.stages)

    @property
    def is_small(self) -> bool:
        """Whether one worker does it all sooner than a scheduler could share it out."""
        return _is_small(self.graph, self.columns)

    def cut_like(self, tilings: Tilings) -> EmbedPlan:
        """The same plan for products that are cut otherwise."""
        stages = embed_stages(self.graph, self.recipe, self.geometry, tilings)
        return replace(self, tilings=tilings, stages=stages)

    def fits(self, tilings: Tilings) -> bool:
        """Whether products that are cut like this fit the memory of the workers."""
        return self.cut_like(tilings).peak_bytes <= self.memory.allowed_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory of a worker in which products may keep the graph from slice to slice.

        What the largest stage leaves of the memory that may be used; none where reading an entry
        again for every slice costs less than to write it to memory once.
        """
        rates, _ = known_rates()
        recipe = self.recipe
        again = math.ceil(self.columns / self.tiling.slice_columns) * recipe.products - 1
        again += math.ceil(recipe.dim / self.narrow.slice_columns) * (
            recipe.certified + recipe.smoothing
        )
        if again / rates.entries < KEPT_ENTRY_BYTES / rates.touch:
            return 0
        room = max(self.memory.allowed_bytes - self.peak_bytes, 0)
        entry_bytes = KEPT_ENTRY_BYTES + 4 * self.graph.weighted
        return min(room, entry_bytes * 2 * self.graph.edges + 24 * self.graph.nodes)

    @property
    def disk_bytes(self) -> int:
        """Disk that the run takes."""
        return sum(stage.disk_bytes for stage in self.stages)

    def seconds(self, rates: Rates) -> dict[str, dict[str, float]]:
        """Predicted seconds of each stage, by what it takes them for."""
        shape = {"workers": self.memory.workers, "threads": self.memory.threads}
        return {stage.name: stage.seconds(rates, **shape) for stage in self.stages}

    @property
    def notes(self) -> list[str]:
        """What a person should know before the run."""
        if self.sketch_size <= self.graph.nodes:
            return []
        asked = self.config.sketch_size is not None
        by_rule = self.config.preset == "paper" or self.config.epsilon is not None
        origin = "the paper's rule asks for" if by_rule and not asked else "you asked for"
        cheaper = "A larger --epsilon or a --sketch-size" if by_rule else "A smaller --dim"
        return [
            f"{origin[0].upper()}{origin[1:]} {self.sketch_size:,} sketch columns, more than the "
            f"graph has nodes ({self.graph.nodes:,}): the sketch is larger than the matrix it "
            f"stands for. {cheaper} would be cheaper."
        ]

    def check(self, free_disk_bytes: int) -> None:
        """Refuse what does not fit, with the numbers and the option to change."""
        threads, allowed = self.memory.threads, self.memory.allowed_bytes
        worst = max(self.stages, key=lambda stage: stage.peak_bytes(threads))
        if worst.peak_bytes(threads) > allowed:
            shared = max(worst.shared_bytes, worst.held_shared_bytes)
            of_task = max(worst.task_bytes, worst.held_task_bytes)
            limit = math.ceil(worst.peak_bytes(threads) / self.memory.usable_share / 1e7) * 10
            raise ResourceError(
                f"Stage '{worst.name}' needs {human_bytes(worst.peak_bytes(threads))} in each "
                f"worker ({human_bytes(RESERVED_BYTES)} for the process, "
                f"{human_bytes(shared)} shared, {human_bytes(of_task)} for "
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
            "vectors_tiling": asdict(self.narrow),
            "recipe": self.recipe.describe(),
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
    recipe = make_recipe(config, nodes=graph.nodes, mean_degree=graph.mean_degree)
    geometry = Geometry.of(graph, sketch_columns(recipe))

    def sketch(tiling: Tiling) -> tuple[StageCost, ...]:
        return sketch_costs(graph, recipe, tiling, geometry)

    wide = _choose_tiling(graph, sketch_columns(recipe), geometry, memory, sketch)

    def vectors(tiling: Tiling) -> tuple[StageCost, ...]:
        return vectors_costs(graph, recipe, geometry, Tilings(wide, tiling))

    probes = sketch_columns(recipe) - recipe.sketch_size
    narrow = _choose_tiling(graph, recipe.dim + probes, geometry, memory, vectors)
    is_small = _is_small(graph, sketch_columns(recipe))
    if recipe.projection == "gaussian" and (memory.workers == 1 or is_small):
        if recipe.products > 1:
            wide = _chained(graph, sketch_columns(recipe), wide, memory, sketch)
        if recipe.smoothing > 1:
            narrow = _chained(graph, recipe.dim + probes, narrow, memory, vectors)
    tilings = Tilings(wide, narrow)
    stages = embed_stages(graph, recipe, geometry, tilings)
    return EmbedPlan(graph, config, recipe, memory, geometry, tilings, stages)


def _choose_tiling(
    graph: Graph,
    columns: int,
    geometry: Geometry,
    memory: ClusterMemory,
    costs: Callable[[Tiling], tuple[StageCost, ...]],
) -> Tiling:
    """Take the slices that cost least of those whose operand fits; parts of it where none does."""
    rates, _ = known_rates()

    def peak(tiling: Tiling) -> int:
        return max(stage.peak_bytes(memory.threads) for stage in costs(tiling))

    def seconds(tiling: Tiling) -> float:
        shape = {"workers": memory.workers, "threads": memory.threads}
        return sum(stage.seconds(rates, **shape)["total"] for stage in costs(tiling))

    tilings = (Tiling(width, graph.nodes) for width in _widths(columns))
    fitting = [tiling for tiling in tilings if peak(tiling) <= memory.allowed_bytes]
    if fitting:
        return min(fitting, key=seconds)
    width = min(_MIN_SLICE, math.ceil(columns / 4) * 4)
    # Fewer rows than all, and beginning where chunks do, so that none is read twice.
    chunks = range(1, max((graph.nodes - 1) // geometry.chunk_rows, 1) + 1)

    def too_large(chunks: int) -> bool:
        return peak(Tiling(width, chunks * geometry.chunk_rows)) > memory.allowed_bytes

    held = max(bisect.bisect_left(chunks, True, key=too_large), 1)
    return Tiling(slice_columns=width, operand_rows=held * geometry.chunk_rows)


def _is_small(graph: Graph, columns: int) -> bool:
    return graph.blocks <= _FEW_BLOCKS and 4 * graph.nodes * columns <= _SMALL_SKETCH_BYTES


def _chained(
    graph: Graph,
    columns: int,
    tiling: Tiling,
    memory: ClusterMemory,
    costs: Callable[[Tiling], tuple[StageCost, ...]],
) -> Tiling:
    """The same with products in a row, if that fits: as many as a kill may undo."""
    chain = _CHAINED_FLOPS // max(2 * 2 * graph.edges * columns, 1)
    if chain < 2 or tiling.slice_columns < columns or tiling.operand_rows < graph.nodes:
        return tiling
    chained = replace(tiling, chain=chain)
    peak = max(stage.peak_bytes(memory.threads) for stage in costs(chained))
    return chained if peak <= memory.allowed_bytes else tiling


def _widths(size: int) -> list[int]:
    """Widths of slices, the widest first, each as even as it can be for its number of slices."""
    numbers = range(1, math.ceil(size / _MIN_SLICE) + 1)
    widths = {math.ceil(size / number / _SLICE_STEP) * _SLICE_STEP for number in numbers}
    return sorted(widths, reverse=True)


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
