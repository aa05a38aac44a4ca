"""What embedding a graph costs, known before it is run, and whether it fits.

The memory of a stage is ``reserved + shared + threads x task``: the interpreter and its libraries,
what the threads of a worker hold together, and what each of them holds for its block.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config import EmbedConfig
from pipeline.errors import ResourceError
from pipeline.graph import Graph
from pipeline.ingest.partition import ROW_GROUP_EDGES
from pipeline.measure import human_bytes
from pipeline.run import ClusterMemory

RESERVED_BYTES = 440_000_000
"""A worker process with all libraries loaded and all kernels compiled, doing nothing."""

_EDGE_BYTES = 48
"""Memory for an entry of a row group while it is read: decoded, and as arrays."""

_TILE_BYTES = 8
"""Memory for an entry of a tile: the sum itself, and a copy while it is written."""

_CHUNK_BYTES = 16 << 20
_MIN_SLICE, _SLICE_STEP = 16, 16
_MAX_GROUPS = 1024


@dataclass(frozen=True)
class Geometry:
    """Blocks on which the bits of the result depend: from the shape of the sketch alone."""

    chunk_rows: int
    group_rows: int

    @classmethod
    def of(cls, graph: Graph, sketch_size: int) -> Geometry:
        """Choose chunks of about 16 MB, and groups that are worth a d x d matrix each."""
        fitting = max(_CHUNK_BYTES // (4 * sketch_size), 1)
        chunk = min(graph.block_rows, max(1 << (fitting.bit_length() - 1), 256))
        wanted = max(32 * sketch_size, math.ceil(graph.nodes / _MAX_GROUPS))
        return cls(chunk_rows=chunk, group_rows=chunk * math.ceil(wanted / chunk))


@dataclass(frozen=True)
class Tiling:
    """How the product is cut to fit the memory; the result does not depend on it."""

    slice_columns: int
    operand_rows: int


@dataclass(frozen=True)
class StageCost:
    """What a stage reads, writes, computes and holds."""

    name: str
    tasks: int
    read_bytes: int
    written_bytes: int
    flops: int
    shared_bytes: int
    task_bytes: int

    def peak_bytes(self, threads: int) -> int:
        """Memory of a worker process with this many threads at work."""
        at_work = min(threads, self.tasks)
        return RESERVED_BYTES + self.shared_bytes + at_work * self.task_bytes


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

    @property
    def disk_bytes(self) -> int:
        """Disk that the run takes."""
        return sum(stage.written_bytes for stage in self.stages)

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
            "disk_bytes": self.disk_bytes,
            "geometry": asdict(self.geometry),
            "tiling": asdict(self.tiling),
            "stages": [
                {**asdict(stage), "peak_bytes": stage.peak_bytes(threads)} for stage in self.stages
            ],
            "notes": self.notes,
        }


def plan_embedding(graph: Graph, config: EmbedConfig, memory: ClusterMemory) -> EmbedPlan:
    """Work out blocks, slices and costs for a graph on a cluster."""
    size = config.resolve_sketch_size(graph.nodes)
    geometry = Geometry.of(graph, size)
    tiling = _choose_tiling(graph, size, memory)
    stages = (
        _sketch_cost(graph, size, tiling, memory.threads),
        *_factor_costs(graph, size, geometry),
        _vectors_cost(graph, size, config.dim, geometry),
    )
    return EmbedPlan(graph, config, memory, size, geometry, tiling, stages)


def _run_bytes(graph: Graph) -> int:
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    return entries * (_EDGE_BYTES + 20 * graph.weighted)


def _choose_tiling(graph: Graph, size: int, memory: ClusterMemory) -> Tiling:
    """Take the widest slices whose operand fits; narrow slices and parts of it where none does."""
    room = memory.allowed_bytes - RESERVED_BYTES - memory.threads * _run_bytes(graph)
    block_rows = min(graph.block_rows, graph.nodes)
    column_bytes = 4 * graph.nodes + _TILE_BYTES * memory.threads * block_rows
    widest = min(room // column_bytes, size)
    if widest >= min(_MIN_SLICE, size):
        slices = math.ceil(size / widest)
        columns = math.ceil(size / slices / _SLICE_STEP) * _SLICE_STEP
        # Rounding up may have made the slices too wide for the room by a step.
        if columns > widest:
            columns = max(widest // 4 * 4, 4)
        return Tiling(slice_columns=columns, operand_rows=graph.nodes)
    columns = min(_MIN_SLICE, math.ceil(size / 4) * 4)
    rows = room // memory.threads // (4 * columns) - _TILE_BYTES // 4 * block_rows
    return Tiling(slice_columns=columns, operand_rows=max(rows, min(graph.nodes, 1024)))


def _sketch_cost(graph: Graph, size: int, tiling: Tiling, threads: int) -> StageCost:
    slices = math.ceil(size / tiling.slice_columns)
    columns = min(tiling.slice_columns, size)
    parts = math.ceil(graph.nodes / tiling.operand_rows)
    block_rows = min(graph.block_rows, graph.nodes)
    operand_bytes = 4 * tiling.operand_rows * columns
    entries = 2 * graph.edges
    task_bytes = _TILE_BYTES * block_rows * columns + _run_bytes(graph)
    return StageCost(
        name="sketch",
        tasks=graph.blocks * slices,
        read_bytes=entries * (12 if graph.weighted else 4) * slices * parts,
        written_bytes=4 * graph.nodes * size,
        flops=2 * entries * size,
        shared_bytes=operand_bytes if parts == 1 else 0,
        task_bytes=task_bytes + (0 if parts == 1 else operand_bytes),
    )


def _factor_costs(graph: Graph, size: int, geometry: Geometry) -> tuple[StageCost, ...]:
    square = 8 * size * size
    groups = math.ceil(graph.nodes / geometry.group_rows)
    chunk = min(geometry.chunk_rows, graph.nodes) * size
    return (
        StageCost(
            name="factor",
            tasks=groups,
            read_bytes=4 * graph.nodes * size,
            written_bytes=groups * square,
            flops=graph.nodes * size * size,
            shared_bytes=0,
            task_bytes=3 * square + 16 * chunk,
        ),
        StageCost(
            name="factor-solve",
            tasks=1,
            read_bytes=groups * square,
            written_bytes=2 * square,
            flops=10 * size**3,
            shared_bytes=0,
            task_bytes=6 * square,
        ),
    )


def _vectors_cost(graph: Graph, size: int, dim: int, geometry: Geometry) -> StageCost:
    chunk_rows = min(geometry.chunk_rows, graph.nodes)
    return StageCost(
        name="vectors",
        tasks=graph.blocks,
        read_bytes=4 * graph.nodes * size,
        written_bytes=8 * graph.nodes * dim,
        flops=4 * graph.nodes * size * dim,
        shared_bytes=0,
        task_bytes=4 * (3 * chunk_rows * size + 6 * size * dim + 2 * chunk_rows * dim),
    )
