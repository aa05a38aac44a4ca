"""Judging edges: which rows are fit for the graph, and what becomes of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import IdTypeChangedError, bad_row
from pipeline.files import written_aside
from pipeline.ingest.arrow import IdKind, id_type, to_numpy
from pipeline.ingest.batches import RawBatch
from pipeline.ingest.sources import Piece

Mask = npt.NDArray[np.bool_]

_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
_LARGEST_WEIGHT = 1e30
"""Products are in float32, which ends at 3e38; a node may have many edges."""

_REMEDY = "Correct or remove the row, or set such rows aside with --on-bad-edges quarantine"

QUARANTINE_SCHEMA = pa.schema(
    {
        "file": pa.string(),
        "row": pa.int64(),
        "source": pa.string(),
        "target": pa.string(),
        "weight": pa.string(),
        "reason": pa.string(),
    }
)


@dataclass(frozen=True)
class Edges:
    """Edges that are fit for the graph."""

    source: pa.Array
    target: pa.Array
    weight: npt.NDArray[np.float64] | None


@dataclass
class Quarantine:
    """Bad rows of one piece. In strict mode the first of them is an error."""

    piece: Piece
    fail: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: int, reason: str, **values: str | None) -> None:
        """Refuse a row."""
        if self.fail:
            shown = ", ".join(f"{name} {value!r}" for name, value in values.items())
            problem = f"{reason} ({shown})" if shown else reason
            raise bad_row(self.piece.file.path, row, problem, _REMEDY + ".")
        self.rows.append({"file": self.piece.file.path, "row": row, "reason": reason, **values})

    def write(self, path: Path) -> None:
        """Write the bad rows beside the graph, if there are any."""
        if self.rows:
            with written_aside(path) as aside:
                pq.write_table(pa.Table.from_pylist(self.rows, QUARANTINE_SCHEMA), aside)


def check_edges(
    batch: RawBatch, kind: IdKind, quarantine: Quarantine, *, strict_ids: bool
) -> Edges:
    """Split a batch into edges that are fit and rows that are not."""
    for bad in batch.malformed:
        quarantine.add(bad.row, bad.reason, source=bad.text)
    problems: list[tuple[Mask, str]] = []
    ends = []
    for name, column in (("source", batch.source), ("target", batch.target)):
        problems.append((_mask(column.is_null()), f"the {name} id is missing"))
        ids, wrong = _as_ids(column, kind)
        if not strict_ids and wrong.any() and pa.types.is_large_string(column.type):
            at = int(np.flatnonzero(wrong)[0])
            raise IdTypeChangedError(f"{quarantine.piece.file.path}, row {batch.rows[at]}")
        problems.append((wrong, f"the {name} id is not a 64-bit integer"))
        ends.append(ids)
    weight = None
    if batch.weight is not None:
        numbers = _as_numbers(batch.weight)
        weight = to_numpy(numbers).astype(np.float64)
        problems.append((_mask(batch.weight.is_null()), "the weight is missing"))
        problems.append((_mask(numbers.is_null()), "the weight is not a number"))
        with np.errstate(invalid="ignore"):
            problems.append((~np.isfinite(weight), "the weight is not finite"))
            problems.append((~(weight > 0), "the weight is not positive"))
            far = (weight < 1 / _LARGEST_WEIGHT) | (weight > _LARGEST_WEIGHT)
            problems.append((far, "the weight is not between 1e-30 and 1e30"))
    refused = _refuse(batch, problems, quarantine)
    if refused.any():
        keep = pa.array(~refused)
        ends = [end.filter(keep) for end in ends]
        weight = None if weight is None else weight[~refused]
    return Edges(ends[0], ends[1], weight)


def _refuse(batch: RawBatch, problems: list[tuple[Mask, str]], quarantine: Quarantine) -> Mask:
    """Refuse rows in the order of the file, each for the first of its problems."""
    masks = np.array([mask for mask, _ in problems])
    refused: Mask = np.logical_or.reduce(masks)
    for at in np.flatnonzero(refused):
        values = {"source": _text(batch.source[at]), "target": _text(batch.target[at])}
        if batch.weight is not None:
            values["weight"] = _text(batch.weight[at])
        quarantine.add(batch.rows[at], problems[int(masks[:, at].argmax())][1], **values)
    return refused


def _text(value: pa.Scalar) -> str | None:
    return str(value.as_py()) if value.is_valid else None


def _mask(array: pa.Array) -> Mask:
    return to_numpy(array).astype(bool)


def _as_ids(column: pa.Array, kind: IdKind) -> tuple[pa.Array, Mask]:
    """Ids in the type that is kept, and where that was not possible."""
    none = np.zeros(len(column), bool)
    if column.type == id_type(kind):
        return column, none
    if kind == "string":
        return column.cast(pa.large_string()), none
    if pa.types.is_integer(column.type):
        if column.type == pa.uint64():
            wrong = _mask(pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False))
            return column.cast(pa.int64(), safe=False), wrong
        return column.cast(pa.int64()), none
    shape = pc.match_substring_regex(column, r"^(0|-?[1-9]\d{0,18})$").fill_null(False)
    numbers = pc.if_else(shape, column, pa.scalar("0", column.type))
    try:
        ids = numbers.cast(pa.int64())
        return ids, ~_mask(shape) & ~_mask(column.is_null())
    except pa.ArrowInvalid:  # nineteen digits, and still beyond int64
        fits = np.array([_fits_int64(text) for text in numbers.to_pylist()])
        fits &= _mask(shape)
        ids = pc.if_else(pa.array(fits), numbers, pa.scalar("0", column.type)).cast(pa.int64())
        return ids, ~fits & ~_mask(column.is_null())


def _fits_int64(text: str | None) -> bool:
    return text is not None and -(2**63) <= int(text) < 2**63


def _as_numbers(column: pa.Array) -> pa.Array:
    """Float64 of a column; null where a text is not a number."""
    if not pa.types.is_large_string(column.type):
        return column.cast(pa.float64(), safe=False)
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        good = pc.match_substring_regex(column, _NUMBER)
        return pc.if_else(good, column, pa.scalar(None, column.type)).cast(pa.float64())
