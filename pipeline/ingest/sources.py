"""Which files hold the edges, what they look like, and the pieces they are read in."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from pipeline.config import IngestConfig
from pipeline.errors import BadInputError
from pipeline.ingest.arrow import IdKind
from pipeline.ingest.heads import HEAD_BYTES, look_at_csv, look_at_parquet, look_at_text

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
_LOOKS: dict[FileKind, Callable[[str, IngestConfig], dict[str, Any]]] = {
    "parquet": look_at_parquet,
    "csv": look_at_csv,
    "text": look_at_text,
}
_STRETCH_BYTES = 32 << 20


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
    empty: bool = False
    row_groups: int = 0
    delimiter: str = ""
    header: bool = False

    @property
    def compressed(self) -> bool:
        """Whether it is gzipped, and so can only be read from its start."""
        return self.path.endswith(".gz")

    @property
    def has_names(self) -> bool:
        """Whether the names of its columns stand in the file."""
        return self.kind == "parquet" or self.header


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


def find_files(
    edges: Sequence[str | os.PathLike[str]], *, chosen: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Name the files behind paths, folders and glob patterns, in a fixed order.

    Hidden files and those that begin with an underscore are passed over in folders and globs, and
    so is what is not `chosen`.
    """
    found: list[str] = []
    for given in edges:
        text = os.fspath(given)
        if Path(text).is_dir():
            matches = [str(p) for p in Path(text).rglob("*") if _is_data(p, Path(text))]
        elif Path(text).exists():
            matches = [text]
        else:
            hits = _glob(text)
            matches = find_files(hits, chosen=chosen) if hits else []
        if not matches:
            raise BadInputError(
                f"{text}: there is no edge file here. Give a file, a folder or a glob pattern of "
                f"{', '.join(sorted(_KINDS))} files (text and CSV may end in .gz)."
            )
        found.extend(str(Path(match).absolute()) for match in matches)
    unique = sorted(path for path in set(found) if chosen(path))
    for path in unique:
        _kind_of(path)
    return unique


def _glob(pattern: str) -> list[str]:
    hits = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too
    fixed = list(takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts))
    return [hit for hit in hits if not _is_hidden(Path(hit).relative_to(Path(*fixed)))]


def _is_data(path: Path, root: Path) -> bool:
    return path.is_file() and not _is_hidden(path.relative_to(root))


def _is_hidden(path: Path) -> bool:
    return any(part[0] in "._" for part in path.parts)


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
            head = file.read(HEAD_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - HEAD_BYTES))
            tail = file.read()
            changed = os.fstat(file.fileno()).st_mtime_ns
        mark = hashlib.blake2b(f"{path}\0{size}\0{changed}\0".encode() + head + tail)
        seen = _LOOKS[kind](path, config)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise BadInputError(
            f"{path}: cannot be read as {kind}: {error}. Repair the file or leave it out."
        ) from error
    return SourceFile(
        path=path, kind=kind, fingerprint=mark.hexdigest()[:24], size_bytes=size, **seen
    )


def agree(files: Sequence[SourceFile], config: IngestConfig) -> tuple[IdKind, bool]:
    """Check that all files tell of the same kind of graph; return kind of ids and weightedness."""
    if not files:
        raise BadInputError("There are no edge files.")
    kind = _agreed_id_kind(files, config)
    # A file without rows, such as a header alone, does not tell whether there are weights.
    filled = [file for file in files if not file.empty] or files[:1]
    first = filled[0]
    for file in filled:
        if file.weighted != first.weighted:
            words = {True: "weighted", False: "unweighted"}
            raise _differs(first, file, "edges", words[first.weighted], words[file.weighted])
    first_named: dict[FileKind, SourceFile] = {}
    for file in files:
        like = first_named.setdefault(file.kind, file) if file.has_names else file
        if any(a != b for a, b in zip(file.columns, like.columns, strict=False)):
            raise _differs(like, file, "columns", ", ".join(like.columns), ", ".join(file.columns))
    return kind, first.weighted


def _agreed_id_kind(files: Sequence[SourceFile], config: IngestConfig) -> IdKind:
    # Text that looks like integers in one file and not in another is text; Parquet says itself
    # what it holds.
    kind: IdKind = "string" if any(file.id_kind == "string" for file in files) else "int"
    typical = next(file for file in files if file.id_kind == kind)
    for file in files:
        if file.kind == "parquet" and file.id_kind != kind:
            raise _differs(typical, file, "ids", kind, file.id_kind)
    if config.ids not in ("auto", kind):
        raise BadInputError(
            f"{typical.path}: --ids {config.ids} was given, but the file holds {kind} ids. "
            f"Leave --ids out, or cast the columns."
        )
    return kind


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
