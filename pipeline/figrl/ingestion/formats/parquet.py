"""Parquet: the footer states columns and types, and row groups are read independently."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.errors import BadInputError
from figrl.ingestion.format import BATCH_ROWS, Format, Head, Piece, RawBatch, SourceFile, edge_batch
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import choose_columns, columns_read
from figrl.store.ids import IdKind


def sniff(path: str, options: IngestOptions) -> Head:
    """Read the footer."""
    with pq.ParquetFile(path) as file:
        schema, row_groups = file.schema_arrow, file.num_row_groups
    names = choose_columns(path, schema.names, options)
    types = [schema.field(name).type for name in names]
    kinds = [_id_kind(path, schema.field(name)) for name in names[:2]]
    if kinds[0] != kinds[1]:
        raise BadInputError(
            f"{path}: column '{names[0]}' is {types[0]} and '{names[1]}' is {types[1]}. Both ends "
            "of an edge need ids of one type, whatever the kind of graph: cast one."
        )
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    weighted = len(names) == 3 and any(is_kind(types[2]) for is_kind in numeric)
    if options.weight is not None and not weighted:
        raise BadInputError(
            f"{path}: the weight column '{names[2]}' is {types[2]}. It has to be an integer or a "
            "floating-point column: cast it."
        )
    if options.time is not None:
        _check_time(path, schema.field(options.time), options)
    return Head(
        id_kind=kinds[0],
        columns=columns_read(names, options, weighted=weighted),
        weighted=weighted,
        named=True,
        typed=True,
        parts=row_groups,
        timed=options.time is not None,
    )


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
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        return "string"
    raise BadInputError(
        f"{path}: column '{field.name}' is {field.type}. Ids have to be integers or strings: cast "
        "the column, or name other columns with --source and --target."
    )


def split(file: SourceFile) -> list[int]:
    """A piece is a row group."""
    return list(range(file.parts + 1))


def read(piece: Piece) -> Iterator[RawBatch]:
    """Read row groups from `piece.start` up to `piece.stop`."""
    names = list(piece.file.columns)
    with pq.ParquetFile(piece.file.path) as file:
        before = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
        groups = list(range(piece.start, piece.stop))
        for batch in file.iter_batches(
            batch_size=BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
        ):
            edges = edge_batch(piece.file.roles, (_plain(batch[name]) for name in names))
            yield RawBatch(edges, np.arange(before + 1, before + 1 + batch.num_rows))
            before += batch.num_rows


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_short = column.type in (pa.string(), pa.string_view())
    return column.cast(pa.large_string()) if is_short else column


FORMAT = Format("parquet", (".parquet", ".pq"), sniff, split, read)
