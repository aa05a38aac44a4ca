"""Second step of ingest: all distinct ids in sorted order, in ranges laid end to end.

An id's row is its place in that order. No task sees more than one range, and a range is a file
that is memory-mapped, so searching it reads only the pages that are touched.
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
from pipeline.ingest.arrow import (
    cut_points,
    map_ids,
    search_sorted,
    sorted_ids,
    to_numpy,
    write_ids,
)
from pipeline.ingest.scan import all_chunks

SAMPLES_PER_CHUNK = 128
RANGE_BYTES_PER_ENTRY = 80
"""Peak memory of a range per id gathered, beyond the bytes of the ids themselves."""


def range_path(folder: Path, number: int) -> Path:
    """Where the sorted ids of a range lie."""
    return folder / f"{number:06d}.arrow"


def choose_bounds(scan: Path, ranges: int, out: Path) -> Stats:
    """Find ids that cut the input's ids into ranges of about the same size.

    Each chunk's ids are sorted, so evenly spaced ones are its quantiles; a sample stands for as
    many ids as lie between it and the next.
    """
    samples, shares = [], []
    for chunk in all_chunks(scan):
        ids = map_ids(chunk.ids)
        places = np.unique(np.linspace(0, len(ids) - 1, SAMPLES_PER_CHUNK).astype(np.int64))
        samples.append(ids.take(pa.array(places)))
        shares.append(np.full(places.size, len(ids) / places.size))
    joined = pa.concat_arrays(samples)
    order = pc.array_sort_indices(joined)
    weight = np.cumsum(np.concatenate(shares)[to_numpy(order)])
    wanted = weight[-1] * np.arange(1, ranges) / ranges
    places = to_numpy(order)[np.searchsorted(weight, wanted)]
    bounds = sorted_ids(joined.take(pa.array(places)).unique())
    write_ids(out, {"id": bounds})
    return {"ranges": len(bounds) + 1}


def merge_range(scan: Path, bounds: Path, number: int, folder: Path) -> Stats:
    """Gather one range of ids from all chunks; write its distinct ids, sorted."""
    merged = sorted_ids(pa.concat_arrays(list(_range_slices(scan, bounds, number))).unique())
    written = write_ids(range_path(folder, number), {"id": merged})
    return {"ids": len(merged), "id_bytes": merged.nbytes, "written_bytes": written}


def flag_sources(scan: Path, bounds: Path, number: int, ids: pa.Array) -> npt.NDArray[np.bool_]:
    """Which of a range's ids stand in the source column of some edge."""
    flags = np.zeros(len(ids), bool)
    for chunk in all_chunks(scan):
        start, stop = _range_cut(map_ids(chunk.ids), bounds, number)
        found = search_sorted(ids, map_ids(chunk.ids).slice(start, stop - start))
        is_source = to_numpy(map_ids(chunk.ids, "is_source").slice(start, stop - start))
        flags[found[is_source]] = True
    return flags


def _range_slices(scan: Path, bounds: Path, number: int) -> Iterator[pa.Array]:
    for chunk in all_chunks(scan):
        ids = map_ids(chunk.ids)
        start, stop = _range_cut(ids, bounds, number)
        yield ids.slice(start, stop - start)


def _range_cut(ids: pa.Array, bounds_path: Path, number: int) -> tuple[int, int]:
    bounds = map_ids(bounds_path)
    around = bounds.slice(max(number - 1, 0), 2 if number else 1)
    cuts = [int(cut) for cut in cut_points(ids, around)]
    start = cuts.pop(0) if number else 0
    return start, cuts.pop(0) if cuts else len(ids)


@dataclass(frozen=True)
class IdIndex:
    """The ids of a graph: which row an id has, and which id a row has.

    Parameters
    ----------
    folder : Path
        Folder of the range files.
    starts : tuple of int
        First row of each range, and the number of rows at the end.
    """

    folder: Path
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    def rows_of(self, ids: pa.Array) -> npt.NDArray[np.int64]:
        """Row of each id, -1 where the graph does not have it.

        Parameters
        ----------
        ids : Arrow array
            Sorted, without repeats, of the graph's id type.
        """
        rows = np.full(len(ids), -1, np.int64)
        at = 0
        for number in self._ranges_from(ids):
            if at >= len(ids):
                break
            hay = map_ids(range_path(self.folder, number))
            last = int(search_sorted(ids.slice(at), hay[-1:])[0])
            stop = at + (last + 1 if last >= 0 else -1 - last)
            places = search_sorted(hay, ids.slice(at, stop - at))
            rows[at:stop] = np.where(places >= 0, places + self.starts[number], -1)
            at = stop
        return rows

    def _ranges_from(self, ids: pa.Array) -> Iterator[int]:
        """Ranges that may hold the ids, skipping empty ones and those before the first id."""
        if len(ids) == 0:
            return
        filled = [i for i in range(len(self.starts) - 1) if self.starts[i] < self.starts[i + 1]]
        low, high = 0, len(filled) - 1
        while low < high:
            middle = (low + high) // 2
            last = map_ids(range_path(self.folder, filled[middle]))[-1:]
            if cut_points(last, ids[:1])[0] == 0:
                high = middle
            else:
                low = middle + 1
        yield from filled[low:]

    def ids_of(self, start: int, stop: int) -> pa.Array:
        """Ids of the rows from `start` up to `stop`."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        parts = []
        for number in range(first, len(self.starts) - 1):
            begin, end = self.starts[number], self.starts[number + 1]
            if begin >= stop:
                break
            if begin == end:
                continue
            ids = map_ids(range_path(self.folder, number))
            low, high = max(start, begin) - begin, min(stop, end) - begin
            parts.append(ids.slice(low, high - low))
        return pa.concat_arrays(parts)
