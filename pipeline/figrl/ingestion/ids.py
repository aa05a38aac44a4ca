"""Second and third stage of ingest, ``ranges`` and ``ids``: all distinct ids in sorted order.

The row of an id is its place in that order; on the target side of a graph with two sides, the rows
go on after those of the source side. The order is cut into ranges, so that no task holds
more than one of them; a range is a file that is memory-mapped, so a search reads only the pages
that it touches.

The ids of a chunk go to the ranges that they lie in, and a range sends their places in it back to
the chunk, each by an exchange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stages, Stats
from figrl.ingestion.exchange import Exchange, Reader, regroup_stages
from figrl.ingestion.scan import Chunk, chunk_names
from figrl.store import ids as id_files
from figrl.store.files import read_json, save_array, write_json
from figrl.store.ids import IdKind, cut_points, map_ids, string_buffers, to_numpy
from figrl.store.parts import Starts
from figrl.store.sides import Side, Sides

SAMPLES_PER_CHUNK = 128
SAMPLE_BYTES = 160
"""Peak memory of choosing bounds per sample: ids of some length, their order and their shares."""

RANGE_BYTES_PER_ENTRY = 80
"""Peak memory of a range per id gathered, beyond the bytes of the ids themselves."""

_COLUMNS = {
    "int": {"counts": "int32", "ids": "int64"},
    "string": {"counts": "int32", "lengths": "int32", "bytes": "uint8"},
}
"""What a chunk has for a range: how many ids, and the ids, of strings their lengths and bytes."""

_PLACES = ("int32", "int32")
"""What a range has for a chunk: how many places, and the places."""


@dataclass(frozen=True)
class IdExchange(Exchange):
    """Ids of one side on their way from chunks to ranges; the sources are files of the scan.

    `bounds`: file of the ids that cut the order. `names`: types by the name of the column.
    """

    scan: Path = Path()
    bounds: Path = Path()
    side: Side | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, task: IdTask, sources: int, targets: int, id_kind: IdKind, fan_in: int
    ) -> IdExchange:
        """The exchange of a side; without sides, each id says whether it is in a source column."""
        columns = _COLUMNS[id_kind] | ({} if task.side else {"is_source": "bool"})
        return cls(
            folder=task.work / f"ids-{task.side or 'all'}",
            sources=sources,
            targets=targets,
            types=tuple(columns.values()),
            fan_in=fan_in,
            scan=task.scan,
            bounds=task.bounds,
            side=task.side,
            names=tuple(columns),
        )

    @cached_property
    def chunks(self) -> list[Chunk]:
        """All chunks, in the order of the input."""
        return all_chunks(self.scan)

    @cached_property
    def cuts(self) -> pa.Array:
        """The ids that cut the order: each range but the first begins with one of them."""
        return map_ids(self.bounds)

    def reader(self, level: int, group: int, target: int) -> AbstractContextManager[Reader]:
        """Open the file of a group of chunks that has something for a range."""
        if level:
            return super().reader(level, group, target)
        # Of the tasks that read the same chunk for other ranges, the first checks the file.
        checked = self.levels == 0 or target == 0
        return nullcontext(ChunkIds(self, self.chunks[group], checked=checked))


class ChunkIds:
    """Ids of a chunk, as a source of an exchange: they are sorted, so a range is a part of them."""

    def __init__(self, exchange: IdExchange, chunk: Chunk, *, checked: bool) -> None:
        self._names, self._bounds = exchange.names, exchange.cuts
        path = chunk.ids(exchange.side)
        self._ids = map_ids(path, checked=checked)
        if "is_source" in self._names:
            self._flags = map_ids(path, "is_source", checked=False)

    def _cuts(self, first: int, stop: int) -> npt.NDArray[np.int64]:
        """Places where ranges begin, from `first` to `stop`; the last range ends with the ids."""
        low, high = max(first, 1), min(stop, len(self._bounds))
        inner = cut_points(self._ids, self._bounds.slice(low - 1, max(high - low + 1, 0)))
        begin = [0] if first == 0 else []
        end = [len(self._ids)] if stop > len(self._bounds) else []
        return np.concatenate([np.array(begin, np.int64), inner, np.array(end, np.int64)])

    def starts(self, first: int, stop: int) -> Starts:
        """Starts of the parts from `first` up to `stop`, and the end of the last."""
        cuts = self._cuts(first, stop)
        special = {"counts": np.arange(first, stop + 1)}
        if "bytes" in self._names:
            special["bytes"] = self._offsets[cuts]
        return np.stack([special.get(name, cuts) for name in self._names], axis=1)

    def read(self, column: int, begin: int, end: int) -> npt.NDArray[Any]:
        """Values of a column from `begin` up to `end`, as `starts` counts them."""
        name = self._names[column]
        if name == "counts":
            return np.diff(self._cuts(begin, end)).astype(np.int32)
        if name == "ids":
            return to_numpy(self._ids.slice(begin, end - begin))
        if name == "lengths":
            return np.diff(self._offsets[begin : end + 1]).astype(np.int32)
        if name == "bytes":
            return string_buffers(self._ids)[0][begin:end]
        return to_numpy(self._flags.slice(begin, end - begin))

    @property
    def _offsets(self) -> npt.NDArray[np.int64]:
        return string_buffers(self._ids)[1]


def _ids_in(columns: dict[str, npt.NDArray[Any]]) -> pa.Array:
    """The ids of some columns that were gathered."""
    if "ids" in columns:
        return pa.array(columns["ids"])
    offsets = np.zeros(columns["lengths"].size + 1, np.int64)
    np.cumsum(columns["lengths"], out=offsets[1:])
    return id_files.strings_from_buffers(columns["bytes"], offsets)


@dataclass(frozen=True)
class IdTask:
    """Parameters shared by all ranges of one side.

    `scan`: folder of the scan. `work`: folder of unfinished work. `ids`: folder of the ranges.
    `side`: the side, None without sides. `first`: number of its first range. `given`: the ids on
    their way to the ranges, `places`: what goes back to the chunks, both known once the number of
    ranges is.
    """

    scan: Path
    work: Path
    ids: Path
    side: Side | None = None
    first: int = 0
    given: IdExchange | None = None
    places: Exchange | None = None

    @property
    def bounds(self) -> Path:
        """File of the ids that cut the order."""
        return self.work / f"bounds-{self.side or 'all'}.arrow"


@dataclass(frozen=True)
class Numbered:
    """All ids with their rows: what later stages need to know.

    `starts`: first row of each range, and the number of rows. `target_start`: first row of the
    target side. `places`: exchange that tells each chunk where its ids are in the ranges.
    `in_both`: number of ids that occur in both columns: at least 1 if there are any, None where
    sides have ids of their own.
    """

    starts: tuple[int, ...]
    target_start: int | None
    places: Exchange
    in_both: int | None


def id_stages(
    task: IdTask,
    scanned: StageResult,
    range_bytes: int,
    run_bytes: int,
    sides: Sides,
    id_kind: IdKind,
    fan_in: int,
) -> Stages[Numbered]:
    """Merge the ids of all chunks into ranges that take at most about `range_bytes` each."""
    names = chunk_names(scanned)
    write_json(task.scan / "chunks.json", names)
    gathered = 2 * scanned.total("id_bytes") + RANGE_BYTES_PER_ENTRY * scanned.total("ids")
    ranges = math.ceil(gathered / (range_bytes / 2))
    tasks = [replace(task, side=side) for side in sides]
    chosen = yield Stage(
        "ranges",
        choose_bounds,
        tuple(Block(one.side or "all", (one, ranges)) for one in tasks),
        memory=Memory(task_bytes=SAMPLE_BYTES * SAMPLES_PER_CHUNK * len(names)),
        reads=(task.scan,),
    )
    counts = [chosen.stats[one.side or "all"]["ranges"] for one in tasks]
    firsts = list(accumulate(counts, initial=0))
    places = Exchange(task.work / "places", firsts[-1], len(names), _PLACES, fan_in)
    tasks = [
        replace(
            one,
            first=first,
            given=IdExchange.of(one, len(names), count, id_kind, fan_in),
            places=places,
        )
        for one, first, count in zip(tasks, firsts, counts, strict=False)
    ]
    given = [one.given for one in tasks if one.given is not None]
    reads = (task.scan, *(one.bounds for one in tasks))
    yield from regroup_stages("ids", given, run_bytes, reads=reads)
    merged = yield Stage(
        "ids",
        merge_range,
        tuple(
            Block(f"{one.first + number:06d}", (one, number))
            for one, count in zip(tasks, counts, strict=True)
            for number in range(count)
        ),
        memory=Memory(task_bytes=range_bytes),
        reads=(*reads, *(exchange.folder for exchange in given)),
    )
    yield from regroup_stages("places", [places], run_bytes)
    sizes = [merged.stats[key]["ids"] for key in sorted(merged.stats, key=int)]
    starts = tuple(accumulate(sizes, initial=0))
    # Most graphs have such ids within a chunk.
    in_both = scanned.total("in_both") or merged.total("in_both")
    one_side = len(sides) == 1
    return Numbered(
        starts=starts,
        target_start=None if one_side else starts[firsts[1]],
        places=places,
        in_both=in_both if one_side else None,
    )


def choose_bounds(task: IdTask, ranges: int) -> Stats:
    """Find ids that cut the input's ids into ranges of about the same size.

    Each chunk's ids are sorted, so evenly spaced ones are its quantiles; a sample stands for as
    many ids as lie between it and the next.
    """
    samples, shares = [], []
    for chunk in all_chunks(task.scan):
        ids = map_ids(chunk.ids(task.side))
        places = np.unique(np.linspace(0, len(ids) - 1, SAMPLES_PER_CHUNK).astype(np.int64))
        samples.append(ids.take(pa.array(places)))
        shares.append(np.full(places.size, len(ids) / places.size))
    joined = pa.concat_arrays(samples)
    order = pc.array_sort_indices(joined)
    weight = np.cumsum(np.concatenate(shares)[to_numpy(order)])
    wanted = weight[-1] * np.arange(1, ranges) / ranges
    places = to_numpy(order)[np.searchsorted(weight, wanted)]
    bounds = id_files.sorted_ids(joined.take(pa.array(places)).unique())
    id_files.write_ids(task.bounds, {"id": bounds})
    return {"ranges": len(bounds) + 1}


def all_chunks(scan: Path) -> list[Chunk]:
    """All chunks of a scan, in the order of the input."""
    return [Chunk(scan, name) for name in read_json(scan / "chunks.json")]


def merge_range(task: IdTask, number: int) -> Stats:
    """Gather one range of a side's ids from all chunks; write its distinct ids, sorted.

    The chunks are told where their ids are among them.
    """
    assert task.given is not None
    assert task.places is not None
    columns = dict(zip(task.given.names, task.given.gather(number), strict=True))
    merged, places = id_files.rank_ids(_ids_in(columns))
    path = id_files.range_path(task.ids, task.first + number)
    written = id_files.write_ids(path, {"id": merged})
    counts = columns["counts"]
    sizes = np.stack([np.ones_like(counts), counts], axis=1)
    written += task.places.write(task.first + number, sizes, [counts, places])
    in_both = 0
    if "is_source" in columns:
        # In a chunk with an id in both columns, it counts as a source, and scan has counted it.
        source, target = np.zeros((2, len(merged)), bool)
        source[places[columns["is_source"]]] = True
        target[places[~columns["is_source"]]] = True
        save_array(flags_path(task.work, number), source)
        in_both = int((source & target).sum())
    stats = {"ids": len(merged), "id_bytes": merged.nbytes, "written_bytes": written}
    return {**stats, "in_both": in_both}


def flags_path(work: Path, number: int) -> Path:
    """File that says which ids of a range are in the source column, where there are no sides."""
    return work / "is-source" / f"{number:06d}.npy"


def rows_of_chunk(places: Exchange, starts: Sequence[int], chunk: int) -> npt.NDArray[np.int64]:
    """Row of each id of a chunk; those of the target side come after those of the source side."""
    counts, found = places.gather(chunk)
    rows: npt.NDArray[np.int64] = np.repeat(np.asarray(starts[:-1], np.int64), counts) + found
    return rows
