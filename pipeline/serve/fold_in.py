"""Vectors for new nodes, from their edges to known ones; nothing is learnt again.

    degree:    y_j = D_j^-1/2 (l_j B)      l_j: row of L of the extended graph, over the nodes seen
    unit:      y_j = unit(l_j B)
    smoothed:  y_j = unit(w_j B + v_j Y)   w_j: its weights; B is the last step but one of smoothing
                                           v_j: those to other new nodes; Y what they got before

The new edges are first made into a small graph of their own, by the steps of ingest: that merges
repeated edges, sums degrees and gathers each node's edges in one place. Its nodes are matched
with those of the stored graph, and every row block of it is then folded in by itself. Where new
nodes are linked to each other, a smoothed vector is passed on along such edges in a few rounds, of
which the first knows none: a step of smoothing would do the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import open_zarr
from pipeline.blocks import Stats
from pipeline.files import load_array, save_array, written_aside
from pipeline.job import Block, Job, StageResult
from pipeline.learn.kernels import accumulate, scale_to_unit
from pipeline.learn.sketch import inverse_root
from pipeline.serve.export import part_path, vectors_schema, vectors_table
from pipeline.serve.matching import Entries, FoldTask, gather, match_range, read_entries

BLOCK_ROWS = 1 << 15
"""Rows of the small graph that are folded in by one task."""


def weigh_block(task: FoldTask, block: int) -> Stats:
    """Write ``(D + tau)^-1/2`` for the known nodes among a row block of the small graph.

    Counts the edges that lead from new nodes to others than known ones.
    """
    start, stop = task.new.block_range(block)
    known = gather(task, "known", np.arange(start, stop))
    found = known >= 0
    weighted = not task.recipe.smoothing
    degrees = np.zeros(stop - start)
    if weighted and found.any():
        degrees[found] = open_zarr(task.known.degrees_path).get_orthogonal_selection(
            (known[found],)
        )
    stats = {"between_new_nodes": 0, "to_unknown_nodes": 0, "of_known_nodes": 0}
    for entries in read_entries(task, block):
        to_known, to_new = entries.column_known_row >= 0, entries.column_is_new
        if weighted and task.extended:
            added = np.where(entries.row_is_known & to_new, entries.weight, 0.0)
            degrees += np.bincount(entries.row - start, added, minlength=degrees.size)
        is_new = entries.row_is_source & ~entries.row_is_known
        once = entries.row < entries.column
        stats["between_new_nodes"] += int((is_new & to_new & once).sum())
        stats["to_unknown_nodes"] += int((is_new & ~to_known & ~to_new).sum())
        known_pair = entries.row_is_known & to_known & once
        stats["of_known_nodes"] += 0 if task.recompute else int(known_pair.sum())
    scale = inverse_root(degrees + task.recipe.regularization) if weighted else np.ones(found.size)
    save_array(task.folder / f"scale-{block:06d}.npy", np.where(found, scale, 0.0))
    return stats


def fold_block(task: FoldTask, block: int) -> Stats:
    """Compute the vectors of the new nodes of a row block from their edges to known ones."""
    start, stop = task.new.block_range(block)
    basis = open_zarr(task.basis)
    wanted = _wanted(task, start, stop)
    vectors = np.zeros((stop - start, basis.shape[1]), np.float32)
    degrees = np.zeros(stop - start)
    linked = np.zeros(stop - start, bool)
    for entries in read_entries(task, block):
        local = entries.row - start
        to_known = entries.column_known_row >= 0
        counted = wanted[local] & (to_known | entries.column_is_new)
        degrees += np.bincount(
            local, np.where(counted, entries.weight, 0.0), minlength=stop - start
        )
        used = wanted[local] & to_known
        linked[local[used]] = True
        _add_basis(task, basis, entries, used, start, vectors)
    if task.rounds > 1:
        save_array(task.of_round(0, block), vectors)
    _represent(task, degrees, vectors)
    _keep_vectors(task, 1, block, wanted, vectors)
    folded = int(wanted.sum())
    return {"folded": folded, "without_known_neighbour": folded - int(linked[wanted].sum())}


def pass_on_block(task: FoldTask, block: int, number: int) -> Stats:
    """Compute vectors of a row block again, with what new neighbours had in the round before."""
    start, stop = task.new.block_range(block)
    wanted = _wanted(task, start, stop)
    vectors = load_array(task.of_round(0, block))
    for entries in read_entries(task, block):
        used = wanted[entries.row - start] & entries.column_is_new
        rows, columns = entries.row[used], entries.column[used]
        weights = entries.weight[used].astype(np.float32)
        for other, chosen in _by_block(columns, task.new.block_rows):
            accumulate(
                rows[chosen],
                columns[chosen],
                weights[chosen],
                load_array(task.of_round(number - 1, other), mapped=True),
                vectors,
                first_row=start,
                first_column=other * task.new.block_rows,
            )
    scale_to_unit(vectors)
    _keep_vectors(task, number, block, wanted, vectors)
    return {}


def _wanted(task: FoldTask, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Which rows of the small graph are to get a vector."""
    rows = np.arange(start, stop)
    is_new = gather(task, "known", rows) < 0
    wanted: npt.NDArray[np.bool_] = gather(task, "source", rows) & (is_new | task.recompute)
    return wanted


