"""What each stage of a run reads, writes, computes and holds.

The memory of a stage is ``reserved + shared + threads x task``: the interpreter and its libraries,
what the threads of a worker hold together, and what each of them holds for its block. Its time is
that of the cores or that of the disk, whichever is longer, for reading, computing and writing
overlap; and what Dask takes for its tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pipeline.graph import Graph
from pipeline.ingest.partition import ROW_GROUP_EDGES
from pipeline.rates import Rates

RESERVED_BYTES = 460_000_000
"""A worker process with all libraries loaded and all kernels compiled, doing nothing."""

_CHUNK_COPIES = 12
"""Memory for an entry of a chunk of the product: the sum, the one that is being written, a copy."""

_EDGE_BYTES = 36
"""Memory for an entry of a row group while it is read: as it is stored, and decoded."""

_NODE_BYTES = 40
"""Memory for a node of a row block while its part of the operand is filled."""

KEPT_ENTRY_BYTES = 16
"""Memory for an entry of the graph that is kept: its row and its column."""

_CHUNK_BYTES, _GROUP_BYTES = 16 << 20, 128 << 20
_TALL_BYTES = 1 << 20
_MIN_GROUPS, _MAX_GROUPS = 32, 1024

_EIGH_FLOPS = 20
"""Times d^3: what the decomposition of a d x d matrix costs, at the rate of the Gram matrix."""


@dataclass(frozen=True)
class Geometry:
    """Blocks on which the bits of the result depend: from the shape of the sketch alone."""

    chunk_rows: int
    group_rows: int

    @classmethod
    def of(cls, graph: Graph, sketch_size: int) -> Geometry:
        """Choose chunks of about 16 MB, and groups worth a task and a d x d matrix each."""
        fitting = max(_CHUNK_BYTES // (4 * sketch_size), 1)
        chunk = min(graph.block_rows, max(1 << (fitting.bit_length() - 1), 256))
        worth_a_task = min(_GROUP_BYTES // (4 * sketch_size), graph.nodes // _MIN_GROUPS)
        wanted = max(32 * sketch_size, worth_a_task, math.ceil(graph.nodes / _MAX_GROUPS))
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
    work : dict
        What the cores do, all together: counts by the name of the rate at which a core does it.
    worker_work : dict
        What the cores of every worker do for it alone: the operand that its threads share.
    """

    name: str
    tasks: int
    read_bytes: int
    written_bytes: int
    flops: int
    shared_bytes: int
    task_bytes: int
    work: dict[str, int]
    worker_work: dict[str, int] = field(default_factory=dict)

    def peak_bytes(self, threads: int) -> int:
        """Memory of a worker process with this many threads at work."""
        at_work = min(threads, self.tasks)
        return RESERVED_BYTES + self.shared_bytes + at_work * self.task_bytes

    def seconds(self, rates: Rates, *, workers: int, threads: int) -> dict[str, float]:
        """Predict how long the stage takes, by what it takes it for.

        Returns
        -------
        dict
            ``compute``: of all cores; ``memory``: writing to memory for the first time;
            ``disk``; ``tasks``; and ``total``, where computing and the disk overlap.
        """
        cores = min(workers * threads, self.tasks)
        busy = min(threads, self.tasks)
        compute = rates.core_seconds(self.work) / cores
        compute += rates.core_seconds(self.worker_work) / busy
        # Fresh pages come from the system one at a time, however many threads ask for them.
        memory = (self.shared_bytes + busy * self.task_bytes) / rates.touch
        disk = (self.read_bytes / rates.read + self.written_bytes / rates.write) / workers
        tasks = self.tasks * rates.task_seconds + rates.stage_seconds
        total = max(compute + memory, disk) + tasks
        return {
            "compute": compute,
            "memory": memory,
            "disk": disk,
            "tasks": tasks,
            "total": total,
        }


def run_bytes(graph: Graph) -> int:
    """Memory for the edges of a block that are held at a time."""
    entries = min(graph.largest_block_edges, ROW_GROUP_EDGES)
    return entries * (_EDGE_BYTES + 20 * graph.weighted)


