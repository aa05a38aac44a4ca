"""Which files hold the edges, whether they agree, and the pieces they are read in."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.format import Piece, SourceFile
from figrl.ingestion.formats import SUFFIXES, format_of, readable
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sniff import HEAD_BYTES
from figrl.store.ids import IdKind
from figrl.store.layout import PathLike
from figrl.store.places import local_path

__all__ = [
    "SourceFile",
    "agree",
    "describe_reading",
    "find_files",
    "inspect_file",
    "split_into_pieces",
]


def find_files(
    edges: PathLike | Sequence[PathLike], *, chosen: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """List the files behind a path, folder or glob pattern, or several, in a fixed order.

    In folders and globs, hidden files and those that begin with an underscore are skipped, and so
    is what is not `chosen`. A file with several names counts once.
    """
    found: list[str] = []
    for given in [edges] if isinstance(edges, str | os.PathLike) else edges:
        matches = _behind(str(local_path(given)))
        if not matches:
            raise BadInputError(
                f"{given}: there is no edge file here. Give a file, a folder or a glob pattern of "
                f"{SUFFIXES} files (text and CSV may end in .gz), or one .mtx or .npz."
            )
        found.extend(str(Path(match).absolute()) for match in matches)
    unique: dict[tuple[int, int], str] = {}
    for path in sorted(path for path in set(found) if chosen(path)):
        format_of(path)
        status = _status(path)
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(
                f"{path}: it is not a file but a pipe, a socket or a device, and edges are read "
                "more than once. Write them to a file first, or leave it out."
            )
        unique.setdefault((status.st_dev, status.st_ino), path)
    return list(unique.values())


def _behind(text: str) -> list[str]:
    """Files at a path, in a folder, or that match a pattern."""
    if not os.path.lexists(text):
        return [path for hit in _glob(text) for path in _behind(hit)]
    return _in_folder(text) if stat.S_ISDIR(_status(text).st_mode) else [text]


def _in_folder(root: str) -> list[str]:
    """All in a folder that is not hidden; links to folders are followed, each folder once."""
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        status = _status(folder)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for name in _names_in(folder):
            path = os.path.join(folder, name)  # noqa: PTH118 - "./a" is told as it was given
            if name[0] not in "._":
                is_folder = stat.S_ISDIR(_status(path).st_mode)
                (waiting if is_folder else found).append(path)
    return found


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, not paths
    except OSError as error:
        raise _unreadable(folder, error) from error


def _status(path: str) -> os.stat_result:
    """Kind and identity of a file or folder, behind all links."""
    try:
        return Path(path).stat()
    except FileNotFoundError as error:
        raise BadInputError(
            f"{path}: it is a link to something that is not there. Repair the link, or remove it."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path}: it cannot be read ({error.strerror}). Change its permissions (chmod +rx for a "
        "folder), or leave it out."
    )


def _glob(pattern: str) -> list[str]:
    parts = Path(pattern).parts
    fixed = list(takewhile(lambda part: not glob.has_magic(part), parts))
    # glob passes over folders that it may not read.
    for end in range(len(fixed), len(parts)):
        for hit in _visible(str(Path(*parts[:end])), fixed):
            if Path(hit).is_dir():
                _names_in(hit)
    return _visible(pattern, fixed)


def _visible(pattern: str, fixed: Sequence[str]) -> list[str]:
    hits = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too
    return [hit for hit in hits if not _is_hidden(Path(hit).relative_to(Path(*fixed)))]


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
