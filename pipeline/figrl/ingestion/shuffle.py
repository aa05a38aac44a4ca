"""Fourth stage of ingest, ``relabel``: ids become rows, and edges go to the blocks of both ends.

The shuffle goes through files: a chunk's edges are written once, ordered by block, and a block
later reads its part of every chunk. An entry is one number, the row within the block above the
column, because that is what the block will sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Block, Memory, Stage, Stats
from figrl.ingestion.decay import Decay
from figrl.ingestion.scan import Chunk
from figrl.store.files import exists, get, load_array, put
from figrl.store.ids import IdIndex, map_ids

RELABEL_BYTES_PER_EDGE = 160
"""Peak memory of relabelling per edge of a chunk, both directions included."""


@dataclass(frozen=True)
class Shuffle:
    """Files that carry edges from chunks to row blocks; parameters shared by all chunks.

    `block_rows`: rows in a block, a power of two. `weighted`: whether edges have weights, given or
    from their age. `decay`: how weights decay; None if they do not.
    """

    folder: Path
    index: IdIndex
    block_rows: int
    weighted: bool
    decay: Decay | None = None

    @property
    def blocks(self) -> int:
        """Number of row blocks."""
        return math.ceil(len(self.index) / self.block_rows)

    @property
    def column_bits(self) -> int:
        """Bits of an entry that hold its column; those above hold the row within the block."""
        return max(len(self.index) - 1, 1).bit_length()

    def block_range(self, block: int) -> tuple[int, int]:
        """First row of a row block, and the row after its last."""
        start = block * self.block_rows
        return start, min(start + self.block_rows, len(self.index))

    def part(self, chunk: str, block: int) -> tuple[int, int]:
        """Which entries of a chunk belong to a block: the first, and the one after the last."""
        starts = get(self.folder / f"{chunk}.starts", start=8 * block, size=16)
        begin, end = np.frombuffer(starts, np.int64)
        return int(begin), int(end)

    def read(self, chunk: str, block: int, column: Literal["keys", "weights"]) -> npt.NDArray[Any]:
        """Keys or weights of the entries of a chunk that belong to a block."""
        begin, end = self.part(chunk, block)
        content = get(self.folder / f"{chunk}.{column}", start=8 * begin, size=8 * (end - begin))
        return np.frombuffer(content, np.int64 if column == "keys" else np.float64)


def relabel_stage(shuffle: Shuffle, scan: Path, names: Sequence[str], chunk_edges: int) -> Stage:
    """Write the edges of all chunks to the row blocks of both their ends."""
    return Stage(
        "relabel",
        relabel_chunk,
        tuple(Block(name, (shuffle, Chunk(scan, name))) for name in names),
        memory=Memory(task_bytes=RELABEL_BYTES_PER_EDGE * chunk_edges),
        reads=(scan, shuffle.index.folder),
    )


def relabel_chunk(shuffle: Shuffle, chunk: Chunk) -> Stats:
    """Turn a chunk's ids into rows and write both directions of its edges, ordered by block."""
    index = shuffle.index
    rows_by_side = [index.rows_of(map_ids(chunk.ids(side)), side) for side in index.sides]
    ends = np.concatenate(rows_by_side)[load_array(chunk.places)]
    # The directions of an edge are adjacent and the sort is stable, so repeated edges stay in the
    # order of the input, whichever way round they are written, and their weights are summed in
    # that order for both ends: the stored matrix is symmetric to the last bit.
    rows, columns = ends.ravel(order="F"), ends[::-1].ravel(order="F")
    # NumPy sorts 16-bit numbers with a radix sort, many times faster than wider ones.
    narrow = np.uint16 if shuffle.blocks <= 1 << 16 else np.int64
    blocks = (rows // shuffle.block_rows).astype(narrow)
    order = np.argsort(blocks, kind="stable")
    starts = np.zeros(shuffle.blocks + 1, np.int64)
    np.cumsum(np.bincount(blocks, minlength=shuffle.blocks), out=starts[1:])
    keys = (rows % shuffle.block_rows) << shuffle.column_bits | columns
    written: dict[str, npt.NDArray[Any]] = {"keys": keys[order], "starts": starts}
    if shuffle.weighted:
        written["weights"] = np.repeat(_weights(shuffle, chunk), 2)[order]
    for name, values in written.items():
        put(shuffle.folder / f"{chunk.name}.{name}", values.view(np.uint8).data)
    return {"written_bytes": sum(values.nbytes for values in written.values())}


def _weights(shuffle: Shuffle, chunk: Chunk) -> npt.NDArray[np.float64]:
    """Weights of a chunk's edges, decayed by their age."""
    given = load_array(chunk.weights) if exists(chunk.weights) else None
    if shuffle.decay is None:
        assert given is not None
        return given
    return shuffle.decay.apply(load_array(chunk.times), given)
