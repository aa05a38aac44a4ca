"""Fourth stage of ingest, ``relabel``: ids become rows, and edges go to the blocks of both ends.

A chunk's edges are written once, ordered by block, and go to the blocks by an exchange. An entry is
one number, the row within the block above the column, because that is what the block will sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Block, Memory, Stage, Stats
from figrl.engine.worker import worker_state
from figrl.ingestion.decay import Decay
from figrl.ingestion.exchange import Exchange
from figrl.ingestion.ids import rows_of_chunk
from figrl.ingestion.scan import Chunk
from figrl.store.files import digest, exists, load_array, save_array
from figrl.store.ids import IdIndex

RELABEL_BYTES_PER_EDGE = 160
"""Peak memory of relabelling per edge of a chunk, both directions included."""


@dataclass(frozen=True)
class StoredIndex:
    """The index between ids and rows, as tasks are told of it: without the start of each range.

    They lie in a file that is read once a worker: a graph with a thousand ranges has tens of
    thousands of tasks.
    """

    ids: Path
    starts: Path
    target_start: int | None

    @classmethod
    def save(cls, index: IdIndex, work: Path) -> StoredIndex:
        """Write the starts to a folder of unfinished work."""
        # Another attempt, with other memory, may cut the ids in another way: it has other names.
        path = work / f"starts-{digest(list(index.starts))}.npy"
        if not exists(path):
            save_array(path, np.array(index.starts, np.int64))
        return cls(index.folder, path, index.target_start)

    def loaded(self) -> IdIndex:
        """The whole index."""
        index: IdIndex = worker_state().opened(self.starts, self._read)
        return index

    def _read(self) -> IdIndex:
        starts = load_array(self.starts).tolist()
        return IdIndex(self.ids, tuple(starts), self.target_start)


@dataclass(frozen=True)
class Shuffle:
    """How edges go from chunks to row blocks; parameters shared by all chunks.

    `edges`: exchange that carries them. `places`: what the chunks are told of their ids. `nodes`:
    number of rows. `block_rows`: rows in a block, a power of two. `weighted`: whether edges have
    weights, given or from their age. `decay`: how weights decay; None if they do not.
    """

    edges: Exchange
    places: Exchange
    index: StoredIndex
    nodes: int
    block_rows: int
    weighted: bool
    decay: Decay | None = None

    @property
    def blocks(self) -> int:
        """Number of row blocks."""
        return self.edges.targets

    @property
    def column_bits(self) -> int:
        """Bits of an entry that hold its column; those above hold the row within the block."""
        return max(self.nodes - 1, 1).bit_length()

    def block_range(self, block: int) -> tuple[int, int]:
        """First row of a row block, and the row after its last."""
        start = block * self.block_rows
        return start, min(start + self.block_rows, self.nodes)


def edge_exchange(
    folder: Path, chunks: int, nodes: int, block_rows: int, *, weighted: bool, fan_in: int
) -> Exchange:
    """The exchange that carries entries, and their weights, from chunks to row blocks."""
    types = ("int64", "float64") if weighted else ("int64",)
    return Exchange(folder, chunks, math.ceil(nodes / block_rows), types, fan_in)


def relabel_stage(shuffle: Shuffle, scan: Path, names: Sequence[str], chunk_edges: int) -> Stage:
    """Write the edges of all chunks to the row blocks of both their ends."""
    return Stage(
        "relabel",
        relabel_chunk,
        tuple(
            Block(name, (shuffle, Chunk(scan, name), number)) for number, name in enumerate(names)
        ),
        memory=Memory(task_bytes=RELABEL_BYTES_PER_EDGE * chunk_edges),
        reads=(scan, shuffle.places.folder),
    )


def relabel_chunk(shuffle: Shuffle, chunk: Chunk, number: int) -> Stats:
    """Turn a chunk's ids into rows and write both directions of its edges, ordered by block."""
    own_rows = rows_of_chunk(shuffle.places, shuffle.index.loaded().starts, number)
    ends = own_rows[load_array(chunk.places)]
    # The directions of an edge are adjacent and the sort is stable, so repeated edges stay in the
    # order of the input, whichever way round they are written, and their weights are summed in
    # that order for both ends: the stored matrix is symmetric to the last bit.
    rows, columns = ends.ravel(order="F"), ends[::-1].ravel(order="F")
    # NumPy sorts 16-bit numbers with a radix sort, many times faster than wider ones.
    narrow = np.uint16 if shuffle.blocks <= 1 << 16 else np.int64
    blocks = (rows // shuffle.block_rows).astype(narrow)
    order = np.argsort(blocks, kind="stable")
    sizes = np.bincount(blocks, minlength=shuffle.blocks)
    keys = (rows % shuffle.block_rows) << shuffle.column_bits | columns
    written: list[npt.NDArray[Any]] = [keys[order]]
    if shuffle.weighted:
        written.append(np.repeat(_weights(shuffle, chunk), 2)[order])
    every = np.repeat(sizes[:, None], len(written), axis=1)
    return {"written_bytes": shuffle.edges.write(number, every, written)}


def _weights(shuffle: Shuffle, chunk: Chunk) -> npt.NDArray[np.float64]:
    """Weights of a chunk's edges, decayed by their age."""
    given = load_array(chunk.weights) if exists(chunk.weights) else None
    if shuffle.decay is None:
        assert given is not None
        return given
    return shuffle.decay.apply(load_array(chunk.times), given)
