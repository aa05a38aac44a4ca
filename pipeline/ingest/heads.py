"""What the head of a file says: its columns, the kind of its ids, whether it has weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.config import IngestConfig
from pipeline.errors import BadInputError, ConfigError
from pipeline.ingest.arrow import IdKind

HEAD_BYTES = 64 << 10
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MISSING_IN_CSV = {
    "null_values": [""],
    "strings_can_be_null": True,
    "quoted_strings_can_be_null": False,
}
"""A value of which nothing is written is missing; a pair of quotes is the empty string."""

_CSV_HEAD_ROWS = 200
_NUMBER = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open a file, unpacking it on the way where it is gzipped."""
    compression = "gzip" if path.endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as stream:
        yield cast("BinaryIO", stream)


def look_at_parquet(path: str, config: IngestConfig) -> dict[str, Any]:
    """Read the footer of a Parquet file."""
    with pq.ParquetFile(path) as footer:
        schema, row_groups = footer.schema_arrow, footer.num_row_groups
    names = _choose_columns(path, schema.names, config)
    kinds = [_parquet_id_kind(path, schema.field(name)) for name in names[:2]]
    if kinds[0] != kinds[1]:
        raise BadInputError(
            f"{path}: column '{names[0]}' is {schema.field(names[0]).type} and '{names[1]}' is "
            f"{schema.field(names[1]).type}. Both ends of an edge need ids of one type: cast one."
        )
    weighted = False
    if len(names) == 3:
        weighted = _is_numeric(schema.field(names[2]).type)
        if config.weight is not None and not weighted:
            raise BadInputError(
                f"{path}: the weight column '{names[2]}' is {schema.field(names[2]).type}. It has "
                "to be an integer or a floating-point column: cast it."
            )
    return {
        "id_kind": kinds[0],
        "columns": tuple(names if weighted else names[:2]),
        "weighted": weighted,
        "row_groups": row_groups,
    }


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _parquet_id_kind(path: str, field: pa.Field) -> IdKind:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    raise BadInputError(
        f"{path}: column '{field.name}' is {field.type}. Ids have to be integers or strings: cast "
        "the column, or name other columns with --source and --target."
    )


def _choose_columns(path: str, names: Sequence[str], config: IngestConfig) -> list[str]:
    """Name the columns of source, target and perhaps weight."""
    given = {"source": config.source, "target": config.target, "weight": config.weight}
    for option, name in given.items():
        if name is not None and name not in names:
            raise BadInputError(
                f"{path}: there is no column '{name}' (given with --{option}). Its columns are: "
                f"{', '.join(names) or 'none'}."
            )
    free = [name for name in names if name not in given.values()]
    if len(free) < [config.source, config.target].count(None):
        raise BadInputError(
            f"{path}: an edge has two ends, each in a column of its own; this file has the columns "
            f"{', '.join(names) or 'none'}. Give a file with more, or name others of its columns."
        )
    chosen = [config.source or free.pop(0), config.target or free.pop(0)]
    if config.weight is not None:
        chosen.append(config.weight)
    elif config.source is None and config.target is None:
        chosen += names[2:3]
    for name in chosen:
        if chosen.count(name) > 1 or names.count(name) > 1:
            raise BadInputError(
                f"{path}: column '{name}' would be used twice. Its columns are: "
                f"{', '.join(names)}. Name different ones with --source, --target and --weight."
            )
    return chosen


def look_at_csv(path: str, config: IngestConfig) -> dict[str, Any]:
    """Read the first rows of a CSV file; the first is a header unless it begins with numbers."""
    delimiter = "\t" if Path(path.removesuffix(".gz")).suffix.lower() == ".tsv" else ","
    rows = _first_csv_rows(path, delimiter)
    first = [value or "" for value in rows[0]]
    header = _has_header(first, config)
    names = first if header else [f"f{i}" for i in range(len(first))]
    chosen = _choose_columns(path, names, config)
    data = rows[1:] if header else rows
    columns = [[row[names.index(name)] for row in data] for name in chosen]
    weighted = config.weight is not None or any(
        _is_number(value) for column in columns[2:] for value in column if value is not None
    )
    return {
        "id_kind": _text_id_kind([value for column in columns[:2] for value in column], config),
        "columns": tuple(chosen if weighted else chosen[:2]),
        "weighted": weighted,
        "empty": not data,
        "delimiter": delimiter,
        "header": header,
    }


def _has_header(first: Sequence[str], config: IngestConfig) -> bool:
    """Whether the first row of a CSV file holds names."""
    named = config.source is not None or config.target is not None or config.weight is not None
    if config.csv_header != "auto":
        if named and config.csv_header == "no":
            raise ConfigError("--source, --target and --weight need names: leave --csv-header out.")
        return config.csv_header == "yes"
    return named or not all(map(_is_number, first[:2]))


def _first_csv_rows(path: str, delimiter: str) -> list[list[str | None]]:
    """Rows of the head of a file as they are written; None where a value is missing."""
    with open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
    if len(head) == HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    if not head.strip():
        raise BadInputError(f"{path}: the file is empty. Leave it out.")
    names = [f"f{i}" for i in range(head.count(delimiter.encode()) + 1)]
    table = pa.csv.read_csv(
        pa.BufferReader(head),
        # Only without threads does an error name its row.
        read_options=pa.csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=pa.csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), **MISSING_IN_CSV
        ),
    )
    return [list(row.values()) for row in table.slice(0, _CSV_HEAD_ROWS).to_pylist()]


def look_at_text(path: str, config: IngestConfig) -> dict[str, Any]:
    """Read the first rows of a text file, however many comments stand before them."""
    if config.source or config.target or config.weight:
        raise BadInputError(
            f"{path}: a text file has no column names, so --source, --target and --weight cannot "
            "be used with it. Leave them out (the first two columns are the ids, a numeric third "
            "the weight), or give a CSV file with a header."
        )
    rows = _first_text_rows(path)
    first = rows[0] if rows else []
    return {
        "id_kind": _text_id_kind([token for row in rows for token in row[:2]], config),
        "columns": tuple(f"column {i + 1}" for i in range(len(first))),
        "weighted": len(first) > 2 and any(_is_number(token) for row in rows for token in row[2:3]),
        "empty": not rows,
    }


def _first_text_rows(path: str) -> list[list[str]]:
    rest = b""
    with open_bytes(path) as stream:
        while block := stream.read(HEAD_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            at_the_end = len(block) < HEAD_BYTES
            if rows := _text_rows([*lines, rest] if at_the_end else lines):
                return rows
    return _text_rows([rest])


def _text_rows(lines: Sequence[bytes]) -> list[list[str]]:
    tokens = (line.removeprefix(BYTE_ORDER_MARK).split() for line in lines)
    rows = [line for line in tokens if line and line[0][:1] not in (b"#", b"%")]
    return [[token.decode("utf-8", "replace") for token in row] for row in rows]


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _text_id_kind(ids: Sequence[str | None], config: IngestConfig) -> IdKind:
    """Integers if all ids are; one that is missing is a bad row and tells nothing."""
    if config.ids != "auto":
        return config.ids
    return (
        "int" if all(_INTEGER.fullmatch(value) for value in ids if value is not None) else "string"
    )
