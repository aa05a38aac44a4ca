"""What files of edges say of themselves, whether they agree, and the pieces they are read in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from figrl.errors import BadInputError
from figrl.ingestion.format import Piece, SourceFile
from figrl.ingestion.formats import format_of, readable
from figrl.ingestion.opening import AnyFile, identify
from figrl.ingestion.options import IngestOptions
from figrl.store.ids import IdKind

__all__ = [
    "SourceFile",
    "agree",
    "describe_reading",
    "inspect_file",
    "split_into_pieces",
]


def inspect_file(path: AnyFile, options: IngestOptions) -> SourceFile:
    """Sniff a file: its columns, the kind of its ids, a fingerprint (`opening.identify`)."""
    known = format_of(path)
    with readable(path, known):
        fingerprint, size = identify(path)
        sniffed = known.sniff(path, options)
    return SourceFile(
        path=path,
        kind=known.name,
        fingerprint=fingerprint,
        size_bytes=size,
        **vars(sniffed),
    )


def agree(files: Sequence[SourceFile], options: IngestOptions) -> tuple[IdKind, bool]:
    """Check that all files have one schema: the kind of ids, and whether there are weights."""
    if not files:
        raise BadInputError("There are no edge files.")
    kind = _agreed_id_kind(files, options)
    # A file without rows, such as a header alone, does not say whether there are weights.
    filled = [file for file in files if not file.empty] or files[:1]
    first = filled[0]
    for file in filled:
        if file.weighted != first.weighted:
            words = {True: "weighted", False: "unweighted"}
            raise _differs(first, file, "edges", words[first.weighted], words[file.weighted])
    first_of: dict[str, SourceFile] = {}
    for file in files:
        like = first_of.setdefault(file.kind, file)
        if file.named != like.named:
            words = {True: f"names ({', '.join(like.columns)})", False: "without names"}
            if file.named:
                words[True] = f"names ({', '.join(file.columns)})"
            raise _differs(like, file, "columns", words[like.named], words[file.named])
    first_named: dict[str, SourceFile] = {}
    for file in files:
        like = first_named.setdefault(file.kind, file) if file.named else file
        if any(a != b for a, b in zip(file.columns, like.columns, strict=False)):
            raise _differs(like, file, "columns", ", ".join(like.columns), ", ".join(file.columns))
    return kind, first.weighted


def describe_reading(files: Sequence[SourceFile]) -> list[dict[str, Any]]:
    """How the files of each format are read: columns by role, and whether there is a header.

    Columns without names are numbered, from 1.
    """
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(files, key=lambda file: file.empty):
        roles = dict.fromkeys(("source", "target", "weight", "time"))
        columns: dict[str, Any] = roles | dict(zip(file.roles, file.columns, strict=False))
        found.setdefault(file.kind, {"format": file.kind, **columns, "header": file.named})
    return list(found.values())


def _agreed_id_kind(files: Sequence[SourceFile], options: IngestOptions) -> IdKind:
    # Text that looks like integers in one file and not in another is text; a typed format states
    # what it holds.
    kind: IdKind = "string" if any(file.id_kind == "string" for file in files) else "int"
    typical = next(file for file in files if file.id_kind == kind)
    for file in files:
        if file.typed and file.id_kind != kind:
            raise _differs(typical, file, "ids", kind, file.id_kind)
    if options.ids not in ("auto", kind):
        raise BadInputError(
            f"{typical.path}: --ids {options.ids} was given, but the file holds {kind} ids. "
            "Leave --ids out, or cast the columns."
        )
    return kind


def _differs(first: SourceFile, other: SourceFile, what: str, a: str, b: str) -> BadInputError:
    return BadInputError(
        f"{other.path}: its {what} are {b}, but those of {first.path} are {a}. All files of one "
        "graph need the same schema: convert one of them, or ingest them apart."
    )


def split_into_pieces(files: Sequence[SourceFile]) -> list[Piece]:
    """Split files into pieces, each with its share of the bytes."""
    pieces: list[Piece] = []
    for file in files:
        cuts = format_of(file.path).split(file)
        for start, stop in pairwise(cuts):
            share = file.size_bytes * (stop - start) // max(cuts[-1], 1)
            pieces.append(Piece(len(pieces), file, start, stop, share))
    return pieces
