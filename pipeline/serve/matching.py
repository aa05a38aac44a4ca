"""The small graph of new edges, and which of its nodes the stored graph has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.blocks import Stats
from pipeline.files import load_array, save_array
from pipeline.graph import Graph
from pipeline.ingest.arrow import map_ids
from pipeline.ingest.ids import flag_sources, range_path
from pipeline.recipe import Recipe


@dataclass(frozen=True)
class FoldTask:
    """What every block has to know.

    Attributes
    ----------
    known : Graph
        The stored graph.
    new : Graph
        The small graph of the new edges.
    basis : Path
        Zarr array of the fold-in basis, n x k.
    folder : Path
        Folder of what is computed on the way.
    parts : Path
        Folder of the vectors.
    extended : bool
        Whether degrees of known nodes count the new edges.
    recompute : bool
        Whether a known node in the source column is folded in too.
    recipe : Recipe
        What the basis was made by.
    rounds : int
        Times that vectors are computed; from the second on also from those of new nodes.
    """

    known: Graph
    new: Graph
    basis: Path
    folder: Path
    parts: Path
    extended: bool
    recompute: bool
    recipe: Recipe
    rounds: int = 1

    def of_round(self, number: int, block: int) -> Path:
        """Where the vectors of a round lie, but for the last; round 0: sums over known nodes."""
        return self.folder / f"round-{number:03d}-{block:06d}.npy"


def match_range(task: FoldTask, number: int) -> Stats:
    """Find a range of the small graph's ids in the stored graph."""
    ids = map_ids(range_path(task.new.path / "ids", number))
    rows = task.known.index.rows_of(ids)
    work = task.new.path / "work"
    sources = flag_sources(work / "scan", work / "bounds.arrow", number, ids)
    save_array(task.folder / f"known-{number:06d}.npy", rows)
    save_array(task.folder / f"source-{number:06d}.npy", sources)
    return {
        "new": int((sources & (rows < 0)).sum()),
        "already_known": int((sources & (rows >= 0)).sum()),
        "unknown": int((~sources & (rows < 0)).sum()),
    }


def gather(task: FoldTask, what: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Values of `match_range` for rows of the small graph."""
    starts = np.asarray(task.new.id_starts)
    ranges = np.searchsorted(starts, rows, side="right") - 1
    values: npt.NDArray[Any] = np.empty(rows.size, np.int64 if what == "known" else bool)
    for number in np.unique(ranges):
        chosen = ranges == number
        stored = load_array(task.folder / f"{what}-{number:06d}.npy", mapped=True)
        values[chosen] = stored[rows[chosen] - starts[number]]
    return values


@dataclass(frozen=True)
class Entries:
    """Entries of a row block of the small graph, with what is known of both ends."""

    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    row_is_known: npt.NDArray[np.bool_]
    row_is_source: npt.NDArray[np.bool_]
    column_known_row: npt.NDArray[np.int64]
    column_is_new: npt.NDArray[np.bool_]


def read_entries(task: FoldTask, block: int) -> Iterator[Entries]:
    """Entries of a row block, a row group at a time."""
    for rows, columns, weights in task.new.edge_runs(block):
        known_row = gather(task, "known", columns)
        yield Entries(
            row=rows,
            column=columns,
            weight=np.ones(rows.size) if weights is None else weights.astype(np.float64),
            row_is_known=gather(task, "known", rows) >= 0,
            row_is_source=gather(task, "source", rows),
            column_known_row=known_row,
            column_is_new=gather(task, "source", columns) & (known_row < 0),
        )
