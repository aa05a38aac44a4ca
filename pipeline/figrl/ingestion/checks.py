"""Checks of rows: which are valid edges, and what happens to the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from figrl.errors import IdTypeChangedError, bad_row
from figrl.ingestion.decay import LARGEST_WEIGHT, HalfLife
from figrl.ingestion.format import Piece, RawBatch, edge_batch
from figrl.ingestion.kernels import parse_integers
from figrl.ingestion.texts import parse_numbers
from figrl.store.files import atomic_write
from figrl.store.ids import IdKind, id_type, string_buffers, to_numpy

Mask = npt.NDArray[np.bool_]

_REMEDY = "Correct or remove the row, or set such rows aside with --on-bad-edges quarantine"

_PLACE = {"file": pa.string(), "row": pa.int64()}


@dataclass
class Quarantine:
    """Bad rows of one piece; with `fail`, the first of them is an error."""

    piece: Piece
    fail: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: int, reason: str, **values: str | None) -> None:
        """Reject a row."""
        if self.fail:
            shown = ", ".join(f"{name} {value!r}" for name, value in values.items())
            problem = f"{reason} ({shown})" if shown else reason
            raise bad_row(self.piece.file.name, row, problem, _REMEDY + ".")
        self.rows.append({"file": self.piece.file.name, "row": row, "reason": reason, **values})

    def write(self, path: Path) -> None:
        """Write the bad rows beside the graph, if there are any."""
        if self.rows:
            times = ["time"] if self.piece.file.timed else []
            texts = dict.fromkeys(("source", "target", "weight", *times, "reason"), pa.string())
            table = pa.Table.from_pylist(self.rows, pa.schema({**_PLACE, **texts}))
            with atomic_write(path) as aside:
                pq.write_table(table, aside)


def check_edges(
    batch: RawBatch,
    kind: IdKind,
    quarantine: Quarantine,
    *,
    strict_ids: bool,
    half_life: HalfLife | None = None,
) -> pa.RecordBatch:
    """Reject the bad rows of a batch; return the edges.

    `kind`: kind of ids of the graph. `quarantine`: takes the bad rows. `strict_ids`: whether text
    that is not an integer, where ids are, is a bad row. If not, it raises `IdTypeChangedError`, and
    all text is read again as strings. `half_life`: how times are read, where there are any. Returns
    columns ``source`` and ``target``, and in float64 ``weight`` and ``time`` where there are any.
    """
    for row, text, reason in batch.malformed:
        quarantine.add(row, reason, source=text)
    problems: list[tuple[Mask, str]] = []
    columns = []
    for name in ("source", "target"):
        column = batch.edges[name]
        ids, wrong = _as_ids(column, kind)
        if not strict_ids and wrong.any() and pa.types.is_large_string(column.type):
            at = int(wrong.argmax())
            place = f"{quarantine.piece.file.name}, row {batch.row_number(at)}"
            raise IdTypeChangedError(f"{place}: {column[at].as_py()!r}")
        columns.append(ids)
        problems.append((_mask(column.is_null()), f"the {name} id is missing"))
        problems.append((wrong, f"the {name} id is not a 64-bit integer"))
    roles = batch.edges.schema.names
    if "weight" in roles:
        columns.append(_as_weights(batch.edges["weight"], problems))
    if half_life is not None:
        columns.append(_as_times(batch.edges["time"], half_life, problems))
    rejected = _reject(batch, problems, quarantine)
    edges = edge_batch(roles, columns)
    return edges.filter(pa.array(~rejected)) if rejected.any() else edges


def _as_ids(column: pa.Array, kind: IdKind) -> tuple[pa.Array, Mask]:
    """Ids in the type of the graph, and where that was not possible."""
    none = np.zeros(len(column), bool)
    if column.type == id_type(kind):
        return column, none
    if kind == "string":
        return column.cast(pa.large_string()), none
    if column.type == pa.uint64():
        wrong = _mask(pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False))
        return column.cast(pa.int64(), safe=False), wrong
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64()), none
    ids, valid = parse_integers(*string_buffers(column))
    return pa.array(ids), ~valid & _mask(column.is_valid())


def _as_weights(column: pa.Array, problems: list[tuple[Mask, str]]) -> pa.Array:
    """Weights as float64; what is wrong with them is added to the problems."""
    is_text = pa.types.is_large_string(column.type)
    numbers = parse_numbers(column) if is_text else column.cast(pa.float64(), safe=False)
    weight = to_numpy(numbers).astype(np.float64)
    problems.append((_mask(column.is_null()), "the weight is missing"))
    problems.append((_mask(numbers.is_null()), "the weight is not a number"))
    with np.errstate(invalid="ignore"):
        problems.append((~np.isfinite(weight), "the weight is not finite"))
        problems.append((~(weight > 0), "the weight is not positive"))
        far = (weight < 1 / LARGEST_WEIGHT) | (weight > LARGEST_WEIGHT)
        problems.append((far, "the weight is not between 1e-30 and 1e30"))
    return pa.array(weight)


def _as_times(column: pa.Array, half_life: HalfLife, problems: list[tuple[Mask, str]]) -> pa.Array:
    """Times as float64; what is wrong with them is added to the problems."""
    times = half_life.times_of(column)
    values = to_numpy(times).astype(np.float64)
    problems.append((_mask(column.is_null()), "the time is missing"))
    what = "a number, a date or a timestamp" if half_life.has_unit else "a number"
    problems.append((_mask(times.is_null()), f"the time is not {what}"))
    problems.append((~np.isfinite(values), "the time is not finite"))
    out_of_range = half_life.is_out_of_range(values)
    problems.append((out_of_range, "the time is not in seconds since 1970"))
    return pa.array(values)


def _reject(batch: RawBatch, problems: list[tuple[Mask, str]], quarantine: Quarantine) -> Mask:
    """Reject rows in the order of the file, each for the first of its problems."""
    masks = np.array([mask for mask, _ in problems])
    rejected: Mask = np.logical_or.reduce(masks)
    for at in np.flatnonzero(rejected).tolist():
        [row] = batch.edges.slice(at, 1).to_pylist()
        values = {name: None if value is None else str(value) for name, value in row.items()}
        quarantine.add(batch.row_number(at), problems[int(masks[:, at].argmax())][1], **values)
    return rejected


def _mask(array: pa.Array) -> Mask:
    return to_numpy(array).astype(bool)