def sketch_cost(graph: Graph, size: int, tiling: Tiling, geometry: Geometry) -> StageCost:
    """The product, in slices: the edges are read once for each of them."""
    slices = math.ceil(size / tiling.slice_columns)
    columns = min(tiling.slice_columns, size)
    parts = math.ceil(graph.nodes / tiling.operand_rows)
    entries = 2 * graph.edges
    operand_bytes = 4 * tiling.operand_rows * columns
    made = {"regenerate": graph.nodes * size * (1 if parts == 1 else graph.blocks)}
    return StageCost(
        name="sketch",
        tasks=graph.blocks * slices,
        read_bytes=entries * (12 if graph.weighted else 4) * slices * parts,
        written_bytes=4 * graph.nodes * size,
        flops=2 * entries * size,
        shared_bytes=operand_bytes if parts == 1 else 0,
        task_bytes=tile_bytes(graph, geometry, columns, parts)
        + run_bytes(graph)
        + (0 if parts == 1 else operand_bytes),
        work={
            "gather": 4 * entries * size,
            "rows": entries * slices,
            "entries": entries * slices * parts,
            "copy": 3 * 4 * graph.nodes * size,
            "chunks": slices * math.ceil(graph.nodes / tall_rows(geometry, graph, columns)),
            **({} if parts == 1 else made),
        },
        worker_work=made if parts == 1 else {},
    )


def tile_bytes(graph: Graph, geometry: Geometry, columns: int, parts: int) -> int:
    """Memory that a thread needs for a tile of the product."""
    block_rows = min(graph.block_rows, graph.nodes)
    nodes = _NODE_BYTES * block_rows
    if parts > 1:
        return nodes + 8 * block_rows * columns
    return nodes + _CHUNK_COPIES * min(tall_rows(geometry, graph, columns), graph.nodes) * columns


def tall_rows(geometry: Geometry, graph: Graph, columns: int) -> int:
    """Rows of a stored chunk of the sketch: as many of the plan's chunks as make a megabyte."""
    rows = geometry.chunk_rows
    while rows < graph.block_rows and 2 * rows * columns * 4 <= _TALL_BYTES:
        rows *= 2
    return rows


def factor_costs(
    graph: Graph, size: int, geometry: Geometry, tiling: Tiling
) -> tuple[StageCost, ...]:
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
            work={
                "gram": graph.nodes * size * size,
                "gram_entries": graph.nodes * size,
                "copy": _read_copies(graph, size, tiling),
                "chunks": _sketch_chunks(graph, size, geometry, tiling),
            },
        ),
        StageCost(
            name="factor-solve",
            tasks=1,
            read_bytes=groups * square,
            written_bytes=2 * square,
            flops=_EIGH_FLOPS * size**3,
            shared_bytes=0,
            task_bytes=6 * square,
            work={"gram": _EIGH_FLOPS * size**3},
        ),
    )


def vectors_cost(
    graph: Graph, size: int, dim: int, geometry: Geometry, tiling: Tiling
) -> StageCost:
    """The vectors from the sketch, and the basis from R made again."""
    chunk_rows = min(geometry.chunk_rows, graph.nodes)
    return StageCost(
        name="vectors",
        tasks=graph.blocks,
        read_bytes=4 * graph.nodes * size,
        written_bytes=8 * graph.nodes * dim,
        flops=4 * graph.nodes * size * dim,
        shared_bytes=0,
        task_bytes=4 * (4 * chunk_rows * size + 6 * size * dim + 6 * chunk_rows * dim),
        work={
            "gemm": 4 * graph.nodes * size * dim,
            "regenerate": graph.nodes * size,
            "copy": _read_copies(graph, size, tiling) + 8 * graph.nodes * dim,
            "chunks": _sketch_chunks(graph, size, geometry, tiling)
            + 2 * math.ceil(graph.nodes / chunk_rows),
        },
    )


def _read_copies(graph: Graph, size: int, tiling: Tiling) -> int:
    """Bytes that cores move when the sketch is read: slices are put side by side in memory."""
    return (1 if tiling.slice_columns >= size else 3) * 4 * graph.nodes * size


def _sketch_chunks(graph: Graph, size: int, geometry: Geometry, tiling: Tiling) -> int:
    slices = math.ceil(size / tiling.slice_columns)
    return slices * math.ceil(graph.nodes / geometry.chunk_rows)
