"""First step of ingest: every piece of the input is read once and checked.

A piece becomes chunks. A chunk holds its distinct ids, sorted, and its edges as pairs of places
in them; no later step reads the input again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.blocks import Stats
from pipeline.files import load_array, read_json, save_array, write_json
from pipeline.ingest.arrow import IdKind, to_numpy, write_ids
from pipeline.ingest.checks import Edges, Quarantine, check_edges
from pipeline.ingest.readers import BATCH_ROWS, read_piece
from pipeline.ingest.sources import Piece

ID_BYTES_PER_EDGE = 32
"""A chunk of strings ends early if its ids are longer than this on average."""

SCAN_BYTES_PER_EDGE = 200
"""Peak memory of a scan per edge of a chunk: ids, hash table, places, sorted copy."""


@dataclass(frozen=True)
class ScanTask:
    """What every piece has to know."""

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
        """Distinct ids, sorted, with a flag for those that stand in the source column."""
        return self.folder / f"{self.name}.ids.arrow"

    @property
    def places(self) -> Path:
        """Two rows of places in the ids: source and target."""
        return self.folder / f"{self.name}.places.npy"

    @property
    def weights(self) -> Path:
        """Weights of the edges, where there are any."""
        return self.folder / f"{self.name}.weights.npy"

    def load_places(self) -> npt.NDArray[np.int32]:
        """Read the edges of the chunk."""
        return load_array(self.places)


def scan_piece(task: ScanTask, piece: Piece) -> Stats:
    """Read a piece of the input, judge its rows and write its chunks."""
    quarantine = Quarantine(piece, task.fail)
    stats: Stats = {
        "rows": 0,
        "edges": 0,
        "self_loops": 0,
        "ids": 0,
        "id_bytes": 0,
        "read_bytes": _piece_bytes(piece),
        "written_bytes": 0,
        "chunks": [],
    }
    for number, edges in enumerate(_chunks(task, piece, quarantine)):
        chunk = Chunk(task.folder, f"{piece.name}-{number:04d}")
        _write_chunk(chunk, edges, stats)
    quarantine.write(task.quarantine / f"{piece.name}.parquet")
    stats["rejected"] = len(quarantine.rows)
    stats["rows"] += len(quarantine.rows)
    return stats


def _piece_bytes(piece: Piece) -> int:
    file = piece.file
    if file.kind == "parquet":
        return file.size_bytes * (piece.stop - piece.start) // max(file.row_groups, 1)
    return piece.stop - piece.start


def _chunks(task: ScanTask, piece: Piece, quarantine: Quarantine) -> Iterator[Edges]:
    """Gather batches until a chunk is full, by edges or by bytes of ids."""
    waiting: list[Edges] = []
    edges = id_bytes = 0
    for batch in read_piece(piece, task.id_kind, strict=task.strict_ids):
        checked = check_edges(batch, task.id_kind, quarantine, strict_ids=task.strict_ids)
        for part in _slices(checked, min(BATCH_ROWS, task.chunk_edges)):
            waiting.append(part)
            edges += len(part.source)
            id_bytes += part.source.nbytes + part.target.nbytes
            if edges >= task.chunk_edges or id_bytes >= task.chunk_edges * ID_BYTES_PER_EDGE:
                yield _joined(waiting)
                waiting, edges, id_bytes = [], 0, 0
    if edges:
        yield _joined(waiting)


def _slices(edges: Edges, rows: int) -> Iterator[Edges]:
    for start in range(0, len(edges.source), rows):
        weight = None if edges.weight is None else edges.weight[start : start + rows]
        yield Edges(edges.source.slice(start, rows), edges.target.slice(start, rows), weight)


def _joined(parts: list[Edges]) -> Edges:
    weights = [part.weight for part in parts if part.weight is not None]
    return Edges(
        pa.concat_arrays([part.source for part in parts]),
        pa.concat_arrays([part.target for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def _write_chunk(chunk: Chunk, edges: Edges, stats: Stats) -> None:
    ids, places = number_ids(edges.source, edges.target)
    is_source = np.zeros(len(ids), bool)
    is_source[places[0]] = True
    stats["written_bytes"] += write_ids(chunk.ids, {"id": ids, "is_source": pa.array(is_source)})
    proper = places[0] != places[1]
    stats["rows"] += places.shape[1]
    stats["self_loops"] += int((~proper).sum())
    places = places[:, proper]
    save_array(chunk.places, places)
    stats["written_bytes"] += places.nbytes
    if edges.weight is not None:
        save_array(chunk.weights, edges.weight[proper])
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


def list_chunks(folder: Path, names: list[str]) -> None:
    """Keep the names of all chunks, in the order of the input, where tasks can read them."""
    write_json(folder / "chunks.json", names)


def all_chunks(folder: Path) -> tuple[Chunk, ...]:
    """Name all chunks of a scan, in the order of the input."""
    return tuple(Chunk(folder, name) for name in read_json(folder / "chunks.json"))
