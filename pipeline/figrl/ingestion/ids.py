"""Second and third stage of ingest, ``ranges`` and ``ids``: all distinct ids in sorted order.

The row of an id is its place in that order. The order is cut into ranges, so that no task holds
more than one of them; a range is a file that is memory-mapped, so a search reads only the pages
that it touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.engine.stage import Block, Memory, Stage, StageResult, Stages, Stats, numbered
from figrl.ingestion.scan import Chunk, chunk_names
from figrl.store import ids as id_files
from figrl.store.files import read_json, write_json
from figrl.store.ids import IdIndex, map_ids, to_numpy

SAMPLES_PER_CHUNK = 128
SAMPLE_BYTES = 160
"""Peak memory of choosing bounds per sample: ids of some length, their order and their shares."""

RANGE_BYTES_PER_ENTRY = 80
"""Peak memory of a range per id gathered, beyond the bytes of the ids themselves."""


@dataclass(frozen=True)
class IdTask:
    """Parameters shared by all ranges: the folder of the scan, the bounds, the folder of ids."""

    scan: Path
    bounds: Path
    ids: Path


def id_stages(task: IdTask, scanned: StageResult, range_bytes: int) -> Stages[IdIndex]:
    """Merge the ids of all chunks into ranges that take at most about `range_bytes` each."""
    names = chunk_names(scanned)
    gathered = 2 * scanned.total("id_bytes") + RANGE_BYTES_PER_ENTRY * scanned.total("ids")
    ranges = math.ceil(gathered / (range_bytes / 2))
    chosen = yield Stage(
        "ranges",
        choose_bounds,
        (Block("all", (task, names, ranges)),),
        memory=Memory(task_bytes=SAMPLE_BYTES * SAMPLES_PER_CHUNK * len(names)),
        reads=(task.scan,),
    )
    merged = yield Stage(
        "ids",
        merge_range,
        numbered(task, chosen.only["ranges"]),
        memory=Memory(task_bytes=range_bytes),
        reads=(task.scan, task.bounds),
    )
    counts = [merged.stats[key]["ids"] for key in sorted(merged.stats, key=int)]
    return IdIndex(task.ids, tuple(accumulate(counts, initial=0)))


def choose_bounds(task: IdTask, names: list[str], ranges: int) -> Stats:
    """Find ids that cut the input's ids into ranges of about the same size.

    Each chunk's ids are sorted, so evenly spaced ones are its quantiles; a sample stands for as
    many ids as lie between it and the next.
    """
    write_json(task.scan / "chunks.json", names)
    samples, shares = [], []
    for chunk in all_chunks(task.scan):
        ids = map_ids(chunk.ids)
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
    """Gather one range of ids from all chunks; write its distinct ids, sorted."""
    slices = [ids for _, _, ids in _range_of_chunks(task.scan, task.bounds, number)]
    merged = id_files.sorted_ids(pa.concat_arrays(slices).unique())
    written = id_files.write_ids(id_files.range_path(task.ids, number), {"id": merged})
    return {"ids": len(merged), "id_bytes": merged.nbytes, "written_bytes": written}


def flag_sources(scan: Path, bounds: Path, number: int, ids: pa.Array) -> npt.NDArray[np.bool_]:
    """Which of a range's ids are in the source column of some edge."""
    flags = np.zeros(len(ids), bool)
    for chunk, start, part in _range_of_chunks(scan, bounds, number):
        is_source = to_numpy(map_ids(chunk.ids, "is_source").slice(start, len(part)))
        flags[id_files.search_sorted(ids, part)[is_source]] = True
    return flags


def _range_of_chunks(
    scan: Path, bounds: Path, number: int
) -> Iterator[tuple[Chunk, int, pa.Array]]:
    """Ids of every chunk that lie in a range, and the place of the first of them."""
    around = map_ids(bounds).slice(max(number - 1, 0), 2 if number else 1)
    for chunk in all_chunks(scan):
        ids = map_ids(chunk.ids)
        cuts = [int(cut) for cut in id_files.cut_points(ids, around)]
        start = cuts.pop(0) if number else 0
        yield chunk, start, ids.slice(start, (cuts[0] if cuts else len(ids)) - start)
