"""Ids as Arrow arrays, int64 or large_string, in memory-mapped files of sorted ranges.

The row of a node is the rank of its id among all ids. A search checks and maps only the ranges that
it touches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.errors import BadInputError
from figrl.store.checksums import TRAILER_BYTES, append_checksum, check_file, damage_reported
from figrl.store.files import atomic_write, size_bytes
from figrl.store.mixing import mix_all
from figrl.store.sides import SIDES, Side, Sides
from figrl.store.strings import hash_strings, search_strings

IdKind = Literal["int", "string"]


def id_type(kind: IdKind) -> pa.DataType:
    """Arrow type in which ids are stored."""
    return pa.int64() if kind == "int" else pa.large_string()


def parquet_id_type(kind: IdKind) -> pa.DataType:
    """Arrow type in which ids are exported: `string`, which every Parquet reader knows."""
    return pa.int64() if kind == "int" else pa.string()


def string_buffers(
    strings: pa.LargeStringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes and offsets of an array without nulls, without a copy."""
    _, offsets, data = strings.buffers()
    if len(strings) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    begins = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    if data is None or data.size == 0:
        return np.empty(0, np.uint8), begins
    return np.frombuffer(data, np.uint8), begins


def strings_from_buffers(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> pa.LargeStringArray:
    """Build an Arrow array from bytes and offsets, without a copy."""
    return pa.LargeStringArray.from_buffers(
        offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data)
    )


def sorted_ids(ids: pa.Array) -> pa.Array:
    """Sort ids: integers by value, strings by their UTF-8 bytes."""
    return ids.take(pc.array_sort_indices(ids))


