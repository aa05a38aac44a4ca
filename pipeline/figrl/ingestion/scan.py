"""First stage of ingest, ``scan``: every piece of the input is read once and checked.

A piece becomes chunks. A chunk holds its distinct ids, sorted, and its edges as pairs of places
in them; no later stage reads the input again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stats
from figrl.ingestion.checks import Quarantine, check_edges
from figrl.ingestion.format import BATCH_ROWS, Piece
from figrl.ingestion.formats import read_piece
from figrl.store.files import save_array
from figrl.store.ids import IdKind, to_numpy, write_ids

ID_BYTES_PER_EDGE = 32
"""A chunk of strings ends early if its ids are longer than this on average."""

SCAN_BYTES_PER_EDGE = 200
"""Peak memory of a scan per edge of a chunk: ids, hash table, places, sorted copy."""


@dataclass(frozen=True)
class ScanTask:
    """Parameters shared by all pieces."""

    folder: Path
    quarantine: Path
    id_kind: IdKind
    strict_ids: bool
    fail: bool
    chunk_edges: int


@dataclass(frozen=True)
class Chunk:
    """Paths of one chunk."""

    folder: Path
    name: str

    @property
    def ids(self) -> Path:
        """Distinct ids, sorted, with a flag for those in the source column."""
        return self.folder / f"{self.name}.ids.arrow"

    @property
    def places(self) -> Path:
        """Two rows of places in the ids: source and target."""
        return self.folder / f"{self.name}.places.npy"

    @property
    def weights(self) -> Path:
        """Weights of the edges, where there are any."""
        return self.folder / f"{self.name}.weights.npy"


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
    stats |= dict.fromkeys(("rows", "edges", "self_loops", "ids", "id_bytes", "written_bytes"), 0)
    for number, edges in enumerate(_chunks(task, piece, quarantine)):
        chunk = Chunk(task.folder, f"{piece.name}-{number:04d}")
        _write_chunk(chunk, edges, stats)
    quarantine.write(task.quarantine / f"{piece.name}.parquet")
    stats["rejected"] = len(quarantine.rows)
    stats["rows"] += len(quarantine.rows)
    return stats


def _chunks(task: ScanTask, piece: Piece, quarantine: Quarantine) -> Iterator[pa.Table]:
    """Gather batches until a chunk is full, by edges or by bytes of ids."""
    waiting: list[pa.RecordBatch] = []
    edges = id_bytes = 0
    step = min(BATCH_ROWS, task.chunk_edges)
    for batch in read_piece(piece):
        checked = check_edges(batch, task.id_kind, quarantine, strict_ids=task.strict_ids)
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


def _write_chunk(chunk: Chunk, edges: pa.Table, stats: Stats) -> None:
    ids, places = number_ids(edges["source"].combine_chunks(), edges["target"].combine_chunks())
    is_source = np.zeros(len(ids), bool)
    is_source[places[0]] = True
    stats["written_bytes"] += write_ids(chunk.ids, {"id": ids, "is_source": pa.array(is_source)})
    proper = places[0] != places[1]
    stats["rows"] += places.shape[1]
    stats["self_loops"] += int((~proper).sum())
    places = places[:, proper]
    save_array(chunk.places, places)
    stats["written_bytes"] += places.nbytes
    if "weight" in edges.column_names:
        save_array(chunk.weights, to_numpy(edges["weight"])[proper])
        stats["written_bytes"] += 8 * places.shape[1]
    stats["edges"] += places.shape[1]
    stats["ids"] += len(ids)
    stats["id_bytes"] += ids.nbytes
    stats["chunks"].append(chunk.name)


def number_ids(source: pa.Array, target: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Sorted distinct ids of both ends, and each end as a place among them."""
    encoded = pa.concat_arrays([source, target]).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int32)
    ranks[to_numpy(order)] = np.arange(len(order), dtype=np.int32)
    places = ranks[to_numpy(encoded.indices)].reshape(2, -1)
    return encoded.dictionary.take(order), places


def chunk_names(scanned: StageResult) -> list[str]:
    """Names of the chunks that a scan has written, in the order of the input."""
    return [name for key in sorted(scanned.stats, key=int) for name in scanned.stats[key]["chunks"]]
