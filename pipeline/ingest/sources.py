"""Which files hold the edges, what they look like, and the pieces they are read in."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.config import IngestConfig
from pipeline.errors import BadInputError
from pipeline.ingest.arrow import IdKind

FileKind = Literal["parquet", "csv", "text"]

_KINDS: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".edges": "text",
    ".edgelist": "text",
    ".snap": "text",
}
_STRETCH_BYTES = 32 << 20
_HEAD_BYTES = 64 << 10
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}")


@dataclass(frozen=True)
class SourceFile:
    """One input file, and what its head says about it."""

    path: str
    kind: FileKind
    fingerprint: str
    id_kind: IdKind
    columns: tuple[str, ...]
    weighted: bool
    size_bytes: int
    row_groups: int = 0
    delimiter: str = ""
    header: bool = False

    @property
    def compressed(self) -> bool:
        """Whether it is gzipped, and so can only be read from its start."""
        return self.path.endswith(".gz")


@dataclass(frozen=True)
class Piece:
    """A part of a file that one task reads.

    `start` and `stop` count row groups (Parquet), bytes (text) or nothing (a whole file).
    """

    number: int
    file: SourceFile
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Name of the piece, in the order of the input."""
        return f"{self.number:06d}"


def find_files(edges: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Name the files behind paths, folders and glob patterns, in a fixed order.

    Hidden files and those that begin with an underscore are passed over in folders and globs.
    """
    found: list[str] = []
    for given in edges:
        text = os.fspath(given)
        if Path(text).is_dir():
            matches = [str(p) for p in Path(text).rglob("*") if _is_data(p, Path(text))]
        elif Path(text).exists():
            matches = [text]
        else:
            hits = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - absolute patterns too
            matches = find_files(hits) if hits else []
        if not matches:
            raise BadInputError(
                f"{text}: there is no edge file here. Give a file, a folder or a glob pattern of "
                f"{', '.join(sorted(_KINDS))} files (text and CSV may end in .gz)."
            )
        found.extend(str(Path(match).absolute()) for match in matches)
    unique = sorted(set(found))
    for path in unique:
        _kind_of(path)
    return unique


def _is_data(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return path.is_file() and not any(part[0] in "._" for part in parts)


def _kind_of(path: str) -> FileKind:
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if suffix not in _KINDS:
        raise BadInputError(
            f"{path}: files that end in '{suffix or Path(path).name}' are not known. Known: "
            f"{', '.join(sorted(_KINDS))}; text and CSV may be gzipped (.gz). Rename the file, or "
            "name a glob pattern that leaves it out."
        )
    return _KINDS[suffix]


def inspect_file(path: str, config: IngestConfig) -> SourceFile:
    """Read the head of a file: its columns, the kind of its ids, a fingerprint.

    The fingerprint is made of the path, the size, the time of the last change, and the first
    and last bytes, which for Parquet are its footer.
    """
    kind = _kind_of(path)
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _HEAD_BYTES))
            tail = file.read()
            changed = os.fstat(file.fileno()).st_mtime_ns
        mark = hashlib.blake2b(f"{path}\0{size}\0{changed}\0".encode() + head + tail)
        look = {"parquet": _look_at_parquet, "csv": _look_at_csv, "text": _look_at_text}[kind]
        seen = look(path, config)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise BadInputError(
            f"{path}: cannot be read as {kind}: {error}. Repair the file or leave it out."
        ) from error
    return SourceFile(
        path=path, kind=kind, fingerprint=mark.hexdigest()[:24], size_bytes=size, **seen
    )


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open a file, unpacking it on the way where it is gzipped."""
    compression = "gzip" if path.endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as stream:
        yield cast("BinaryIO", stream)


def _read_head(path: str) -> bytes:
    with open_bytes(path) as stream:
        head = stream.read(_HEAD_BYTES)
    return head if len(head) < _HEAD_BYTES else head[: head.rfind(b"\n") + 1]


def _look_at_parquet(path: str, config: IngestConfig) -> dict[str, Any]:
    footer = pq.ParquetFile(path)
    schema = footer.schema_arrow
    names = _choose_columns(path, schema.names, config)
    kinds = [_parquet_id_kind(path, schema.field(name)) for name in names[:2]]
    if kinds[0] != kinds[1]:
        raise BadInputError(
            f"{path}: column '{names[0]}' is {schema.field(names[0]).type} and '{names[1]}' is "
            f"{schema.field(names[1]).type}. Both ends of an edge need ids of one type: cast one."
        )
    weighted = False
    if len(names) == 3:
        weighted = _is_number(schema.field(names[2]).type)
        if config.weight is not None and not weighted:
            raise BadInputError(
                f"{path}: the weight column '{names[2]}' is {schema.field(names[2]).type}. It has "
                "to be an integer or a floating-point column: cast it."
            )
    return {
        "id_kind": kinds[0],
        "columns": tuple(names if weighted else names[:2]),
        "weighted": weighted,
        "row_groups": footer.num_row_groups,
    }


def _is_number(kind: pa.DataType) -> bool:
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
    if len(names) < 2:
        raise BadInputError(
            f"{path}: an edge list has at least two columns; this file has "
            f"{', '.join(names) or 'none'}."
        )
    free = [name for name in names if name not in given.values()]
    source = config.source or free.pop(0)
    target = config.target or free.pop(0)
    if config.weight is not None:
        return [source, target, config.weight]
    named = config.source is not None or config.target is not None
    third = names[2:3] if not named else []
    return [source, target, *third]


def _look_at_csv(path: str, config: IngestConfig) -> dict[str, Any]:
    delimiter = "\t" if path.removesuffix(".gz").endswith(".tsv") else ","
    head = _read_head(path)
    if not head.strip():
        raise BadInputError(f"{path}: the file is empty. Leave it out.")
    options = pa.csv.ReadOptions(autogenerate_column_names=True)
    parse = pa.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda _: "skip")
    text = pa.csv.ConvertOptions(
        column_types={f"f{i}": pa.string() for i in range(head.count(delimiter.encode()) + 1)}
    )
    table = pa.csv.read_csv(
        pa.BufferReader(head), read_options=options, parse_options=parse, convert_options=text
    )
    rows = table.slice(0, 200).to_pylist()
    first = [value or "" for value in rows[0].values()]
    named = config.source is not None or config.target is not None or config.weight is not None
    header = named or not all(_NUMBER.fullmatch(value.encode()) for value in first[:2])
    names = _choose_columns(path, first if header else list(rows[0]), config)
    places = [(first if header else list(rows[0])).index(name) for name in names]
    data = [list(row.values()) for row in rows[1 if header else 0 :]]
    ids = [row[place] or "" for row in data for place in places[:2]]
    third = [row[places[2]] or "" for row in data] if len(places) == 3 else []
    weighted = config.weight is not None or (
        bool(third) and _NUMBER.fullmatch(third[0].encode()) is not None
    )
    return {
        "id_kind": _text_id_kind(ids, config),
        "columns": tuple(names if weighted else names[:2]),
        "weighted": weighted,
        "delimiter": delimiter,
        "header": header,
    }


