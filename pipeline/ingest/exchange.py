"""Third step of ingest: ids become rows, and edges go to the row blocks of both their ends.

The exchange goes through files: a chunk's edges are written once, ordered by block, and a block
later reads its part of every chunk. An entry is one number, the row within the block above the
column, because that is what the block will sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.files import load_array, written_aside
from pipeline.ingest.arrow import map_ids
from pipeline.ingest.ids import IdIndex
from pipeline.ingest.scan import Chunk

RELABEL_BYTES_PER_EDGE = 160
"""Peak memory of a relabelling per edge of a chunk, both directions counted in."""

Keys = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Exchange:
    """The files that carry edges from chunks to row blocks.

    Attributes
    ----------
    folder : Path
    block_rows : int
        Rows in a block, a power of two.
    blocks : int
    column_bits : int
        Bits of an entry that hold its column; those above hold the row within the block.
    weighted : bool
    """

    folder: Path
    block_rows: int
    blocks: int
    column_bits: int
    weighted: bool

    def write(self, chunk: str, keys: Keys, weights: Weights | None, starts: Keys) -> int:
        """Write a chunk's entries, ordered by block, and where each block begins."""
        written = {"keys": keys, "weights": weights, "starts": starts}
        for what, values in written.items():
            if values is not None:
                with written_aside(self._path(chunk, what)) as aside:
                    values.tofile(aside)
        return sum(values.nbytes for values in written.values() if values is not None)

    def part(self, chunk: str, block: int) -> tuple[int, int]:
        """Entries of a chunk that belong to a block."""
        begin, end = np.fromfile(self._path(chunk, "starts"), np.int64, 2, offset=8 * block)
        return int(begin), int(end)

    def keys(self, chunk: str, block: int) -> Keys:
        """Entries of a chunk that belong to a block, in the order of the input."""
        return self._read(chunk, "keys", block, np.int64)

    def weights(self, chunk: str, block: int) -> Weights:
        """Weights of those entries."""
        return self._read(chunk, "weights", block, np.float64)

    def _read(self, chunk: str, what: str, block: int, dtype: Any) -> npt.NDArray[Any]:
        begin, end = self.part(chunk, block)
        return np.fromfile(self._path(chunk, what), dtype, end - begin, offset=8 * begin)

    def _path(self, chunk: str, what: str) -> Path:
        return self.folder / f"{chunk}.{what}"


def relabel_chunk(chunk: Chunk, index: IdIndex, exchange: Exchange) -> Stats:
    """Turn a chunk's ids into rows and write both directions of its edges, ordered by block."""
    rows_of_ids = index.rows_of(map_ids(chunk.ids))
    ends = rows_of_ids[chunk.load_places()]
    # The directions of an edge stand side by side and the sort is stable, so repeated edges stay
    # in the order of the input, whichever way round they are written, and their weights are summed
    # in that order for both ends: the stored matrix is symmetric to the last bit.
    rows, columns = ends.ravel(order="F"), ends[::-1].ravel(order="F")
    # NumPy sorts numbers of 16 bits by their digits, many times faster than wider ones.
    narrow = np.uint16 if exchange.blocks <= 1 << 16 else np.int64
    blocks = (rows // exchange.block_rows).astype(narrow)
    order = np.argsort(blocks, kind="stable")
    starts = np.zeros(exchange.blocks + 1, np.int64)
    np.cumsum(np.bincount(blocks, minlength=exchange.blocks), out=starts[1:])
    keys = (rows % exchange.block_rows) << exchange.column_bits | columns
    weights = np.repeat(load_array(chunk.weights), 2)[order] if exchange.weighted else None
    return {"written_bytes": exchange.write(chunk.name, keys[order], weights, starts)}
