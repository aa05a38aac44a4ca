"""Edges in any form to a stored graph: the steps of ingest, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline.arrays import ensure_zarr
from pipeline.blocks import Stats
from pipeline.config import IngestConfig
from pipeline.costs import RESERVED_BYTES
from pipeline.errors import BadInputError, IdTypeChangedError, ResourceError
from pipeline.files import free_bytes, read_json, remove, write_json
from pipeline.ingest.arrow import IdKind
from pipeline.ingest.exchange import RELABEL_BYTES_PER_EDGE, Exchange, relabel_chunk
from pipeline.ingest.ids import RANGE_BYTES_PER_ENTRY, IdIndex, choose_bounds, merge_range
from pipeline.ingest.partition import (
    BUILD_BYTES_PER_ENTRY,
    BuildTask,
    build_block,
    choose_block_rows,
)
from pipeline.ingest.scan import SCAN_BYTES_PER_EDGE, ScanTask, all_chunks, list_chunks, scan_piece
from pipeline.ingest.sources import SourceFile, agree, split_into_pieces
from pipeline.job import Block, Job, StageResult
from pipeline.measure import human_bytes
from pipeline.run import ClusterMemory

_MIN_CHUNK_EDGES, _MAX_CHUNK_EDGES = 1 << 14, 1 << 20


@dataclass(frozen=True)
class IngestSizes:
    """How much of the input is in memory at a time; the result does not depend on it."""

    chunk_edges: int
    range_bytes: int
    build_entries: int
    id_kind: IdKind

    @classmethod
    def for_memory(cls, memory: ClusterMemory, id_kind: IdKind) -> IngestSizes:
        """Choose sizes that fit the memory of each thread of a worker."""
        task_bytes = (memory.allowed_bytes - RESERVED_BYTES) // memory.threads
        per_edge = max(SCAN_BYTES_PER_EDGE, RELABEL_BYTES_PER_EDGE)
        if task_bytes < per_edge * _MIN_CHUNK_EDGES:
            needed = RESERVED_BYTES + memory.threads * per_edge * _MIN_CHUNK_EDGES
            raise ResourceError(
                f"ingest needs at least {human_bytes(needed / memory.usable_share)} for a worker "
                f"with {memory.threads} threads; each has {human_bytes(memory.limit_bytes)}. Raise "
                "--memory-limit, or give the workers fewer threads in the cluster file."
            )
        chunk = min(1 << int(math.log2(task_bytes / per_edge)), _MAX_CHUNK_EDGES)
        return cls(
            chunk_edges=chunk,
            range_bytes=min(task_bytes, 256 << 20),
            build_entries=min(task_bytes // BUILD_BYTES_PER_ENTRY, 1 << 23),
            id_kind=id_kind,
        )

    def fits(self, other: IngestSizes) -> bool:
        """Whether work that was begun with these sizes may go on where `other` would be chosen."""
        return (
            self.chunk_edges <= other.chunk_edges
            and self.range_bytes <= other.range_bytes
            and self.build_entries <= other.build_entries
        )


def build_graph(
    job: Job,
    files: Sequence[SourceFile],
    config: IngestConfig,
    memory: ClusterMemory,
    folder: Path,
) -> Stats:
    """Run all steps; return what a manifest says of the graph.

    Parameters
    ----------
    job : Job
        Its marks lie below ``folder / "work"``.
    files : sequence of SourceFile
    config : IngestConfig
    memory : ClusterMemory
    folder : Path
        Folder of the graph. Unfinished work lies in its sub-folder ``work``.
    """
    id_kind, weighted = agree(files, config)
    sizes = _agreed_sizes(folder, IngestSizes.for_memory(memory, id_kind))
    try:
        stage = "scan" if sizes.id_kind == id_kind else "rescan"
        scanned = _scan(stage, job, files, config, sizes, folder)
    except IdTypeChangedError as changed:
        job.monitor.note(f"Ids are not all integers ({changed}): reading them as text.")
        # Pieces that are still being read as integers will write their chunks and marks yet, so
        # the text goes to a stage of its own.
        sizes = replace(sizes, id_kind="string")
        write_json(_sizes_path(folder), vars(sizes))
        remove(folder / "work" / "scan")
        scanned = _scan("rescan", job, files, config, sizes, folder)
    index = _merge_ids(job, scanned, sizes, folder)
    exchange = _exchange_edges(job, scanned, index, config, folder, weighted=weighted)
    task = BuildTask(
        folder, folder / "work" / scanned.name, index, exchange, max_entries=sizes.build_entries
    )
    built = _build_blocks(job, task)
    entries = built.total("entries")
    return {
        "nodes": len(index),
        "edges": entries // 2,
        "block_rows": exchange.block_rows,
        "blocks": exchange.blocks,
        "largest_block_edges": max(s["entries"] for s in built.stats.values()),
        "id_kind": sizes.id_kind,
        "id_starts": list(index.starts),
        "weighted": any(s["weighted"] for s in built.stats.values()),
        # Exactly rounded, so whatever the order in which blocks were done.
        "mean_degree": math.fsum(s["total_degree"] for s in built.stats.values()) / len(index),
        "max_neighbours": max(s["max_neighbours"] for s in built.stats.values()),
        "isolated_nodes": built.total("isolated"),
        "rows_read": scanned.total("rows"),
        "rows_rejected": scanned.total("rejected"),
        "self_loops_dropped": scanned.total("self_loops"),
        "repeated_edges_merged": scanned.total("edges") - entries // 2,
    }


def _agreed_sizes(folder: Path, wanted: IngestSizes) -> IngestSizes:
    """Sizes of the work that was begun, if it still fits; else begin again."""
    path = _sizes_path(folder)
    if path.exists():
        begun = IngestSizes(**read_json(path))
        if begun.fits(wanted):
            return begun
        remove(folder / "work")
    write_json(path, vars(wanted))
    return wanted


def _sizes_path(folder: Path) -> Path:
    return folder / "work" / "sizes.json"


def _scan(
    stage: str,
    job: Job,
    files: Sequence[SourceFile],
    config: IngestConfig,
    sizes: IngestSizes,
    folder: Path,
) -> StageResult:
    task = ScanTask(
        folder=folder / "work" / stage,
        quarantine=folder / "quarantine",
        id_kind=sizes.id_kind,
        # Parquet says what its ids are, and text beside it has to hold the same.
        strict_ids=config.ids != "auto" or any(file.kind == "parquet" for file in files),
        fail=config.on_bad_edges == "fail",
        chunk_edges=sizes.chunk_edges,
    )
    pieces = split_into_pieces(files)
    result = job.run(stage, scan_piece, [Block(piece.name, (task, piece)) for piece in pieces])
    if result.total("ids") == 0:
        raise BadInputError(
            f"{files[0].path}{' and the other files hold' if len(files) > 1 else ' holds'} no edge "
            f"that can be used ({result.total('rejected')} rows were rejected). Give at least one."
        )
    names = [name for piece in pieces for name in result.stats[piece.name]["chunks"]]
    list_chunks(task.folder, names)
    return result


def _merge_ids(job: Job, scanned: StageResult, sizes: IngestSizes, folder: Path) -> IdIndex:
    gathered = 2 * scanned.total("id_bytes") + RANGE_BYTES_PER_ENTRY * scanned.total("ids")
    scan, bounds = folder / "work" / scanned.name, folder / "work" / "bounds.arrow"
    ranges = math.ceil(gathered / (sizes.range_bytes / 2))
    chosen = job.run("ranges", choose_bounds, [Block("all", (scan, ranges, bounds))])
    numbers = range(chosen.total("ranges"))
    blocks = [Block(f"{i:06d}", (scan, bounds, i, folder / "ids")) for i in numbers]
    merged = job.run("ids", merge_range, blocks)
    counts = [merged.stats[block.key]["ids"] for block in blocks]
    return IdIndex(folder / "ids", (0, *(int(end) for end in np.cumsum(counts))))


def _exchange_edges(
    job: Job,
    scanned: StageResult,
    index: IdIndex,
    config: IngestConfig,
    folder: Path,
    *,
    weighted: bool,
) -> Exchange:
    entries = 2 * scanned.total("edges")
    needed = entries * (28 if weighted else 14)
    if not (folder / "work" / "marks" / "relabel").exists() and needed > free_bytes(folder):
        raise ResourceError(
            f"ingest needs about {human_bytes(needed)} of disk at {folder}, and "
            f"{human_bytes(free_bytes(folder))} are free. Free some, or put the store elsewhere."
        )
    block_rows = config.block_rows or choose_block_rows(len(index), entries)
    exchange = Exchange(
        folder=folder / "work" / "exchange",
        block_rows=block_rows,
        blocks=math.ceil(len(index) / block_rows),
        column_bits=max(len(index) - 1, 1).bit_length(),
        weighted=weighted,
    )
    chunks = all_chunks(folder / "work" / scanned.name)
    blocks = [Block(chunk.name, (chunk, index, exchange)) for chunk in chunks]
    job.run("relabel", relabel_chunk, blocks)
    return exchange


def _build_blocks(job: Job, task: BuildTask) -> StageResult:
    shape, chunks = (len(task.index),), (task.exchange.block_rows,)
    for name, dtype in (("degrees", np.float64), ("keys", np.uint64)):
        ensure_zarr(task.graph / name, shape=shape, chunks=chunks, dtype=dtype)
    blocks = [Block(f"{block:06d}", (task, block)) for block in range(task.exchange.blocks)]
    return job.run("build", build_block, blocks)
