"""The kernels and stages of fold-in: vectors of new nodes from their edges to known ones.

    degree:    y_j = D_j^-1/2 (l_j B)      l_j: row of L of the extended graph, over known nodes
    unit:      y_j = unit(l_j B)
    product:   y_j = (D_j + tau)^1/2 (l_j B)
    smoothed:  y_j = unit(w_j B + v_j Y)   w_j: its weights; B: vectors before the last step
                                           v_j: weights to other new nodes; Y: their last vectors

and in the end, where the spec asks for it, the prominence of the node (`learn.prominence`).

The new edges have been ingested as a small graph of their own, which merges repeated edges, sums
degrees and sorts edges by node. Its ids are looked up in the stored graph; then each of its row
blocks is folded in independently. Where new nodes are linked to each other, smoothed vectors are
propagated along these edges in a few rounds, as a smoothing step does; the first round has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from figrl.engine.stage import Memory, Stage, Stages, Stats, numbered
from figrl.learn.kernels import accumulate, scale_to_unit
from figrl.learn.operand import inverse_root
from figrl.learn.prominence import add_prominence
from figrl.learn.spec import EmbedSpec
from figrl.serve.export import write_vectors
from figrl.serve.fold_entries import (
    Entries,
    FoldTask,
    Mask,
    Rows,
    gather,
    match_range,
    read_entries,
)
from figrl.serve.output import part_path
from figrl.store.arrays import open_zarr
from figrl.store.files import load_array, save_array
from figrl.store.graph import ROW_GROUP_EDGES
from figrl.store.ids import group_places
from figrl.store.matrix import Floats
from figrl.store.sides import node_columns

BLOCK_ROWS = 1 << 15
"""Rows of the small graph that one task folds in."""

_ENTRY_BYTES = 200
"""Memory of an entry of the small graph, with both its ends matched."""

_MATCH_BYTES = 40
"""Memory of an id that is looked up, besides the id itself."""


def fold_memory(dim: int, chunk_rows: int) -> Memory:
    """Memory of the largest stage: vectors of a block twice, and two chunks of the basis."""
    return Memory(task_bytes=4 * dim * (2 * chunk_rows + 2 * BLOCK_ROWS) + 200 * (1 << 20))


def fold_stages(task: FoldTask, memory: Memory) -> Stages[Stats]:
    """Fold in all blocks; return counts of nodes and edges by outcome."""
    small, blocks, sizes = task.new.path, task.new.blocks, np.diff(task.new.id_starts)
    match_memory = Memory(task_bytes=_MATCH_BYTES * int(sizes.max(initial=0)))
    matched = yield Stage(
        "match",
        match_range,
        numbered(task, sizes.size),
        match_memory,
        (small, task.known.path),
        expected={"already_known": 0, "unknown": 0},
    )
    weigh_memory = Memory(task_bytes=_ENTRY_BYTES * ROW_GROUP_EDGES + 64 * BLOCK_ROWS)
    weighed = yield Stage(
        "weigh",
        weigh_block,
        numbered(task, blocks),
        weigh_memory,
        (small, task.known.degrees_path),
        # The most expensive case: new nodes are linked to each other.
        expected={"between_new_nodes": 1, "to_unknown_nodes": 0, "of_known_nodes": 0},
    )
    most, linked = task.rounds, task.smoothed and weighed.total("between_new_nodes")
    task = replace(task, rounds=most if linked else 1)
    folded = yield Stage(
        "fold",
        fold_block,
        numbered(task, blocks),
        memory,
        (small, task.basis),
        expected={"folded": 0, "without_known_neighbour": 0},
    )
    for number in range(2, most + 1):
        every = numbered(task, blocks if linked else 0, number)
        yield Stage("fold", propagate_block, every, memory, (small,), step=number)
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


def weigh_block(task: FoldTask, block: int) -> Stats:
    """Write ``(D + tau)^-1/2`` of the known nodes of a row block; count edges by outcome."""
    start, stop = task.new.block_range(block)
    known = gather(task, "known", np.arange(start, stop))
    found = known >= 0
    weighted = not task.smoothed
    degrees = np.zeros(stop - start)
    if weighted and found.any():
        degrees[found] = open_zarr(task.known.degrees_path).get_orthogonal_selection(
            (known[found],)
        )
    stats = {"between_new_nodes": 0, "to_unknown_nodes": 0, "of_known_nodes": 0}
    for entries in read_entries(task, block):
        to_known, to_new = entries.to_known, entries.column_is_new
        if weighted and task.extended:
            added = np.where(entries.row_is_known & to_new, entries.weight, 0.0)
            degrees += np.bincount(entries.row - start, added, minlength=degrees.size)
        is_new = entries.row_is_source & ~entries.row_is_known
        once = entries.row < entries.column
        stats["between_new_nodes"] += int((is_new & to_new & once).sum())
        stats["to_unknown_nodes"] += int((is_new & ~to_known & ~to_new).sum())
        known_pair = entries.row_is_known & to_known & once
        stats["of_known_nodes"] += 0 if task.recompute else int(known_pair.sum())
    scale = inverse_root(degrees + task.spec.regularization) if weighted else np.ones(found.size)
    save_array(task.scales(block), np.where(found, scale, 0.0))
    return stats


def fold_block(task: FoldTask, block: int) -> Stats:
    """First round: vectors of the new nodes of a row block from their edges to known nodes."""
    start, stop = task.new.block_range(block)
    basis = open_zarr(task.basis)
    wanted = _wanted(task, start, stop)
    vectors = np.zeros((stop - start, basis.shape[1]), np.float32)
    degrees = np.zeros(stop - start)
    linked = np.zeros(stop - start, bool)
    for entries in read_entries(task, block):
        local = entries.row - start
        _add_degrees(entries, wanted, local, degrees)
        used = wanted[local] & entries.to_known
        linked[local[used]] = True
        _add_basis(task, basis, entries, used, start, vectors)
    if task.rounds > 1:
        save_array(task.of_round(0, block), vectors)
    represent(task.spec, degrees, vectors)
    _write_round(task, 1, block, wanted, vectors, degrees)
    folded = int(wanted.sum())
    return {"folded": folded, "without_known_neighbour": folded - int(linked[wanted].sum())}


def propagate_block(task: FoldTask, block: int, number: int) -> Stats:
    """A later round: add the vectors that new neighbours had in the round before."""
    start, stop = task.new.block_range(block)
    wanted = _wanted(task, start, stop)
    vectors, degrees = load_array(task.of_round(0, block)), np.zeros(stop - start)
    for entries in read_entries(task, block):
        _add_degrees(entries, wanted, entries.row - start, degrees)
        used = wanted[entries.row - start] & entries.column_is_new
        rows, columns = entries.row[used], entries.column[used]
        weights = entries.weight[used].astype(np.float32)
        for other, places in group_places(columns // task.new.block_rows):
            operand = load_array(task.of_round(number - 1, other), mapped=True)
            first = other * task.new.block_rows
            triples = rows[places], columns[places], weights[places]
            accumulate(*triples, operand, vectors, first_row=start, first_column=first)
    scale_to_unit(vectors)
    _write_round(task, number, block, wanted, vectors, degrees)
    return {}


def _wanted(task: FoldTask, start: int, stop: int) -> Mask:
    """Which rows of the small graph get a vector."""
    rows = np.arange(start, stop)
    is_new = gather(task, "known", rows) < 0
    wanted: Mask = gather(task, "source", rows) & (is_new | task.recompute)
    return wanted


def _add_degrees(
    entries: Entries, wanted: Mask, local: Rows, degrees: npt.NDArray[np.float64]
) -> None:
    """Add the weights of the edges to known and to new nodes."""
    counted = wanted[local] & (entries.to_known | entries.column_is_new)
    weights = np.where(counted, entries.weight, 0.0)
    degrees += np.bincount(local, weights, minlength=degrees.size)


def _add_basis(
    task: FoldTask, basis: Any, entries: Entries, used: Mask, start: int, out: Floats
) -> None:
    """Add rows of the basis along the entries, one chunk of the basis at a time."""
    rows, columns, known = entries.row[used], entries.column[used], entries.column_known_row[used]
    scales = np.empty(columns.size)
    for block, places in group_places(columns // task.new.block_rows):
        stored = load_array(task.scales(block), mapped=True)
        scales[places] = stored[columns[places] - block * task.new.block_rows]
    weights = (entries.weight[used] * scales).astype(np.float32)
    chunk_rows = basis.chunks[0]
    for chunk, places in group_places(known // chunk_rows):
        first = chunk * chunk_rows
        operand = np.asarray(basis[first : first + chunk_rows])
        triples = rows[places], known[places], weights[places]
        accumulate(*triples, operand, out, first_row=start, first_column=first)


def represent(spec: EmbedSpec, degrees: npt.NDArray[np.float64], vectors: Floats) -> None:
    """Scale sums over neighbours as the representation asks for, in place."""
    if spec.representation == "unit":
        scale_to_unit(vectors)
        return
    if spec.representation == "product":
        # The scale of the row of L and that of the representation cancel each other.
        return
    tau = spec.regularization
    square = np.sqrt(degrees * (degrees + tau)) if tau else degrees
    inverse = np.divide(1.0, square, out=np.zeros_like(square), where=square > 0)
    vectors *= inverse.astype(np.float32)[:, None]


def _write_round(
    task: FoldTask,
    number: int,
    block: int,
    wanted: Mask,
    vectors: Floats,
    degrees: npt.NDArray[np.float64],
) -> None:
    """Write the vectors of a round: for the next one, or as a part of the output."""
    if number < task.rounds:
        save_array(task.of_round(number, block), vectors)
        return
    add_prominence(task.spec, degrees, task.known.mean_degree, vectors)
    ids = task.new.index.ids_of(*task.new.block_range(block)).filter(pa.array(wanted))
    piece = node_columns(ids, task.side), vectors[wanted]
    write_vectors(part_path(task.parts, block), task.known, vectors.shape[1], [piece])
