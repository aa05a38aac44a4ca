"""The job of ingest: edges in any form to a stored graph, stage by stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import Runner
from figrl.engine.stage import RESERVED_BYTES, StageResult, Stages, Stats
from figrl.errors import BadInputError, IdTypeChangedError, ResourceError
from figrl.ingestion.decay import Decay
from figrl.ingestion.exchange import FAN_IN, regroup_stages
from figrl.ingestion.format import SourceFile
from figrl.ingestion.ids import IdTask, id_stages
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.partition import BUILD_BYTES_PER_ENTRY, BuildTask, build_stage
from figrl.ingestion.scan import (
    SCAN_BYTES_PER_EDGE,
    ScanTask,
    chunk_names,
    latest_time,
    scan_stage,
)
from figrl.ingestion.shuffle import (
    RELABEL_BYTES_PER_EDGE,
    Shuffle,
    StoredIndex,
    edge_exchange,
    relabel_stage,
)
from figrl.ingestion.sources import agree, describe_reading, split_into_pieces
from figrl.store.files import delete, exists, free_bytes, read_json, write_json
from figrl.store.graph import choose_block_rows
from figrl.store.ids import IdIndex, IdKind
from figrl.store.sides import sides_of
from figrl.units import human_bytes

_LOOKS_BIPARTITE = (
    "No id is in both columns. If they hold two kinds of node, such as users and items, ingest "
    "with --kind bipartite: then nodes are told apart by their side, and 'figrl neighbors' finds "
    "items for a user."
)

RUN_BYTES_PER_EDGE = 32
"""Bytes that are merged at a time when files are regrouped, per edge of a chunk."""

_MIN_CHUNK_EDGES, _MAX_CHUNK_EDGES = 1 << 14, 1 << 20


@dataclass(frozen=True)
class IngestSizes:
    """How much of the input is in memory at a time; the result does not depend on it."""

    chunk_edges: int
    range_bytes: int
    build_entries: int
    id_kind: IdKind
    fan_in: int = FAN_IN

    @classmethod
    def for_memory(cls, memory: ClusterMemory, id_kind: IdKind) -> IngestSizes:
        """Choose sizes that fit the memory of each thread of a worker."""
        task_bytes = (memory.allowed_bytes - RESERVED_BYTES) // memory.threads
        per_edge = max(SCAN_BYTES_PER_EDGE, RELABEL_BYTES_PER_EDGE)
        if task_bytes < per_edge * _MIN_CHUNK_EDGES:
            needed = RESERVED_BYTES + memory.threads * per_edge * _MIN_CHUNK_EDGES
            raise ResourceError(
                f"ingest needs at least {human_bytes(needed / memory.usable_share)} for a worker "
                f"with {memory.threads} threads; each has {human_bytes(memory.limit_bytes)}. "
                f"{memory.remedy()}"
            )
        return cls(
            chunk_edges=min(1 << int(math.log2(task_bytes / per_edge)), _MAX_CHUNK_EDGES),
            range_bytes=min(task_bytes, 256 << 20),
            build_entries=min(task_bytes // BUILD_BYTES_PER_ENTRY, 1 << 23),
            id_kind=id_kind,
        )

    @classmethod
    def begun_in(cls, work: Path, wanted: IngestSizes) -> IngestSizes:
        """Sizes of the unfinished work in a folder, if they fit the memory; else start over."""
        path = work / "state.json"
        if exists(path):
            state = read_json(path)
            names = ("chunk_edges", "range_bytes", "build_entries")
            fits = all(state[name] <= getattr(wanted, name) for name in names)
            if fits and state.get("fan_in") == wanted.fan_in:
                return cls(**state)
        # What lies there without a state, or without all of it, was begun by an earlier version.
        delete(work)
        write_json(path, vars(wanted))
        return wanted


def build_graph(
    runner: Runner,
    files: Sequence[SourceFile],
    options: IngestOptions,
    memory: ClusterMemory,
    folder: Path,
    *,
    both_sides: bool = True,
) -> Stats:
    """Run all stages of ingest; see `ingest_stages`. The marks lie below ``folder / "work"``."""
    note = runner.monitor.note
    return runner.run(ingest_stages(files, options, memory, folder, note, both_sides=both_sides))


def ingest_stages(
    files: Sequence[SourceFile],
    options: IngestOptions,
    memory: ClusterMemory,
    folder: Path,
    note: Callable[[str], None],
    *,
    both_sides: bool = True,
) -> Stages[Stats]:
    """All stages of ingest.

    `folder`: folder of the graph. Unfinished work lies in its sub-folder ``work``. `note`: shows a
    message to the user. `both_sides`: of a directed graph, whether every node is on both sides.
    Returns the section ``graph`` of the manifest.
    """
    work = folder / "work"
    id_kind, weighted = agree(files, options)
    sizes = IngestSizes.begun_in(work, IngestSizes.for_memory(memory, id_kind))
    pieces = split_into_pieces(files)
    task = ScanTask(
        folder=work / "scan",
        quarantine=folder / "quarantine",
        id_kind=id_kind,
        # A typed format states what its ids are, and text beside it has to hold the same.
        strict_ids=options.ids != "auto" or any(file.typed for file in files),
        fail=options.on_bad_edges == "fail",
        chunk_edges=sizes.chunk_edges,
        kind=options.kind,
        both_sides=both_sides,
        half_life=options.decay,
    )
    scanned: StageResult | None = None
    if sizes.id_kind == id_kind:
        try:
            scanned = yield scan_stage("scan", task, pieces)
        except IdTypeChangedError as changed:
            note(f"Ids are not all integers ({changed}): reading them as text.")
            sizes = replace(sizes, id_kind="string")
            write_json(work / "state.json", vars(sizes))
    if scanned is None:
        # Tasks that still read ids as integers may write chunks and marks yet, so reading them as
        # text is a stage of its own.
        task = replace(task, folder=work / "rescan", id_kind=sizes.id_kind)
        scanned = yield scan_stage("rescan", task, pieces, frees=(work / "scan",))
    if scanned.total("ids") == 0:
        raise BadInputError(_no_edges(files, scanned.total("rejected")))
    chunks, run_bytes = chunk_names(scanned), RUN_BYTES_PER_EDGE * sizes.chunk_edges
    ids = yield from id_stages(
        IdTask(task.folder, work, folder / "ids"),
        scanned,
        sizes.range_bytes,
        run_bytes,
        sides_of(options.kind),
        sizes.id_kind,
        sizes.fan_in,
    )
    nodes, decay = ids.starts[-1], _decay(options, scanned)
    weighted = weighted or decay is not None
    entries = 2 * scanned.total("edges")
    block_rows = options.block_rows or choose_block_rows(nodes, entries)
    edges = edge_exchange(
        work / "edges", len(chunks), nodes, block_rows, weighted=weighted, fan_in=sizes.fan_in
    )
    _check_disk(work, folder, entries * (2 if weighted else 1), regrouped=edges.levels > 0)
    index = StoredIndex.save(IdIndex(folder / "ids", ids.starts, ids.target_start), work)
    shuffle = Shuffle(edges, ids.places, index, nodes, block_rows, weighted, decay)
    yield relabel_stage(shuffle, task.folder, chunks, sizes.chunk_edges)
    yield from regroup_stages("edges", [edges], run_bytes)
    built = yield build_stage(BuildTask(folder, shuffle, sizes.build_entries))
    blocks = list(built.stats.values())
    return {
        "nodes": nodes,
        "edges": built.total("entries") // 2,
        "block_rows": block_rows,
        "blocks": shuffle.blocks,
        "largest_block_edges": max(stats["entries"] for stats in blocks),
        "id_kind": sizes.id_kind,
        "id_starts": list(ids.starts),
        "weighted": any(stats["weighted"] for stats in blocks),
        # Correctly rounded, so it does not depend on the order in which blocks were done.
        "mean_degree": math.fsum(stats["total_degree"] for stats in blocks) / nodes,
        "max_neighbours": max(stats["max_neighbours"] for stats in blocks),
        "isolated_nodes": built.total("isolated"),
        "rows_read": scanned.total("rows"),
        "rows_rejected": scanned.total("rejected"),
        "self_loops_dropped": scanned.total("self_loops"),
        "repeated_edges_merged": scanned.total("edges") - built.total("entries") // 2,
        "kind": options.kind,
        "target_start": ids.target_start,
        **({} if decay is None else {"as_of": decay.now}),
        "input": describe_reading(files),
        "notes": _notes(files, looks_bipartite=ids.in_both == 0),
    }


def _no_edges(files: Sequence[SourceFile], rejected: int) -> str:
    """Why there is nothing to build: files without rows, or rows that were all set aside."""
    these = f"{files[0].path}{' and the other files have' if len(files) > 1 else ' has'}"
    if not rejected:
        return f"{these} no edges, only a header or nothing. Give at least one."
    return f"{these} no edge that can be used ({rejected} rows were rejected). Give at least one."


def _check_disk(work: Path, folder: Path, numbers: int, *, regrouped: bool) -> None:
    """Refuse a disk that is too small for numbers of 8 bytes on their way, and stored edges."""
    needed, free = numbers * (16 if regrouped else 14), free_bytes(work)
    if needed > free and not exists(work / "marks" / "relabel"):
        raise ResourceError(
            f"ingest needs about {human_bytes(needed)} of disk at {folder}, and "
            f"{human_bytes(free)} are free. Free some, or put the store elsewhere."
        )


def _notes(files: Sequence[SourceFile], *, looks_bipartite: bool) -> list[str]:
    """What the user should know: guesses that may be wrong, of many files the first few."""
    guesses = list(dict.fromkeys(note for file in files for note in file.notes))
    more = [f"There are {len(guesses) - 5} more notes like these."] if len(guesses) > 5 else []
    return [*([_LOOKS_BIPARTITE] if looks_bipartite else []), *guesses[:5], *more]


def _decay(options: IngestOptions, scanned: StageResult) -> Decay | None:
    """How weights decay: up to the time of the options, or the latest of the input."""
    half_life = options.decay
    if half_life is None:
        return None
    latest = options.as_of is None
    return Decay(
        half_life, latest_time(scanned) if latest else half_life.parse_time(str(options.as_of))
    )
