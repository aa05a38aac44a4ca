"""First stage of ingest, ``scan``: every piece of the input is read once and checked.

A piece becomes chunks. A chunk holds its distinct ids, sorted, and its edges as pairs of places
in them; no later stage reads the input again. Where nodes have sides, a chunk holds the ids of
each, and the places of the target side go on after those of the source side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stats
from figrl.ingestion.checks import Quarantine, check_edges
from figrl.ingestion.decay import HalfLife
from figrl.ingestion.format import BATCH_ROWS, Piece
from figrl.ingestion.formats import read_piece
from figrl.store.files import save_array
from figrl.store.ids import IdKind, rank_ids, to_numpy, write_ids
from figrl.store.sides import SIDES, GraphKind, Side

Places = npt.NDArray[np.int32]

ID_BYTES_PER_EDGE = 32
"""A chunk of strings ends early if its ids are longer than this on average."""

SCAN_BYTES_PER_EDGE = 200
"""Peak memory of a scan per edge of a chunk: ids, hash table, places, sorted copy."""

_COUNTS = ("rows", "edges", "self_loops", "ids", "in_both", "id_bytes", "written_bytes")


@dataclass(frozen=True)
class ScanTask:
    """Parameters shared by all pieces.

    `both_sides`: of a directed graph, whether a node is on both sides even if it is only in one of
    the columns. `half_life`: how times are read, where edges have them.
    """

    folder: Path
    quarantine: Path
    id_kind: IdKind
    strict_ids: bool
    fail: bool
    chunk_edges: int
    kind: GraphKind = "undirected"
    both_sides: bool = True
    half_life: HalfLife | None = None


@dataclass(frozen=True)
class Chunk:
    """Paths of one chunk."""

    folder: Path
    name: str

    def ids(self, side: Side | None = None) -> Path:
        """Distinct ids of a side, sorted; without sides, with a flag for those that are sources."""
        return self.folder / f"{self.name}.{side or 'ids'}.arrow"

    @property
    def places(self) -> Path:
        """Two rows of places in the ids, of all sides in a row: source and target."""
        return self.folder / f"{self.name}.places.npy"

    @property
    def weights(self) -> Path:
        """Weights of the edges, where there are any."""
        return self.folder / f"{self.name}.weights.npy"

    @property
    def times(self) -> Path:
        """Times of the edges, where weights decay with age."""
        return self.folder / f"{self.name}.times.npy"


def scan_stage(
    name: str, task: ScanTask, pieces: Sequence[Piece], *, frees: tuple[Path, ...] = ()
) -> Stage:
    """Read and check all pieces of the input."""
    return Stage(
        name,
        scan_piece,
        tuple(Block(piece.name, (task, piece)) for piece in pieces),
        memory=Memory(task_bytes=SCAN_BYTES_PER_EDGE * task.chunk_edges),
        frees=frees,
    )


def scan_piece(task: ScanTask, piece: Piece) -> Stats:
    """Read a piece of the input, check its rows and write its chunks."""
    quarantine = Quarantine(piece, task.fail)
    stats: Stats = {"read_bytes": piece.size_bytes, "chunks": []}
    stats |= dict.fromkeys(_COUNTS, 0)
    stats["latest"] = None
    for number, edges in enumerate(_chunks(task, piece, quarantine)):
        chunk = Chunk(task.folder, f"{piece.name}-{number:04d}")
        _write_chunk(task, chunk, edges, stats)
    quarantine.write(task.quarantine / f"{piece.name}.parquet")
    stats["rejected"] = len(quarantine.rows)
    stats["rows"] += len(quarantine.rows)
    return stats


def _chunks(task: ScanTask, piece: Piece, quarantine: Quarantine) -> Iterator[pa.Table]:
    """Gather batches until a chunk is full, by edges or by bytes of ids."""
    waiting: list[pa.RecordBatch] = []
    edges = id_bytes = 0
    step = min(BATCH_ROWS, task.chunk_edges)
    reading: dict[str, Any] = {"strict_ids": task.strict_ids, "half_life": task.half_life}
    for batch in read_piece(piece):
        checked = check_edges(batch, task.id_kind, quarantine, **reading)
        for start in range(0, checked.num_rows, step):
            part = checked.slice(start, step)
            waiting.append(part)
            edges += part.num_rows
            id_bytes += part["source"].nbytes + part["target"].nbytes
            if edges >= task.chunk_edges or id_bytes >= task.chunk_edges * ID_BYTES_PER_EDGE:
                yield pa.Table.from_batches(waiting)
                waiting, edges, id_bytes = [], 0, 0
    if edges:
        yield pa.Table.from_batches(waiting)


def _write_chunk(task: ScanTask, chunk: Chunk, edges: pa.Table, stats: Stats) -> None:
    ids, places = number_ids(edges["source"].combine_chunks(), edges["target"].combine_chunks())
    # In a bipartite graph the same id at both ends names two nodes.
    proper = (places[0] != places[1]) | (task.kind == "bipartite")
    stats["rows"] += places.shape[1]
    stats["self_loops"] += int((~proper).sum())
    if task.kind == "undirected":
        is_source, is_target = _used(ids, places)
        stats["in_both"] += int((is_source & is_target).sum())
        _write_ids(chunk.ids(), {"id": ids, "is_source": pa.array(is_source)}, stats)
    else:
        complete = task.kind == "directed" and task.both_sides
        ids_by_side, places = split_by_side(ids, places, complete=complete)
        for side, own in zip(SIDES, ids_by_side, strict=True):
            _write_ids(chunk.ids(side), {"id": own}, stats)
    columns = {"weight": chunk.weights, "time": chunk.times}
    kept = {columns[name]: to_numpy(edges[name]) for name in edges.column_names if name in columns}
    if chunk.times in kept:
        latest = float(kept[chunk.times].max())
        stats["latest"] = latest if stats["latest"] is None else max(stats["latest"], latest)
    for path, values in {chunk.places: places, **kept}.items():
        values = values[..., proper]
        save_array(path, values)
        stats["written_bytes"] += values.nbytes
    stats["edges"] += int(proper.sum())
    stats["chunks"].append(chunk.name)


def _write_ids(path: Path, columns: dict[str, pa.Array], stats: Stats) -> None:
    stats["written_bytes"] += write_ids(path, columns)
    stats["ids"] += len(columns["id"])
    stats["id_bytes"] += columns["id"].nbytes


def _used(ids: pa.Array, places: Places) -> npt.NDArray[np.bool_]:
    """Which ids are at the source, and which at the target of an edge: one row each."""
    used = np.zeros((2, len(ids)), bool)
    used[0, places[0]] = used[1, places[1]] = True
    return used


def split_by_side(
    ids: pa.Array, places: Places, *, complete: bool
) -> tuple[list[pa.Array], Places]:
    """Ids of each side, and places in the ids of the source side followed by those of the target.

    `complete`: whether each side has all ids, not only those of its column.
    """
    used = np.ones((2, len(ids)), bool) if complete else _used(ids, places)
    ranks = (np.cumsum(used, dtype=np.int32) - 1).reshape(used.shape)
    own = [ids.filter(pa.array(on_side)) for on_side in used]
    return own, np.stack([ranks[0, places[0]], ranks[1, places[1]]])


def number_ids(source: pa.Array, target: pa.Array) -> tuple[pa.Array, Places]:
    """Sorted distinct ids of both ends, and each end as a place among them."""
    ids, places = rank_ids(pa.concat_arrays([source, target]))
    return ids, places.reshape(2, -1)


def latest_time(scanned: StageResult) -> float:
    """Latest time of all edges that were accepted."""
    found = [stats["latest"] for stats in scanned.stats.values()]
    return max(float(time) for time in found if time is not None)


def chunk_names(scanned: StageResult) -> list[str]:
    """Names of the chunks that a scan has written, in the order of the input."""
    return [name for key in sorted(scanned.stats, key=int) for name in scanned.stats[key]["chunks"]]