def _look_at_text(path: str, config: IngestConfig) -> dict[str, Any]:
    if config.source or config.target or config.weight:
        raise BadInputError(
            f"{path}: a text file has no column names, so --source, --target and --weight cannot "
            "be used with it. Leave them out (the first two columns are the ids, a numeric third "
            "the weight), or give a CSV file with a header."
        )
    lines = [line.split() for line in _read_head(path).splitlines()]
    rows = [line for line in lines if line and line[0][:1] not in (b"#", b"%")]
    ids = [token.decode("utf-8", "replace") for row in rows for token in row[:2]]
    first = rows[0] if rows else []
    weighted = len(first) > 2 and _NUMBER.fullmatch(first[2]) is not None
    return {
        "id_kind": _text_id_kind(ids, config),
        "columns": tuple(f"column {i + 1}" for i in range(len(first))),
        "weighted": weighted,
    }


def _text_id_kind(ids: Sequence[str], config: IngestConfig) -> IdKind:
    if config.ids != "auto":
        return config.ids
    return "int" if all(_INTEGER.fullmatch(value) for value in ids) else "string"


def agree(files: Sequence[SourceFile], config: IngestConfig) -> tuple[IdKind, bool]:
    """Check that all files tell of the same kind of graph; return kind of ids and weightedness."""
    if not files:
        raise BadInputError("There are no edge files.")
    kinds = {file.id_kind for file in files}
    plain_text = all(file.kind != "parquet" for file in files if file.id_kind == "int")
    # Text that looks like integers in one file and not in another is text.
    kind: IdKind = "string" if "string" in kinds and plain_text else files[0].id_kind
    for file in files:
        if file.id_kind != kind and file.kind == "parquet":
            raise _differs(files[0], file, "ids", files[0].id_kind, file.id_kind)
        if file.weighted != files[0].weighted:
            words = {True: "weighted", False: "unweighted"}
            first, other = words[files[0].weighted], words[file.weighted]
            raise _differs(files[0], file, "edges", first, other)
        if file.kind == files[0].kind == "parquet" and file.columns != files[0].columns:
            first, other = ", ".join(files[0].columns), ", ".join(file.columns)
            raise _differs(files[0], file, "columns", first, other)
    if config.ids != "auto" and config.ids != kind:
        raise BadInputError(
            f"{files[0].path}: --ids {config.ids} was given, but the file holds {kind} ids. "
            f"Leave --ids out, or cast the columns."
        )
    return kind, files[0].weighted


def _differs(first: SourceFile, other: SourceFile, what: str, a: str, b: str) -> BadInputError:
    return BadInputError(
        f"{other.path}: its {what} are {b}, but those of {first.path} are {a}. All files of one "
        "graph need the same schema: convert one of them, or ingest them apart."
    )


def split_into_pieces(files: Sequence[SourceFile]) -> list[Piece]:
    """Cut files into pieces: row groups of Parquet, stretches of text, whole files else."""
    pieces: list[Piece] = []
    for file in files:
        if file.kind == "parquet":
            cuts = list(range(file.row_groups + 1))
        elif file.kind == "text" and not file.compressed:
            cuts = [*range(0, max(file.size_bytes, 1), _STRETCH_BYTES), file.size_bytes]
        else:
            cuts = [0, file.size_bytes]
        for start, stop in pairwise(cuts):
            pieces.append(Piece(len(pieces), file, start, stop))
    return pieces
