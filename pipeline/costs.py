"""What each stage of a run reads, writes, computes and holds.

The memory of a stage is ``reserved + shared + threads x task``: the interpreter and its libraries,
what the threads of a worker hold together, and what each of them holds for its block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.graph import Graph
from pipeline.ingest.partition import ROW_GROUP_EDGES
from pipeline.rates import Rates

RESERVED_BYTES = 460_000_000
"""A worker process with all libraries loaded and all kernels compiled, doing nothing."""

TILE_BYTES = 8
"""Memory for an entry of a tile: the sum itself, and a copy while it is written."""

_EDGE_BYTES = 48
"""Memory for an entry of a row group while it is read: decoded, and as arrays."""

_CHUNK_BYTES = 16 << 20
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
    """What a stage reads, writes, computes and holds.

    Attributes
    ----------
    name : str
    tasks : int
    read_bytes, written_bytes : int
    flops : int
        Of the product, the Gram matrix or the projection; of all of them together.
    shared_bytes, task_bytes : int
        Memory that the threads of a worker share, and that each of them needs.
    regenerated : int
        Entries of R that are made, all workers together.
    gathered_bytes : int
        Bytes of the operand that are added up along edges.
    gram_flops, gemm_flops : int
    """

    name: str
    tasks: int
    read_bytes: int
    written_bytes: int
    flops: int
    shared_bytes: int
    task_bytes: int
    regenerated: int = 0
    gathered_bytes: int = 0
    gram_flops: int = 0
    gemm_flops: int = 0

    def peak_bytes(self, threads: int) -> int:
        """Memory of a worker process with this many threads at work."""
        at_work = min(threads, self.tasks)
        return RESERVED_BYTES + self.shared_bytes + at_work * self.task_bytes

    def seconds(self, rates: Rates, *, workers: int, threads: int) -> dict[str, float]:
        """Predict how long the stage takes, by what it takes it for: compute, disk and tasks."""
        cores = min(workers * threads, self.tasks)
        # Every worker makes the operand that its threads share.
        regenerated = self.regenerated * (workers if self.shared_bytes else 1)
        compute = (
            regenerated / rates.regenerate
            + self.gathered_bytes / rates.gather
            + self.gram_flops / rates.gram
            + self.gemm_flops / rates.gemm
        ) / cores
        disk = (self.read_bytes / rates.read + self.written_bytes / rates.write) / workers
        return {"compute": compute, "disk": disk, "tasks": self.tasks * rates.task_seconds / cores}


def run_bytes(graph: Graph) -> int:
    """Memory for the edges of a block that are held at a time."""
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    return entries * (_EDGE_BYTES + 20 * graph.weighted)


def sketch_cost(graph: Graph, size: int, tiling: Tiling) -> StageCost:
    """The product, in slices: the edges are read once for each of them."""
    slices = math.ceil(size / tiling.slice_columns)
    columns = min(tiling.slice_columns, size)
    parts = math.ceil(graph.nodes / tiling.operand_rows)
    block_rows = min(graph.block_rows, graph.nodes)
    operand_bytes = 4 * tiling.operand_rows * columns
    entries = 2 * graph.edges
    task_bytes = TILE_BYTES * block_rows * columns + run_bytes(graph)
    return StageCost(
        name="sketch",
        tasks=graph.blocks * slices,
        read_bytes=entries * (12 if graph.weighted else 4) * slices * parts,
        written_bytes=4 * graph.nodes * size,
        flops=2 * entries * size,
        shared_bytes=operand_bytes if parts == 1 else 0,
        task_bytes=task_bytes + (0 if parts == 1 else operand_bytes),
        regenerated=graph.nodes * size * (1 if parts == 1 else graph.blocks),
        gathered_bytes=4 * entries * size,
    )


def factor_costs(graph: Graph, size: int, geometry: Geometry) -> tuple[StageCost, ...]:
    """The d x d factor: a pass over the sketch, and its decomposition in one task."""
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
            gram_flops=graph.nodes * size * size,
        ),
        StageCost(
            name="factor-solve",
            tasks=1,
            read_bytes=groups * square,
            written_bytes=2 * square,
            flops=10 * size**3,
            shared_bytes=0,
            task_bytes=6 * square,
            gram_flops=10 * size**3,
        ),
    )


def vectors_cost(graph: Graph, size: int, dim: int, geometry: Geometry) -> StageCost:
    """The vectors from the sketch, and the basis from R made again."""
    chunk_rows = min(geometry.chunk_rows, graph.nodes)
    return StageCost(
        name="vectors",
        tasks=graph.blocks,
        read_bytes=4 * graph.nodes * size,
        written_bytes=8 * graph.nodes * dim,
        flops=4 * graph.nodes * size * dim,
        shared_bytes=0,
        task_bytes=4 * (3 * chunk_rows * size + 6 * size * dim + 2 * chunk_rows * dim),
        regenerated=graph.nodes * size,
        gemm_flops=4 * graph.nodes * size * dim,
    )