def rank_ids(ids: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Distinct ids, sorted, and the place of each id among them."""
    encoded = ids.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int32)
    ranks[to_numpy(order)] = np.arange(len(order), dtype=np.int32)
    return encoded.dictionary.take(order), ranks[to_numpy(encoded.indices)]


def search_sorted(hay: pa.Array, needles: pa.Array) -> npt.NDArray[np.int64]:
    """Position of each needle in `hay`, both sorted and without duplicates.

    Returns ``i`` where ``hay[i]`` is the needle, ``-1 - i`` where it is missing and would be
    inserted at ``i``.
    """
    places: npt.NDArray[np.int64]
    if not pa.types.is_int64(hay.type):
        places = search_strings(*string_buffers(hay), *string_buffers(needles))
        return places
    values, wanted = hay.to_numpy(), needles.to_numpy()
    places = np.searchsorted(values, wanted)
    found = places < values.size
    found[found] = values[places[found]] == wanted[found]
    return np.where(found, places, -1 - places)


def cut_points(ids: pa.Array, bounds: pa.Array) -> npt.NDArray[np.int64]:
    """Positions at which sorted bounds cut sorted ids: the first id not below each bound."""
    places = search_sorted(ids, bounds)
    return np.where(places < 0, -1 - places, places)


def node_keys(ids: pa.Array, side: Side | None = None) -> npt.NDArray[np.uint64]:
    """64-bit hash of each id; on the target side another one than on the source side."""
    if pa.types.is_int64(ids.type):
        keys = mix_all(ids.to_numpy().view(np.uint64))
    else:
        keys = hash_strings(*string_buffers(ids))
    return mix_all(~keys) if side == "target" else keys


def write_ids(path: Path, columns: dict[str, pa.Array]) -> int:
    """Write columns as an Arrow file for `map_ids`; return its bytes."""
    batch = pa.record_batch(columns)
    with atomic_write(path) as aside:
        with (
            pa.OSFile(str(aside), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)
        append_checksum(aside)
    return size_bytes(path)


def map_ids(path: Path, column: str = "id", *, checked: bool = True) -> pa.Array:
    """Memory-map a column of an Arrow file, once its checksum is right.

    `checked`: whether it has to be; not where the file was looked at before.
    """
    if checked:
        check_file(path)
    with damage_reported(path), pa.memory_map(str(path)) as source:
        content = source.read_buffer(source.size() - TRAILER_BYTES)
        return pa.ipc.open_file(content).get_batch(0).column(column)


def to_numpy(array: Any) -> npt.NDArray[Any]:
    """Convert Arrow to NumPy, with a copy where needed."""
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def range_path(folder: Path, number: int) -> Path:
    """File of a range of sorted ids."""
    return folder / f"{number:06d}.arrow"


@dataclass(frozen=True)
class IdIndex:
    """The ids of a graph: rows of ids, and ids of rows.

    `folder`: folder of the range files. `starts`: first row of each range, and the number of rows.
    `target_start`: first row of the target side, where a range begins; None without sides. Ids are
    sorted on each side.
    """

    folder: Path
    starts: Sequence[int]
    target_start: int | None = None

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def sides(self) -> Sides:
        """Sides in the order of their rows; None stands for all nodes where there are no sides."""
        return (None,) if self.target_start is None else SIDES

    def side_range(self, side: Side | None) -> tuple[int, int]:
        """First row of a side, and the row after its last."""
        if self.target_start is None or side is None:
            return 0, len(self)
        return (0, self.target_start) if side == "source" else (self.target_start, len(self))

    def side_of_range(self, number: int) -> Side | None:
        """Side that the ids of a range are on."""
        if self.target_start is None:
            return None
        return "source" if self.starts[number] < self.target_start else "target"

    def cut_by_side(self, start: int, stop: int) -> Iterator[tuple[Side | None, int, int]]:
        """Cut the rows from `start` up to `stop` where the target side begins."""
        for side in self.sides:
            low, high = self.side_range(side)
            if max(start, low) < min(stop, high):
                yield side, max(start, low), min(stop, high)

    def rows_of(self, ids: pa.Array, side: Side | None = None) -> npt.NDArray[np.int64]:
        """Row of each id on a side, -1 where it is not there.

        `ids`: sorted, without duplicates, of the graph's id type.
        """
        if side not in self.sides:
            raise AssertionError(f"the index has the sides {self.sides}, not {side}")
        rows = np.full(len(ids), -1, np.int64)
        at = 0
        opened: dict[int, pa.Array] = {}
        for number in self._ranges_from(ids, side, opened):
            if at >= len(ids):
                break
            # Not kept once it is searched: pages that are touched count as memory.
            hay = opened.pop(number, None)
            hay = map_ids(range_path(self.folder, number)) if hay is None else hay
            last = int(search_sorted(ids.slice(at), hay[-1:])[0])
            stop = at + (last + 1 if last >= 0 else -1 - last)
            places = search_sorted(hay, ids.slice(at, stop - at))
            rows[at:stop] = np.where(places >= 0, places + self.starts[number], -1)
            at = stop
        return rows

    def _ranges_from(
        self, ids: pa.Array, side: Side | None, opened: dict[int, pa.Array]
    ) -> list[int]:
        """Non-empty ranges of a side from the first that may hold one of the ids.

        `opened`: takes those that had to be opened to find it.
        """

        def reaches_ids(number: int) -> bool:
            opened[number] = map_ids(range_path(self.folder, number))
            last = opened[number][-1:]
            return bool(cut_points(last, ids[:1])[0] == 0)

        low, high = self.side_range(side)
        ranges = enumerate(pairwise(self.starts))
        filled = [i for i, (start, stop) in ranges if low <= start < min(stop, high)]
        return filled[bisect_left(filled, True, key=reaches_ids) :] if len(ids) else []

    def match(self, start: int, stop: int, other: IdIndex) -> npt.NDArray[np.int64]:
        """Rows in another index of the nodes from `start` up to `stop`, -1 where it lacks them."""
        parts = self.cut_by_side(start, stop)
        return np.concatenate([other.rows_of(self.ids_of(a, b), side) for side, a, b in parts])

    def keys_of(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        """Keys of the rows from `start` up to `stop`."""
        parts = self.cut_by_side(start, stop)
        return np.concatenate([node_keys(self.ids_of(a, b), side) for side, a, b in parts])

    def sides_at(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
        """Name of the side of each row, where nodes have sides."""
        return np.where(rows < self.side_range("source")[1], *SIDES)

    def ids_of(self, start: int, stop: int) -> pa.Array:
        """Ids of the rows from `start` up to `stop`."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)
        parts = []
        for number in range(first, last):
            begin, end = self.starts[number], self.starts[number + 1]
            low, high = max(start, begin) - begin, min(stop, end) - begin
            if low < high:
                parts.append(map_ids(range_path(self.folder, number)).slice(low, high - low))
        return pa.concat_arrays(parts)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        """Ids of some rows, in any order, as Python values; each range is opened once."""
        found = np.empty(rows.size, object)
        for number, places in group_places(np.searchsorted(self.starts, rows, side="right") - 1):
            ids = map_ids(range_path(self.folder, number))
            found[places] = to_numpy(ids.take(pa.array(rows[places] - self.starts[number])))
        return found


def group_places(parts: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Group places by their part: each part that occurs, and its places in ascending order."""
    order = np.argsort(parts, kind="stable")
    cuts = np.flatnonzero(np.diff(parts[order], prepend=-1))
    for begin, end in pairwise([*cuts, order.size]):
        yield int(parts[order[begin]]), order[begin:end]


def check_id_kind(
    where: str, found: IdKind, expected: IdKind, *, owner: str = "the graph", remedy: str
) -> None:
    """Refuse ids of another kind than those of their owner, such as a graph or a run.

    `where`: what holds the ids: the path of a file. `owner`: what has ids of the expected kind.
    `remedy`: a sentence that says what to do.
    """
    if found != expected:
        raise BadInputError(
            f"{where}: its ids are {found}, but those of {owner} are {expected}. {remedy}"
        )
