"""Vectors for new nodes, from their edges to known ones; nothing is learnt again.

    degree:    y_j = D_j^-1/2 (l_j B)      l_j: row of L of the extended graph, over the nodes seen
    unit:      y_j = unit(l_j B)
    smoothed:  y_j = unit(w_j B)           w_j: its weights; B is the last step but one of smoothing

The new edges are first made into a small graph of their own, by the steps of ingest: that merges
repeated edges, sums degrees and gathers each node's edges in one place. Its nodes are matched
with those of the stored graph, and every row block of it is then folded in by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import open_zarr
from pipeline.blocks import Stats
from pipeline.files import load_array, save_array, written_aside
from pipeline.graph import Graph
from pipeline.ingest.arrow import map_ids
from pipeline.ingest.ids import flag_sources, range_path
from pipeline.learn.kernels import accumulate, scale_to_unit
from pipeline.learn.sketch import inverse_root
from pipeline.recipe import Recipe
from pipeline.run import Block, Job, StageResult
from pipeline.serve.export import part_path, vectors_schema, vectors_table

BLOCK_ROWS = 1 << 15
"""Rows of the small graph that are folded in by one task."""


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
    """

    known: Graph
    new: Graph
    basis: Path
    folder: Path
    parts: Path
    extended: bool
    recompute: bool
    recipe: Recipe


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


