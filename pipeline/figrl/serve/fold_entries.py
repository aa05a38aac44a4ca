"""New edges as fold-in sees them: the ends of each entry looked up in the stored graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from figrl.engine.stage import Stats
from figrl.ingestion.ids import flags_path
from figrl.learn.spec import EmbedSpec
from figrl.store.files import load_array, save_array
from figrl.store.graph import Graph
from figrl.store.ids import group_places, map_ids, range_path
from figrl.store.sides import Side, other_side

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FoldTask:
    """Parameters shared by all blocks.

    `known`: the stored graph. `new`: the small graph of the new edges. `basis`: zarr array of the
    fold-in basis, n x k. `folder`: folder of intermediate results. `parts`: folder of the vectors.
    `extended`: whether degrees of known nodes include the new edges. `recompute`: whether known
    nodes in the source column are folded in too. `spec`: spec of the run. `smoothed`: whether its
    vectors are. `rounds`: times that vectors are computed; from the second on also from those of
    new nodes. `side`: side of the new nodes; None without sides. Where there are sides, the new
    nodes are the source side of `new`.
    """

    known: Graph
    new: Graph
    basis: Path
    folder: Path
    parts: Path
    extended: bool
    recompute: bool
    spec: EmbedSpec
    smoothed: bool
    rounds: int = 1
    side: Side | None = None

    def known_side(self, side: Side | None) -> Side | None:
        """Side of the stored graph that a side of the small graph belongs to."""
        return self.side if side != "target" or self.side is None else other_side(self.side)

    def of_round(self, number: int, block: int) -> Path:
        """Vectors of a round but the last; of round 0: sums over known nodes."""
        return self.folder / f"round-{number:03d}-{block:06d}.npy"

    def scales(self, block: int) -> Path:
        """Scales of the nodes of a row block."""
        return self.folder / f"scale-{block:06d}.npy"


def match_range(task: FoldTask, number: int) -> Stats:
    """Look up a range of the small graph's ids in the stored graph."""
    ids = map_ids(range_path(task.new.path / "ids", number))
    side = task.new.index.side_of_range(number)
    rows = task.known.index.rows_of(ids, task.known_side(side))
    if side is None:
        sources = load_array(flags_path(task.new.path / "work", number))
    else:
        sources = np.full(len(ids), side == "source")
    save_array(task.folder / f"known-{number:06d}.npy", rows)
    save_array(task.folder / f"source-{number:06d}.npy", sources)
    return {
        "new": int((sources & (rows < 0)).sum()),
        "already_known": int((sources & (rows >= 0)).sum()),
        "unknown": int((~sources & (rows < 0)).sum()),
    }


def gather(task: FoldTask, what: str, rows: Rows) -> npt.NDArray[Any]:
    """Results of `match_range` for rows of the small graph."""
    starts = np.asarray(task.new.id_starts)
    values: npt.NDArray[Any] = np.empty(rows.size, np.int64 if what == "known" else bool)
    for number, places in group_places(np.searchsorted(starts, rows, side="right") - 1):
        stored = load_array(task.folder / f"{what}-{number:06d}.npy", mapped=True)
        values[places] = stored[rows[places] - starts[number]]
    return values


@dataclass(frozen=True)
class Entries:
    """Entries of a row block of the small graph, with both ends matched."""

    row: Rows
    column: Rows
    weight: npt.NDArray[np.float64]
    row_is_known: Mask
    row_is_source: Mask
    column_known_row: Rows
    column_is_new: Mask

    @property
    def to_known(self) -> Mask:
        """Whether the column is a node of the stored graph."""
        return self.column_known_row >= 0


def read_entries(task: FoldTask, block: int) -> Iterator[Entries]:
    """Entries of a row block, a row group at a time."""
    for rows, columns, weights in task.new.row_groups(block):
        # Both ends together, so that a file is opened once for them.
        ends = np.concatenate([rows, columns])
        known, source = (gather(task, what, ends).reshape(2, -1) for what in ("known", "source"))
        yield Entries(
            row=rows,
            column=columns,
            weight=np.ones(rows.size) if weights is None else weights.astype(np.float64),
            row_is_known=known[0] >= 0,
            row_is_source=source[0],
            column_known_row=known[1],
            column_is_new=source[1] & (known[1] < 0),
        )
