"""What each stage of a run reads, writes, computes and holds.

The memory of a stage is ``reserved + shared + threads x task``: the interpreter and its libraries,
what the threads of a worker hold together, and what each of them holds for its block. Its time is
that of the cores or that of the disk, whichever is longer, for reading, computing and writing
overlap; and what Dask takes for its tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from pipeline.graph import Graph
from pipeline.ingest.partition import ROW_GROUP_EDGES
from pipeline.rates import Rates

RESERVED_BYTES = 460_000_000
"""A worker process with all libraries loaded and all kernels compiled, doing nothing."""

_CHUNK_COPIES = 12
"""Memory for an entry of a chunk of the product: the sum, the one that is being written, a copy."""

_EDGE_BYTES = 36
"""Memory for an entry of a row group while it is read: as it is stored, and decoded."""

_NODE_BYTES = 48
"""Memory for a node of a row block while its part of the operand is filled."""

KEPT_ENTRY_BYTES = 16
"""Memory for an entry of the graph that is kept: its row and its column."""

_CHUNK_BYTES, _GROUP_BYTES = 16 << 20, 128 << 20
_TALL_BYTES = 1 << 20
_MIN_GROUPS, _MAX_GROUPS = 32, 1024


Source = Literal["made", "packed", "stored"]
"""Where rows of an operand come from: seeds, seeds as codes of a sparse row, or the disk."""

PROBES = 16
"""Columns that go through all products beside the sketch, for the certificate."""

SIGNS = 8
"""Entries in a row of a sparse projection."""

PACKED_FLOATS = 1 + SIGNS + PROBES
"""Floats of a packed row of a sparse projection, at most."""


@dataclass(frozen=True)
class Geometry:
    """Blocks on which the bits of the result depend: from the shape of the sketch alone."""

    chunk_rows: int
    group_rows: int

    @classmethod
    def of(cls, graph: Graph, columns: int) -> Geometry:
        """Choose chunks of about 16 MB, and groups worth a task and a d x d matrix each."""
        fitting = max(_CHUNK_BYTES // (4 * columns), 1)
        chunk = min(graph.block_rows, max(1 << (fitting.bit_length() - 1), 256))
        worth_a_task = min(_GROUP_BYTES // (4 * columns), graph.nodes // _MIN_GROUPS)
        wanted = max(32 * columns, worth_a_task, math.ceil(graph.nodes / _MAX_GROUPS))
        return cls(chunk_rows=chunk, group_rows=chunk * math.ceil(wanted / chunk))


@dataclass(frozen=True)
class Tiling:
    """How the product is cut to fit the memory; the result does not depend on it.

    Attributes
    ----------
    slice_columns, operand_rows : int
        Columns and rows of an operand that are held at a time.
    chain : int
        Products that one worker does in a row in its memory before one of them is written; 1 where
        every one is written, and shared out among the workers.
    """

    slice_columns: int
    operand_rows: int
    chain: int = 1


@dataclass(frozen=True)
class Tilings:
    """How the products of a run are cut: those of the sketch, and those of the vectors."""

    sketch: Tiling
    vectors: Tiling


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
    disk : int, optional
        Disk that it takes, where some of what it writes is deleted on the way.
    rounds : int
        Stages of Dask that it is made of.
    alone : bool
        Whether a task keeps all threads of its worker busy.
    held_shared_bytes, held_task_bytes : int
        Memory that workers hold since the stages before, in all and for each thread, and that this
        one uses again.
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
    disk: int | None = None
    rounds: int = 1
    alone: bool = False
    held_shared_bytes: int = 0
    held_task_bytes: int = 0

    @property
    def disk_bytes(self) -> int:
        """Disk that it takes."""
        return self.written_bytes if self.disk is None else self.disk

    def peak_bytes(self, threads: int) -> int:
        """Memory of a worker process with this many threads at work."""
        of_tasks = max(min(threads, self.tasks) * self.task_bytes, threads * self.held_task_bytes)
        return RESERVED_BYTES + max(self.shared_bytes, self.held_shared_bytes) + of_tasks

    def seconds(self, rates: Rates, *, workers: int, threads: int) -> dict[str, float]:
        """Predict how long the stage takes, by what it takes it for.

        Returns
        -------
        dict
            ``compute``: of all cores; ``memory``: writing to memory for the first time;
            ``disk``; ``tasks``; and ``total``, where computing and the disk overlap.
        """
        cores = threads if self.alone else min(workers * threads, self.tasks)
        busy = threads if self.alone else min(threads, self.tasks)
        compute = rates.core_seconds(self.work) / cores
        compute += rates.core_seconds(self.worker_work) / busy
        # Fresh pages come from the system one at a time, however many threads ask for them.
        fresh = max(self.shared_bytes - self.held_shared_bytes, 0)
        fresh += busy * max(self.task_bytes - self.held_task_bytes, 0)
        memory = fresh / rates.touch
        disk = (self.read_bytes / rates.read + self.written_bytes / rates.write) / workers
        tasks = self.tasks * rates.task_seconds + self.rounds * rates.stage_seconds
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


def product_cost(
    name: str,
    graph: Graph,
    columns: int,
    tiling: Tiling,
    geometry: Geometry,
    *,
    source: Source = "made",
    times: int = 1,
) -> StageCost:
    """A product with the graph, in slices: the edges are read once for each of them.

    Parameters
    ----------
    name : str
    graph : Graph
    columns : int
        Columns of the product.
    tiling : Tiling
    geometry : Geometry
    source : str
        Whether rows of the operand are made from seeds, made as codes of a sparse row, or read.
    times : int
        Products like this that are done one after the other.
    """
    slices = 1 if source == "packed" else math.ceil(columns / tiling.slice_columns)
    width = columns if source == "packed" else min(tiling.slice_columns, columns)
    row = PACKED_FLOATS if source == "packed" else width
    parts = math.ceil(graph.nodes / tiling.operand_rows)
    passes = 1 if parts == 1 else graph.blocks
    entries, total = 2 * graph.edges, graph.nodes * row * slices
    operand_bytes = 4 * tiling.operand_rows * row
    stored_bytes = 4 * total * passes if source == "stored" else 0
    made = {"copy" if stored_bytes else "regenerate": (4 if stored_bytes else 1) * total * passes}
    work = {
        "gather": 4 * entries * row * slices,
        "rows": entries * slices,
        "entries": entries * slices * parts,
        "copy": 3 * 4 * graph.nodes * columns,
        "chunks": slices * math.ceil(graph.nodes / tall_rows(geometry, graph, width)),
    }
    worker_work = made
    if tiling.chain > 1:
        return _chain_cost(name, graph, columns, tiling, geometry, made | work, times)
    if parts > 1:
        work = {key: work.get(key, 0) + made.get(key, 0) for key in {**work, **made}}
        worker_work = {}
    return StageCost(
        name=name,
        tasks=times * graph.blocks * slices,
        read_bytes=times
        * (entries * (12 if graph.weighted else 4) * slices * parts + stored_bytes),
        written_bytes=times * 4 * graph.nodes * columns,
        flops=times * 2 * entries * row * slices,
        shared_bytes=operand_bytes if parts == 1 else 0,
        task_bytes=tile_bytes(graph, geometry, width, parts, tiling.slice_columns)
        + run_bytes(graph)
        + (0 if parts == 1 else operand_bytes),
        work={key: times * count for key, count in work.items()},
        worker_work={key: times * count for key, count in worker_work.items()},
        rounds=times,
    )


def _chain_cost(
    name: str,
    graph: Graph,
    columns: int,
    tiling: Tiling,
    geometry: Geometry,
    work: dict[str, int],
    times: int,
) -> StageCost:
    """Products in a row in the memory of one worker: two matrices, and the whole graph."""
    chains = math.ceil(times / tiling.chain)
    entries, size = 2 * graph.edges, 4 * graph.nodes * columns
    entry_bytes = KEPT_ENTRY_BYTES + 4 * graph.weighted
    return StageCost(
        name=name,
        tasks=chains,
        read_bytes=chains * (entries * (12 if graph.weighted else 4) + size),
        written_bytes=chains * size,
        flops=times * 2 * entries * columns,
        shared_bytes=2 * size + entry_bytes * entries + _NODE_BYTES * graph.nodes,
        task_bytes=tile_bytes(graph, geometry, columns, 1, columns) + run_bytes(graph),
        work={key: times * count for key, count in work.items()},
        rounds=chains,
        alone=True,
    )


def tile_bytes(
    graph: Graph, geometry: Geometry, columns: int, parts: int, slice_columns: int
) -> int:
    """Memory that a thread needs for a tile of the product."""
    block_rows = min(graph.block_rows, graph.nodes)
    nodes = _NODE_BYTES * block_rows
    if parts > 1:
        return nodes + 8 * block_rows * columns
    height = tall_rows(geometry, graph, min(slice_columns, columns))
    return nodes + _CHUNK_COPIES * min(height, graph.nodes) * columns


def tall_rows(geometry: Geometry, graph: Graph, columns: int) -> int:
    """Rows of a stored chunk of the sketch: as many of the plan's chunks as make a megabyte."""
    rows = geometry.chunk_rows
    while rows < graph.block_rows and 2 * rows * columns * 4 <= _TALL_BYTES:
        rows *= 2
    return rows
