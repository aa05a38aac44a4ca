"""Second and third stage of ingest, ``ranges`` and ``ids``: all distinct ids in sorted order.

The row of an id is its place in that order; on the target side of a graph with two sides, the rows
go on after those of the source side. The order is cut into ranges, so that no task holds
more than one of them; a range is a file that is memory-mapped, so a search reads only the pages
that it touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stages, Stats
from figrl.ingestion.scan import Chunk, chunk_names
from figrl.store import ids as id_files
from figrl.store.files import read_json, write_json
from figrl.store.ids import IdIndex, map_ids, to_numpy
from figrl.store.sides import Side, Sides

SAMPLES_PER_CHUNK = 128
SAMPLE_BYTES = 160
"""Peak memory of choosing bounds per sample: ids of some length, their order and their shares."""

RANGE_BYTES_PER_ENTRY = 80
"""Peak memory of a range per id gathered, beyond the bytes of the ids themselves."""


@dataclass(frozen=True)
class IdTask:
    """Parameters shared by all ranges of one side.

    `scan`: folder of the scan. `bounds`: file of the ids that cut the order. `ids`: folder of the
    ranges. `side`: the side, None without sides. `first`: number of its first range.
    `find_in_both`: whether ids that occur in both columns are counted.
    """

    scan: Path
    bounds: Path
    ids: Path
    side: Side | None = None
    first: int = 0
    find_in_both: bool = False


def id_stages(
    task: IdTask, scanned: StageResult, range_bytes: int, sides: Sides
) -> Stages[tuple[IdIndex, int | None]]:
    """Merge the ids of all chunks into ranges that take at most about `range_bytes` each.

    Returns the index, and the number of ids that occur in both columns: at least 1 if there are
    any, None where sides have ids of their own.
    """
    names = chunk_names(scanned)
    gathered = 2 * scanned.total("id_bytes") + RANGE_BYTES_PER_ENTRY * scanned.total("ids")
    ranges = math.ceil(gathered / (range_bytes / 2))
    # Most graphs have such ids within a chunk, and need not be searched for more.
    in_both = scanned.total("in_both") if sides == (None,) else None
    tasks = [
        replace(task, bounds=bounds_path(task.bounds, side), side=side, find_in_both=in_both == 0)
        for side in sides
    ]
    chosen = yield Stage(
        "ranges",
        choose_bounds,
        tuple(Block(one.side or "all", (one, names, ranges)) for one in tasks),
        memory=Memory(task_bytes=SAMPLE_BYTES * SAMPLES_PER_CHUNK * len(names)),
        reads=(task.scan,),
    )
    counts = [chosen.stats[one.side or "all"]["ranges"] for one in tasks]
    firsts = list(accumulate(counts, initial=0))
    tasks = [replace(one, first=first) for one, first in zip(tasks, firsts, strict=False)]
    merged = yield Stage(
        "ids",
        merge_range,
        tuple(
            Block(f"{one.first + number:06d}", (one, number))
            for one, count in zip(tasks, counts, strict=True)
            for number in range(count)
        ),
        memory=Memory(task_bytes=range_bytes),
        reads=(task.scan, *(one.bounds for one in tasks)),
    )
    sizes = [merged.stats[key]["ids"] for key in sorted(merged.stats, key=int)]
    starts = tuple(accumulate(sizes, initial=0))
    target_start = None if len(sides) == 1 else starts[firsts[1]]
    found = in_both or (None if in_both is None else merged.total("in_both"))
    return IdIndex(task.ids, starts, target_start), found


def bounds_path(path: Path, side: Side | None) -> Path:
    """File of the bounds of a side, beside that of a graph without sides."""
    return path if side is None else path.with_stem(f"{path.stem}-{side}")


def choose_bounds(task: IdTask, names: list[str], ranges: int) -> Stats:
    """Find ids that cut the input's ids into ranges of about the same size.

    Each chunk's ids are sorted, so evenly spaced ones are its quantiles; a sample stands for as
    many ids as lie between it and the next.
    """
    write_json(task.scan / "chunks.json", names)
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
    """Gather one range of a side's ids from all chunks; write its distinct ids, sorted."""
    gathered = _range_of_chunks(task.scan, task.bounds, number, task.side)
    merged = id_files.sorted_ids(pa.concat_arrays([ids for _, _, ids in gathered]).unique())
    path = id_files.range_path(task.ids, task.first + number)
    written = id_files.write_ids(path, {"id": merged})
    in_both = 0
    if task.find_in_both:
        # No chunk has an id in both columns, so an id that is not a source in it is a target.
        source, target = (
            flag_sources(task.scan, task.bounds, number, merged, flag=flag)
            for flag in (True, False)
        )
        in_both = int((source & target).sum())
    sizes = {"ids": len(merged), "id_bytes": merged.nbytes, "written_bytes": written}
    return {**sizes, "in_both": in_both}


def flag_sources(
    scan: Path, bounds: Path, number: int, ids: pa.Array, *, flag: bool = True
) -> npt.NDArray[np.bool_]:
    """Which of a range's ids are in the source column of some chunk; else, are missing there."""
    flags = np.zeros(len(ids), bool)
    for chunk, start, part in _range_of_chunks(scan, bounds, number):
        is_source = to_numpy(map_ids(chunk.ids(), "is_source").slice(start, len(part)))
        flags[id_files.search_sorted(ids, part)[is_source == flag]] = True
    return flags


def _range_of_chunks(
    scan: Path, bounds: Path, number: int, side: Side | None = None
) -> Iterator[tuple[Chunk, int, pa.Array]]:
    """Ids of every chunk that lie in a range, and the place of the first of them."""
    around = map_ids(bounds).slice(max(number - 1, 0), 2 if number else 1)
    for chunk in all_chunks(scan):
        ids = map_ids(chunk.ids(side))
        cuts = [int(cut) for cut in id_files.cut_points(ids, around)]
        start = cuts.pop(0) if number else 0
        yield chunk, start, ids.slice(start, (cuts[0] if cuts else len(ids)) - start)