def _gather(task: FoldTask, what: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
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
class _Entries:
    """Entries of a row block of the small graph, with what is known of both ends."""

    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    row_is_known: npt.NDArray[np.bool_]
    row_is_source: npt.NDArray[np.bool_]
    column_known_row: npt.NDArray[np.int64]
    column_is_source: npt.NDArray[np.bool_]


def _read_entries(task: FoldTask, block: int) -> Iterator[_Entries]:
    for rows, columns, weights in task.new.edge_runs(block):
        yield _Entries(
            rows,
            columns,
            np.ones(rows.size) if weights is None else weights.astype(np.float64),
            _gather(task, "known", rows) >= 0,
            _gather(task, "source", rows),
            _gather(task, "known", columns),
            _gather(task, "source", columns),
        )


def weigh_block(task: FoldTask, block: int) -> Stats:
    """Write ``(D + tau)^-1/2`` for the known nodes among a row block of the small graph."""
    start, stop = task.new.block_range(block)
    if task.recipe.smoothing:
        save_array(task.folder / f"scale-{block:06d}.npy", np.ones(stop - start))
        return {}
    known = _gather(task, "known", np.arange(start, stop))
    degrees = np.zeros(stop - start)
    found = known >= 0
    if found.any():
        degrees[found] = open_zarr(task.known.degrees_path).get_orthogonal_selection(
            (known[found],)
        )
    if task.extended:
        for entries in _read_entries(task, block):
            from_new = entries.column_is_source & (entries.column_known_row < 0)
            added = np.where(entries.row_is_known & from_new, entries.weight, 0.0)
            degrees += np.bincount(entries.row - start, added, minlength=degrees.size)
    scale = np.where(found, inverse_root(degrees + task.recipe.regularization), 0.0)
    save_array(task.folder / f"scale-{block:06d}.npy", scale)
    return {}


def fold_block(task: FoldTask, block: int) -> Stats:
    """Fold in the new nodes of a row block and write their vectors."""
    start, stop = task.new.block_range(block)
    basis = open_zarr(task.basis)
    rows = np.arange(start, stop)
    is_known = _gather(task, "known", rows) >= 0
    wanted = _gather(task, "source", rows) & (~is_known | task.recompute)
    vectors = np.zeros((stop - start, basis.shape[1]), np.float32)
    degrees = np.zeros(stop - start)
    stats = {"between_new_nodes": 0, "to_unknown_nodes": 0, "of_known_nodes": 0}
    linked = np.zeros(stop - start, bool)
    for entries in _read_entries(task, block):
        local = entries.row - start
        to_known = entries.column_known_row >= 0
        to_new = ~to_known & entries.column_is_source
        counted = wanted[local] & (to_known | to_new)
        degrees += np.bincount(
            local, np.where(counted, entries.weight, 0.0), minlength=stop - start
        )
        used = wanted[local] & to_known
        linked[local[used]] = True
        _add_basis(task, basis, entries, used, start, vectors)
        is_new = entries.row_is_source & ~entries.row_is_known
        stats["between_new_nodes"] += int((is_new & to_new & (entries.row < entries.column)).sum())
        stats["to_unknown_nodes"] += int((is_new & ~to_known & ~to_new).sum())
        known_pair = entries.row_is_known & to_known & (entries.row < entries.column)
        stats["of_known_nodes"] += 0 if task.recompute else int(known_pair.sum())
    _represent(task, degrees, vectors)
    _write_vectors(task, block, wanted, vectors)
    folded = int(wanted.sum())
    return {
        "folded": folded,
        "without_known_neighbour": folded - int(linked[wanted].sum()),
        **stats,
    }


def _represent(
    task: FoldTask, degrees: npt.NDArray[np.float64], vectors: npt.NDArray[np.float32]
) -> None:
    """Make of sums over neighbours what the representation asks for, in place."""
    if task.recipe.representation == "unit":
        scale_to_unit(vectors)
        return
    tau = task.recipe.regularization
    square = np.sqrt(degrees * (degrees + tau)) if tau else degrees
    inverse = np.divide(1.0, square, out=np.zeros_like(square), where=square > 0)
    vectors *= inverse.astype(np.float32)[:, None]


def _add_basis(
    task: FoldTask,
    basis: Any,
    entries: _Entries,
    used: npt.NDArray[np.bool_],
    start: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Add rows of the basis along the entries, one chunk of the basis at a time."""
    rows, known = entries.row[used], entries.column_known_row[used]
    weights = (entries.weight[used] * _scales(task, entries.column[used])).astype(np.float32)
    chunk_rows = basis.chunks[0]
    chunks = known // chunk_rows
    # Stable: within a chunk the entries stay sorted by row, so a row is written once in a run.
    order = np.argsort(chunks, kind="stable")
    cuts = np.flatnonzero(np.diff(chunks[order], prepend=-1))
    for begin, end in zip(cuts, [*cuts[1:], order.size], strict=True):
        chosen = order[begin:end]
        first = int(chunks[chosen[0]]) * chunk_rows
        operand = np.asarray(basis[first : first + chunk_rows])
        accumulate(
            rows[chosen],
            known[chosen],
            weights[chosen],
            operand,
            out,
            first_row=start,
            first_column=first,
        )


def _scales(task: FoldTask, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    blocks = columns // task.new.block_rows
    scales = np.empty(columns.size)
    for block in np.unique(blocks):
        chosen = blocks == block
        stored = load_array(task.folder / f"scale-{block:06d}.npy", mapped=True)
        scales[chosen] = stored[columns[chosen] - block * task.new.block_rows]
    return scales


def _write_vectors(
    task: FoldTask,
    block: int,
    wanted: npt.NDArray[np.bool_],
    vectors: npt.NDArray[np.float32],
) -> None:
    ids = task.new.index.ids_of(*task.new.block_range(block)).filter(pa.array(wanted))
    schema = vectors_schema(task.known, vectors.shape[1])
    with written_aside(part_path(task.parts, block)) as aside:
        pq.write_table(vectors_table(ids, vectors[wanted], schema), aside, use_dictionary=False)


def fold_stages(job: Job, task: FoldTask) -> Stats:
    """Run the stages; return the counts of what was done and what was left."""
    task.parts.mkdir(parents=True, exist_ok=True)
    ranges = range(len(task.new.id_starts) - 1)
    matched = job.run("match", match_range, [Block(f"{r:06d}", (task, r)) for r in ranges])
    blocks = [Block(f"{b:06d}", (task, b)) for b in range(task.new.blocks)]
    job.run("weigh", weigh_block, blocks)
    folded = job.run("fold", fold_block, blocks)
    return _counts(task, matched, folded)


def _counts(task: FoldTask, matched: StageResult, folded: StageResult) -> Stats:
    known = matched.total("already_known")
    return {
        "nodes_folded_in": folded.total("folded"),
        "known_nodes_skipped": 0 if task.recompute else known,
        "known_nodes_recomputed": known if task.recompute else 0,
        "nodes_without_known_neighbour": folded.total("without_known_neighbour"),
        "edges_between_new_nodes": folded.total("between_new_nodes"),
        "edges_to_unknown_nodes": folded.total("to_unknown_nodes"),
        "edges_between_known_nodes": folded.total("of_known_nodes"),
        "unknown_nodes": matched.total("unknown"),
    }
