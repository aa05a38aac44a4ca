"""Last step of ingest: each row block sorts and merges its edges and is written for good."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import open_zarr, write_rows
from pipeline.blocks import Stats
from pipeline.errors import ResourceError
from pipeline.files import written_aside
from pipeline.ingest.arrow import node_keys, parquet_id_type
from pipeline.ingest.exchange import Exchange, Keys, Weights
from pipeline.ingest.ids import IdIndex
from pipeline.ingest.scan import all_chunks
from pipeline.measure import human_bytes

ROW_GROUP_EDGES = 1 << 18
"""Edges in a row group of the stored graph: what a product holds of a block at a time."""

BUILD_BYTES_PER_ENTRY = 72
"""Peak memory of a build per entry (one direction of an edge) that is sorted at a time."""


@dataclass(frozen=True)
class BuildTask:
    """What every row block has to know."""

    graph: Path
    scan: Path
    index: IdIndex
    exchange: Exchange
    max_entries: int

    @property
    def chunks(self) -> list[str]:
        """Names of all chunks, in the order of the input."""
        return [chunk.name for chunk in all_chunks(self.scan)]


def edges_path(graph: Path, block: int) -> Path:
    """Where the edges of a row block lie."""
    return graph / "edges" / f"part-{block:06d}.parquet"


def nodes_path(graph: Path, block: int) -> Path:
    """Where the ids of a row block lie."""
    return graph / "nodes" / f"part-{block:06d}.parquet"


def write_edges(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write entries sorted by row then column; each table is a row group.

    Of the encodings that Arrow has for integers, differences are the smallest and the quickest to
    read for sorted columns, and a compressor finds nothing left to do: see docs/performance.md.
    """
    with (
        written_aside(path) as aside,
        pq.ParquetWriter(
            aside,
            schema,
            use_dictionary=False,
            column_encoding={"row": "DELTA_BINARY_PACKED", "column": "DELTA_BINARY_PACKED"},
            compression="none",
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP_EDGES)


def build_block(task: BuildTask, block: int) -> Stats:
    """Sort and merge the edges of a row block; write edges, nodes, degrees and keys."""
    exchange = task.exchange
    start = block * exchange.block_rows
    stop = min(start + exchange.block_rows, len(task.index))
    degrees = np.zeros(stop - start)
    counts = np.zeros(stop - start, np.int64)
    entries = 0
    all_ones = not exchange.weighted or _all_weights_are_one(task, block)
    names = ["row", "column"] if all_ones else ["row", "column", "weight"]
    schema = pa.schema([(name, pa.float64() if name == "weight" else pa.int64()) for name in names])
    path = edges_path(task.graph, block)

    def tables() -> Iterator[pa.Table]:
        nonlocal entries, degrees, counts
        for rows, columns, weights in _row_groups(_merged_parts(task, block)):
            degrees += np.bincount(rows, weights, minlength=degrees.size)
            counts += np.bincount(rows, minlength=degrees.size)
            entries += rows.size
            data = [pa.array(rows + start), pa.array(columns)]
            if not all_ones:
                data.append(pa.array(weights))
            yield pa.table(data, schema)

    write_edges(path, tables(), schema)
    ids = task.index.ids_of(start, stop)
    write_rows(open_zarr(task.graph / "degrees"), start, degrees)
    write_rows(open_zarr(task.graph / "keys"), start, node_keys(ids))
    _write_nodes(task.graph, block, ids, start)
    return {
        "entries": entries,
        "weighted": not all_ones,
        "max_neighbours": int(counts.max(initial=0)),
        "isolated": int((counts == 0).sum()),
        "total_degree": float(degrees.sum()),
        "written_bytes": path.stat().st_size + 16 * degrees.size + ids.nbytes,
    }


def _write_nodes(graph: Path, block: int, ids: pa.Array, start: int) -> None:
    kind = parquet_id_type("int" if pa.types.is_int64(ids.type) else "string")
    table = pa.table({"id": ids.cast(kind), "row": np.arange(start, start + len(ids))})
    with written_aside(nodes_path(graph, block)) as aside:
        pq.write_table(table, aside)


Part = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64] | None]


def _merged_parts(task: BuildTask, block: int) -> Iterator[Part]:
    """Merged edges of a block, sorted by row then column, as many rows at a time as fit."""
    bits = task.exchange.column_bits
    for first, last in _row_cuts(task, block):
        keys, weights = _gather(task, block, first, last)
        if weights is None:
            keys.sort()
            keys = keys[_is_first(keys)]
        else:
            order = np.argsort(keys, kind="stable")
            keys, weights = keys[order], weights[order]
            begins = np.flatnonzero(_is_first(keys))
            keys = keys[begins]
            weights = np.add.reduceat(weights, begins) if keys.size else weights
        yield keys >> bits, keys & ((1 << bits) - 1), weights


