"""Which files hold the edges, whether they agree, and the pieces they are read in."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from figrl.errors import BadInputError
from figrl.ingestion.format import Piece, SourceFile
from figrl.ingestion.formats import SUFFIXES, format_of, readable
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import HEAD_BYTES
from figrl.store.ids import IdKind
from figrl.store.layout import PathLike

__all__ = ["SourceFile", "agree", "find_files", "inspect_file", "split_into_pieces"]


def find_files(
    edges: PathLike | Sequence[PathLike], *, chosen: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """List the files behind a path, folder or glob pattern, or several, in a fixed order.

    In folders and globs, hidden files and those that begin with an underscore are skipped, and so
    is what is not `chosen`.
    """
    found: list[str] = []
    for given in [edges] if isinstance(edges, str | os.PathLike) else edges:
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
                f"{SUFFIXES} files (text and CSV may end in .gz)."
            )
        found.extend(str(Path(match).absolute()) for match in matches)
    unique = sorted(path for path in set(found) if chosen(path))
    for path in unique:
        format_of(path)
    return unique


def _glob(pattern: str) -> list[str]:
    hits = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too
    fixed = list(takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts))
    return [hit for hit in hits if not _is_hidden(Path(hit).relative_to(Path(*fixed)))]


def _is_data(path: Path, root: Path) -> bool:
    return path.is_file() and not _is_hidden(path.relative_to(root))


def _is_hidden(path: Path) -> bool:
    return any(part[0] in "._" for part in path.parts)


def inspect_file(path: str, options: IngestOptions) -> SourceFile:
    """Sniff a file: its columns, the kind of its ids, a fingerprint.

    The fingerprint is made of the path, the size, the time of the last change, and the first
    and last bytes, which for Parquet are its footer.
    """
    known = format_of(path)
    with readable(path, known):
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - HEAD_BYTES))
            tail = file.read()
            changed = os.fstat(file.fileno()).st_mtime_ns
        mark = hashlib.blake2b(f"{path}\0{size}\0{changed}\0".encode() + head + tail)
        sniffed = known.sniff(path, options)
    return SourceFile(
        path=path,
        kind=known.name,
        fingerprint=mark.hexdigest()[:24],
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
    first_named: dict[str, SourceFile] = {}
    for file in files:
        like = first_named.setdefault(file.kind, file) if file.named else file
        if any(a != b for a, b in zip(file.columns, like.columns, strict=False)):
            raise _differs(like, file, "columns", ", ".join(like.columns), ", ".join(file.columns))
    return kind, first.weighted


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
