"""JSON lines: an object to a line, whose keys are the columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from figrl.errors import BadInputError
from figrl.ingestion.format import Format, Head, Malformed, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.formats import text
from figrl.ingestion.formats.parquet import sniff_schema
from figrl.ingestion.opening import END, HEAD_BYTES, AnyFile
from figrl.ingestion.options import IngestOptions

_SAMPLE_ROWS = 200
_INT64 = 1 << 63

_KINDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def sniff(path: AnyFile, options: IngestOptions) -> Head:
    """Take columns and their types from the first objects."""
    table = _sample(path)

    def distinct(name: str) -> bool:
        values = table[name]
        return bool(values.null_count == 0 and len(values.unique()) == len(values))

    return sniff_schema(str(path), table.schema, options, distinct)


def _sample(path: AnyFile) -> pa.Table:
    """The first objects of a file."""
    lines = (
        (number, line)
        for block in text.whole_lines(path, 0, END, HEAD_BYTES)
        for number, line in enumerate(block.split(b"\n"), 1)
        if line.strip()
    )
    found: list[dict[str, Any]] = []
    for number, line in islice(lines, _SAMPLE_ROWS):
        record = _record(line)
        if record is None:
            raise BadInputError(
                f"{path}, row {number}: it is no JSON object: {_shown(line)}. Give one object a "
                'line, such as {"source": 1, "target": 2, "weight": 0.5}.'
            )
        found.append(record)
    if not found:
        raise BadInputError(f"{path}: the file is empty. Leave it out.")
    names = dict.fromkeys(name for record in found for name in record)
    return pa.table({name: _column([record.get(name) for record in found]) for name in names})


def _column(values: Sequence[Any]) -> pa.Array:
    """Values of a key, of a type that no id can have where they differ."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.nulls(len(values))


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _shown(line: bytes) -> str:
    return line[:80].decode("utf-8", "replace").strip()


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read the objects whose lines begin in a piece."""
    file = piece.file
    before = cache(lambda: text.lines_before(piece))
    schema = _schema(file)
    stop = END if file.compressed else piece.stop
    line = 0
    for block in text.whole_lines(file.path, piece.start, stop, text.BLOCK_BYTES):
        lines = block.split(b"\n")
        numbers = np.array([i + 1 for i, one in enumerate(lines) if one.strip()], np.int64) + line
        malformed: list[Malformed] = []
        if numbers.size:
            try:
                table = _parsed(block, schema)
            except pa.ArrowException:
                table, numbers, malformed = _one_by_one(lines, schema, line, before())
            columns = (table[name].combine_chunks() for name in file.columns)
            yield RawBatch(edge_batch(file.roles, columns), numbers, malformed, before)
        line += len(lines) - 1 if block.endswith(b"\n") else len(lines)


def _schema(file: SourceFile) -> pa.Schema:
    """Types as which the columns are read."""
    sample = _sample(file.path).schema
    ends = pa.int64() if file.id_kind == "int" else pa.large_string()
    types = {"source": ends, "target": ends, "weight": pa.float64()}
    return pa.schema(
        (name, types.get(role, sample.field(name).type))
        for role, name in zip(file.roles, file.columns, strict=True)
    )


def _parsed(block: bytes, schema: pa.Schema) -> pa.Table:
    table = pa.json.read_json(
        io.BytesIO(block),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )
    table.validate(full=True)
    return table


def _one_by_one(
    lines: Sequence[bytes], schema: pa.Schema, at: int, before: int
) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]], list[Malformed]]:
    """Parse each line by itself, because one of them is wrong."""
    numbers, good, malformed = [], [], []
    for number, line in enumerate(lines, at + 1):
        if not line.strip():
            continue
        record = _record(line)
        problem = "is no JSON object" if record is None else _problem(record, schema)
        if record is None or problem is not None:
            malformed.append((number + before, _shown(line), str(problem)))
        else:
            numbers.append(number)
            good.append({field.name: record.get(field.name) for field in schema})
    return pa.Table.from_pylist(good, schema), np.array(numbers, np.int64), malformed


def _problem(record: dict[str, Any], schema: pa.Schema) -> str | None:
    """What is wrong with the types of an object."""
    for field in schema:
        value = record.get(field.name)
        if pa.types.is_integer(field.type):
            kind, fits = "an integer", type(value) is int and -_INT64 <= value < _INT64
        elif pa.types.is_floating(field.type):
            kind, fits = "a number", type(value) in (int, float)
        else:
            kind, fits = "a string", isinstance(value, str)
        if value is not None and not fits:
            found = _KINDS.get(type(value), "a list or an object")
            return f"has {found} as '{field.name}', which is {kind} in the first rows"
    return None


FORMAT = Format("jsonl", (".jsonl", ".ndjson"), sniff, text.split, read)
