"""Parquet: the footer states columns and types, and row groups are read independently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.errors import BadInputError
from figrl.ingestion.columns import Column, Table
from figrl.ingestion.format import BATCH_ROWS, Format, Head, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.opening import AnyFile, open_parquet
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.texts import first_invalid
from figrl.store.ids import IdKind

_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_SAMPLE_ROWS = 200


def sniff(path: AnyFile, options: IngestOptions) -> Head:
    """Read the footer."""
    with open_parquet(path) as file:
        distinct, parts = partial(_is_distinct, file), file.num_row_groups
        return sniff_schema(str(path), file.schema_arrow, options, distinct, parts=parts)


def sniff_schema(
    name: str,
    schema: pa.Schema,
    options: IngestOptions,
    distinct: Callable[[str], bool],
    *,
    named: bool = True,
    parts: int = 1,
) -> Head:
    """Choose the columns of a table with types, and check those.

    `name`: what errors call it. `distinct`: whether the first values of a column all differ.
    `named`: whether its columns have names; else they are numbers, from 1.
    """
    columns = [_column(field) for field in schema]
    table = Table(name, columns, options, named, distinct, _pandas_index(schema))
    chosen = table.choose()
    types = [schema.field(end).type for end in chosen.ends]
    kinds = [_id_kind(name, schema.field(end)) for end in chosen.ends]
    if kinds[0] != kinds[1]:
        raise BadInputError(
            f"{name}: column '{chosen.source}' is {types[0]} and '{chosen.target}' is {types[1]}. "
            "Both ends of an edge need ids of one type, whatever the kind of graph: cast one."
        )
    if chosen.weight is not None and not _column(schema.field(chosen.weight)).numeric:
        raise BadInputError(
            f"{name}: the weight column '{chosen.weight}' is {schema.field(chosen.weight).type}. "
            "It has to be an integer or a floating-point column: cast it."
        )
    if options.time is not None:
        _check_time(name, schema.field(options.time), options)
    return Head(
        id_kind=kinds[0],
        columns=chosen.names(options),
        weighted=chosen.weight is not None,
        named=named,
        typed=True,
        parts=parts,
        timed=options.time is not None,
        notes=chosen.notes,
    )


def _column(field: pa.Field) -> Column:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_integer(kind):
        return Column(field.name, "int", numeric=not pa.types.is_dictionary(field.type))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Column(field.name, "float", numeric=not pa.types.is_dictionary(field.type))
    return Column(field.name, "string" if kind in _STRINGS else "other", numeric=False)


def _is_distinct(file: pq.ParquetFile, name: str) -> bool:
    """Whether the first values of a column all differ."""
    batches = file.iter_batches(batch_size=_SAMPLE_ROWS, columns=[name], use_threads=False)
    values = next((batch[name] for batch in batches), pa.array([]))
    return values.null_count == 0 and len(values.unique()) == len(values)


def _pandas_index(schema: pa.Schema) -> list[str]:
    """Columns that pandas wrote as its index, by the schema's own note of it."""
    try:
        index = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
        return [name for name in index if isinstance(name, str)]
    except (KeyError, TypeError, ValueError):
        return []


def _check_time(path: str, field: pa.Field, options: IngestOptions) -> None:
    half_life = options.decay
    if half_life is not None and not half_life.reads(field.type):
        raise BadInputError(
            f"{path}: the time column '{field.name}' is {field.type}. With --half-life "
            f"{options.half_life} it has to hold "
            + ("timestamps, dates or numbers" if half_life.has_unit else "numbers")
            + ": cast it"
            + ("." if half_life.has_unit else ", or give the half-life a unit, such as 30d.")
        )


def _id_kind(path: str, field: pa.Field) -> IdKind:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_integer(kind):
        return "int"
    if kind in _STRINGS:
        return "string"
    holds, remedy = _no_ids(kind)
    raise BadInputError(
        f"{path}: column '{field.name}' is {field.type}{holds}. Ids have to be integers or "
        f"strings: {remedy}, or name other columns with --source and --target."
    )


def _no_ids(kind: pa.DataType) -> tuple[str, str]:
    """What a column of a type holds that are no ids, and what to do with it."""
    if pa.types.is_null(kind):
        return ": it holds no values", "write ids into the column"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (
            ": it holds floating-point numbers, as pandas makes of integers with missing values",
            "leave out rows without an id, and cast the column to int64",
        )
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return ": it holds dictionaries", "take the id out of each"
    if pa.types.is_nested(kind):
        return ": it holds lists", "give one id in each row, as explode() of pandas does"
    if "uuid" in str(kind):
        return ": it holds UUIDs", "write them as strings, as astype(str) of pandas does"
    return "", "cast the column"


def split(file: SourceFile) -> list[int]:
    """A piece is a row group."""
    return list(range(file.parts + 1))


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read row groups from `piece.start` up to `piece.stop`."""
    names = list(piece.file.columns)
    groups = list(range(piece.start, piece.stop))
    with open_parquet(piece.file.path, names, groups) as file:
        before = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
        for batch in file.iter_batches(
            batch_size=BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
        ):
            columns = [_plain(batch[name]) for name in names]
            for column in columns:
                _check_utf8(piece.file.name, before, column)
            edges = edge_batch(piece.file.roles, columns)
            yield RawBatch(edges, np.arange(before + 1, before + 1 + batch.num_rows))
            before += batch.num_rows


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_short = column.type in (pa.string(), pa.string_view())
    return column.cast(pa.large_string()) if is_short else column


def _check_utf8(path: str, before: int, column: pa.Array) -> None:
    """Refuse bytes that are no text: a reader of Parquet does not look."""
    if not pa.types.is_large_string(column.type):
        return
    at = first_invalid(column)
    if at is not None:
        raise BadInputError(
            f"{path}, row {before + at + 1}: {column.cast(pa.large_binary())[at].as_py()!r} is not "
            "valid UTF-8, so that it is no string. Write the column again from sound text."
        )


FORMAT = Format("parquet", (".parquet", ".pq"), sniff, split, read)
