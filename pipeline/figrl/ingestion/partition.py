"""Last stage of ingest, ``build``: each row block sorts and merges its edges and is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.engine.stage import Memory, Stage, Stats, numbered
from figrl.errors import ResourceError
from figrl.ingestion.shuffle import Shuffle
from figrl.store.arrays import ArraySpec, open_zarr, write_rows
from figrl.store.files import size_bytes
from figrl.store.graph import ROW_GROUP_EDGES, edges_path, write_edges
from figrl.units import human_bytes

BUILD_BYTES_PER_ENTRY = 72
"""Peak memory of a build per entry (one direction of an edge) that is sorted at a time."""

BUILD_BYTES_PER_ROW = 64
"""Peak memory of a build per row of the block: degrees, numbers of neighbours, ids, keys."""

_PIECES = 8
"""Of entries that do not fit the memory, this share of what does is read at a time."""

Part = tuple[npt.NDArray[Any], ...]
"""Rows within the block and columns of entries, sorted, and their weights where there are any."""


@dataclass(frozen=True)
class BuildTask:
    """Parameters shared by all row blocks."""

    graph: Path
    shuffle: Shuffle
    max_entries: int


def build_stage(task: BuildTask) -> Stage:
    """Write all row blocks of the graph."""
    shuffle = task.shuffle
    shape, chunks = (shuffle.nodes,), (shuffle.block_rows,)
    entries, rows = BUILD_BYTES_PER_ENTRY * task.max_entries, BUILD_BYTES_PER_ROW * chunks[0]
    return Stage(
        "build",
        build_block,
        numbered(task, shuffle.blocks),
        memory=Memory(task_bytes=entries + rows),
        reads=(shuffle.edges.folder, shuffle.index.ids),
        writes=(
            ArraySpec(task.graph / "degrees", shape, chunks, "float64"),
            ArraySpec(task.graph / "keys", shape, chunks, "uint64"),
        ),
    )


def build_block(task: BuildTask, number: int) -> Stats:
    """Sort and merge the edges of a row block; write edges, degrees and keys."""
    block, shuffle = RowBlock(task, number), task.shuffle
    weighted = shuffle.weighted and not block.all_weights_are_one()
    start, stop = shuffle.block_range(number)
    degrees = np.zeros(stop - start)
    counts = np.zeros(degrees.size, np.int64)
    fields = [("row", pa.int64()), ("column", pa.int64()), ("weight", pa.float64())]
    schema = pa.schema(fields if weighted else fields[:2])
    path = edges_path(task.graph, number)

    def tables() -> Iterator[pa.Table]:
        nonlocal degrees, counts
        for rows, *others in row_groups(block.merged_parts()):
            weights = others[1] if shuffle.weighted else None
            degrees += np.bincount(rows, weights, minlength=degrees.size)
            counts += np.bincount(rows, minlength=degrees.size)
            columns = [rows + start, *others]
            yield pa.table([pa.array(column) for column in columns[: len(schema)]], schema)

    write_edges(path, tables(), schema)
    write_rows(open_zarr(task.graph / "degrees"), start, degrees)
    write_rows(open_zarr(task.graph / "keys"), start, shuffle.index.loaded().keys_of(start, stop))
    return {
        "entries": int(counts.sum()),
        "weighted": weighted,
        "max_neighbours": int(counts.max(initial=0)),
        "isolated": int((counts == 0).sum()),
        "total_degree": float(degrees.sum()),
        "written_bytes": size_bytes(path) + 16 * degrees.size,
    }


@dataclass(frozen=True)
class RowBlock:
    """The entries of one row block in the shuffle."""

    task: BuildTask
    number: int

    def all_weights_are_one(self) -> bool:
        """Whether all weights, single and merged, are 1, so that the column can be left out."""
        return all(ones for _, ones in self._merged())

    def merged_parts(self) -> Iterator[Part]:
        """Merged edges, sorted by row then column, as many rows at a time as fit the memory."""
        return (part for part, _ in self._merged())

    def _merged(self) -> Iterator[tuple[Part, bool]]:
        """Merged edges, and whether all their weights are 1."""
        if self._whole is not None:
            yield self._whole
            return
        for first, last in self._row_cuts():
            yield self._merge(self._gather(first, last))

    @cached_property
    def _whole(self) -> tuple[Part, bool] | None:
        """All merged edges, of files that are opened once; None if they do not fit the memory."""
        gathered, total = [], 0
        for reader, places in self.task.shuffle.edges.readers(self.number):
            total += places[0][1] - places[0][0]
            if total > self.task.max_entries:
                return None
            gathered.append([reader.read(column, *place) for column, place in enumerate(places)])
        return self._merge(tuple(np.concatenate(parts) for parts in zip(*gathered, strict=True)))

    def _merge(self, entries: Part) -> tuple[Part, bool]:
        """Sort entries, which are in the order of the input, and merge those of the same edge."""
        bits = self.task.shuffle.column_bits
        keys, *weights = entries
        ones = True
        if not weights:
            keys.sort()
            keys = keys[_is_first(keys)]
        else:
            ones = bool((weights[0] == 1).all())
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            begins = np.flatnonzero(_is_first(keys))
            keys = keys[begins]
            if keys.size:
                weights = [np.add.reduceat(weights[0][order], begins)]
            ones = ones and bool((weights[0] == 1).all())
        return (keys >> bits, keys & ((1 << bits) - 1), *weights), ones

    def _pieces(self) -> Iterator[Part]:
        """Entries in the order of the input, some at a time."""
        step = max(self.task.max_entries // _PIECES, 1)
        for reader, places in self.task.shuffle.edges.readers(self.number):
            begin, end = places[0]
            for at in range(begin, end, step):
                stop = min(at + step, end)
                yield tuple(reader.read(column, at, stop) for column in range(len(places)))

    def _gather(self, first: int, last: int) -> Part:
        """Entries in the rows from `first` up to `last`, in the order of the input, and weights."""
        bits = self.task.shuffle.column_bits
        low, high = first << bits, last << bits
        chosen = []
        for piece in self._pieces():
            inside = (piece[0] >= low) & (piece[0] < high)
            chosen.append([column[inside] for column in piece])
        return tuple(np.concatenate(column) for column in zip(*chosen, strict=True))

    def _row_cuts(self) -> list[tuple[int, int]]:
        """Rows of the block in runs whose entries fit the memory."""
        shuffle, most = self.task.shuffle, self.task.max_entries
        counts = np.zeros(shuffle.block_rows, np.int64)
        for keys, *_ in self._pieces():
            counts += np.bincount(keys >> shuffle.column_bits, minlength=counts.size)
        if counts.max() > most:
            row = shuffle.block_range(self.number)[0] + int(counts.argmax())
            [node] = shuffle.index.loaded().ids_of(row, row + 1)
            needed = human_bytes(int(counts.max()) * BUILD_BYTES_PER_ENTRY)
            raise ResourceError(
                f"Node {node.as_py()!r} alone has {counts.max()} edges in the input, and sorting "
                f"them takes about {needed}. Give the workers more memory (--memory-limit, or the "
                "cluster file), or fewer threads each."
            )
        cuts, total, begin = [], 0, 0
        ends = np.cumsum(counts)
        while begin < counts.size:
            end = int(np.searchsorted(ends, total + most, side="right"))
            cuts.append((begin, end))
            total, begin = int(ends[end - 1]), end
        return cuts


def _is_first(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where a key differs from the one before it."""
    first = np.ones(keys.size, bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def row_groups(parts: Iterator[Part]) -> Iterator[Part]:
    """Cut parts into row groups, which do not depend on how many rows were sorted at a time."""
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
    return tuple(column[start:stop].copy() for column in part)


def _joined(parts: list[Part]) -> Part:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