def _by_block(
    rows: npt.NDArray[np.int64], block_rows: int
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Split entries by the block that a row of each lies in; in a block they stay in order."""
    blocks = rows // block_rows
    # Stable: within a block the entries stay sorted by row, so a row is written once in a run.
    order = np.argsort(blocks, kind="stable")
    cuts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
    for begin, end in itertools.pairwise([*cuts, order.size]):
        yield int(blocks[order[begin]]), order[begin:end]


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
    entries: Entries,
    used: npt.NDArray[np.bool_],
    start: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Add rows of the basis along the entries, one chunk of the basis at a time."""
    rows, known = entries.row[used], entries.column_known_row[used]
    weights = (entries.weight[used] * _scales(task, entries.column[used])).astype(np.float32)
    chunk_rows = basis.chunks[0]
    for chunk, chosen in _by_block(known, chunk_rows):
        first = chunk * chunk_rows
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
    scales = np.empty(columns.size)
    for block, chosen in _by_block(columns, task.new.block_rows):
        stored = load_array(task.folder / f"scale-{block:06d}.npy", mapped=True)
        scales[chosen] = stored[columns[chosen] - block * task.new.block_rows]
    return scales


def _keep_vectors(
    task: FoldTask,
    number: int,
    block: int,
    wanted: npt.NDArray[np.bool_],
    vectors: npt.NDArray[np.float32],
) -> None:
    """Write the vectors of a round: for the next one, or as a part of the output."""
    if number < task.rounds:
        save_array(task.of_round(number, block), vectors)
        return
    ids = task.new.index.ids_of(*task.new.block_range(block)).filter(pa.array(wanted))
    schema = vectors_schema(task.known, vectors.shape[1])
    with written_aside(part_path(task.parts, block)) as aside:
        pq.write_table(vectors_table(ids, vectors[wanted], schema), aside, use_dictionary=False)


def fold_stages(job: Job, task: FoldTask) -> Stats:
    """Run the stages; return the counts of what was done and what was left."""
    task.parts.mkdir(parents=True, exist_ok=True)
    ranges = range(len(task.new.id_starts) - 1)
    matched = job.run("match", match_range, [Block(f"{r:06d}", (task, r)) for r in ranges])
    every = range(task.new.blocks)
    weighed = job.run("weigh", weigh_block, [Block(f"{b:06d}", (task, b)) for b in every])
    if not task.recipe.smoothing or not weighed.total("between_new_nodes"):
        task = replace(task, rounds=1)
    folded = job.run("fold", fold_block, [Block(f"{b:06d}", (task, b)) for b in every])
    for number in range(2, task.rounds + 1):
        blocks = [Block(f"{b:06d}", (task, b, number)) for b in every]
        job.run(f"fold-{number:03d}", pass_on_block, blocks)
    return _counts(task, matched, weighed, folded)


def _counts(
    task: FoldTask, matched: StageResult, weighed: StageResult, folded: StageResult
) -> Stats:
    known = matched.total("already_known")
    return {
        "nodes_folded_in": folded.total("folded"),
        "known_nodes_skipped": 0 if task.recompute else known,
        "known_nodes_recomputed": known if task.recompute else 0,
        "nodes_without_known_neighbour": folded.total("without_known_neighbour"),
        "edges_between_new_nodes": weighed.total("between_new_nodes"),
        "edges_to_unknown_nodes": weighed.total("to_unknown_nodes"),
        "edges_between_known_nodes": weighed.total("of_known_nodes"),
        "unknown_nodes": matched.total("unknown"),
    }