def _is_first(keys: Keys) -> npt.NDArray[np.bool_]:
    """Where a key differs from the one before it."""
    first = np.ones(keys.size, bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def _row_groups(parts: Iterator[Part]) -> Iterator[Part]:
    """Cut parts anew, so that row groups do not depend on how many rows were sorted at a time."""
    waiting: list[Part] = []
    room = ROW_GROUP_EDGES
    for part in parts:
        start, size = 0, part[0].size
        while size - start >= room:
            yield _joined([*waiting, _cut(part, start, start + room)])
            start, waiting, room = start + room, [], ROW_GROUP_EDGES
        waiting.append(_cut(part, start, size))
        room -= size - start
    if room < ROW_GROUP_EDGES:
        yield _joined(waiting)


def _cut(part: Part, start: int, stop: int) -> Part:
    # A copy, so that a few rows that wait for the next part do not keep all of theirs in memory.
    rows, columns, weights = part
    weights = None if weights is None else weights[start:stop].copy()
    return rows[start:stop].copy(), columns[start:stop].copy(), weights


def _joined(parts: list[Part]) -> Part:
    weights = [part[2] for part in parts if part[2] is not None]
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def _row_cuts(task: BuildTask, block: int) -> list[tuple[int, int]]:
    """Rows of a block in runs whose entries fit the memory."""
    exchange = task.exchange
    parts = [exchange.part(chunk, block) for chunk in task.chunks]
    if sum(stop - start for start, stop in parts) <= task.max_entries:
        return [(0, exchange.block_rows)]
    counts = np.zeros(exchange.block_rows, np.int64)
    for chunk in task.chunks:
        rows = exchange.keys(chunk, block) >> exchange.column_bits
        counts += np.bincount(rows, minlength=counts.size)
    heaviest = int(counts.argmax())
    if counts[heaviest] > task.max_entries:
        node = task.index.ids_of(
            block * exchange.block_rows + heaviest, block * exchange.block_rows + heaviest + 1
        )[0]
        needed = human_bytes(int(counts[heaviest]) * BUILD_BYTES_PER_ENTRY)
        raise ResourceError(
            f"Node {node.as_py()!r} alone has {counts[heaviest]} edges in the input, and sorting "
            f"them takes about {needed}. Give the workers more memory (--memory-limit, or the "
            "cluster file), or fewer threads each."
        )
    cuts, total, begin = [], 0, 0
    ends = np.cumsum(counts)
    while begin < counts.size:
        end = int(np.searchsorted(ends, total + task.max_entries, side="right"))
        cuts.append((begin, end))
        total, begin = int(ends[end - 1]), end
    return cuts


def _gather(task: BuildTask, block: int, first: int, last: int) -> tuple[Keys, Weights | None]:
    """Entries of a block in the rows from `first` up to `last`, in the order of the input."""
    exchange = task.exchange
    low, high = first << exchange.column_bits, last << exchange.column_bits
    keys, weights = [], []
    for chunk in task.chunks:
        found = exchange.keys(chunk, block)
        chosen = (found >= low) & (found < high)
        keys.append(found[chosen])
        if exchange.weighted:
            weights.append(exchange.weights(chunk, block)[chosen])
    return np.concatenate(keys), np.concatenate(weights) if exchange.weighted else None


def _all_weights_are_one(task: BuildTask, block: int) -> bool:
    """Whether the block's merged weights are all 1, so that the column can be left out."""
    if any((task.exchange.weights(chunk, block) != 1).any() for chunk in task.chunks):
        return False
    merged = (weights for _, _, weights in _merged_parts(task, block))
    return all(weights is None or bool((weights == 1).all()) for weights in merged)


def choose_block_rows(nodes: int, entries: int) -> int:
    """Rows in a block, from the size of the graph alone, so that results do not depend on memory.

    A block should hold enough edges to be worth a task of a tenth of a second, and there should be
    enough blocks to keep a dozen threads busy.
    """
    wanted = min(max(entries // 32, 1 << 18), 1 << 22)
    rows = max(1.0, wanted * nodes / max(entries, 1))
    return min(max(1 << round(math.log2(rows)), 1 << 10), 1 << 20)
