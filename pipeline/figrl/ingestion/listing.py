"""Which files are meant by paths and URLs, folders and glob patterns."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.formats import SUFFIXES, format_of, has_known_ending
from figrl.ingestion.opening import AnyFile, objects_of
from figrl.store.access import Storage
from figrl.store.layout import PathLike
from figrl.store.objects import Location, RemoteFile, locate
from figrl.store.places import local_path, remote_url

_NOTHING = Storage()


def find_files(
    edges: PathLike | Sequence[PathLike],
    storage: Storage = _NOTHING,
    *,
    chosen: Callable[[str], bool] = lambda _: True,
) -> list[AnyFile]:
    """List the files behind a path, URL, folder or glob pattern, or several, in a fixed order.

    In folders and globs, hidden files and those that begin with an underscore are skipped, and so
    is what is not `chosen`. A file with several names counts once.
    """
    found: set[str] = set()
    remote: list[RemoteFile] = []
    for given in [edges] if isinstance(edges, str | os.PathLike) else edges:
        url = remote_url(given)
        if url is not None:
            place = locate(url, storage)
            hits = _remote(place)
            _require(place.url, hits)
            remote += [file for file in hits if chosen(str(file))]
            continue
        matches = _behind(str(local_path(given)))
        _require(given, matches)
        found.update(str(Path(match).absolute()) for match in matches)
    for file in remote:
        format_of(file)
    return [*_distinct(path for path in sorted(found) if chosen(path)), *in_order(remote)]


def in_order(files: Iterable[AnyFile]) -> list[AnyFile]:
    """Each file once, in an order that does not depend on how they were found."""

    def identity(file: AnyFile) -> tuple[str, str]:
        # Files of a server may differ in what is not shown of their URLs.
        return str(file), file.bucket.root if isinstance(file, RemoteFile) else ""

    unique = {identity(file): file for file in files}
    return [unique[key] for key in sorted(unique)]


def _require(given: PathLike, found: Sequence[object]) -> None:
    if not found:
        raise BadInputError(
            f"{given}: there is no edge file here. Give a file, a folder or a glob pattern of "
            f"{SUFFIXES} files (text and CSV may end in .gz), or one .mtx or .npz."
        )


def known_files(names: Iterable[str], storage: Storage) -> list[AnyFile]:
    """Files by the names under which they were read before."""
    return [name if remote_url(name) is None else find_files(name, storage)[0] for name in names]


def _distinct(paths: Iterable[str]) -> list[str]:
    """Local files of a known format, each under the first of its names."""
    unique: dict[tuple[int, int], str] = {}
    for path in paths:
        format_of(path)
        status = _status(path)
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(
                f"{path}: it is not a file but a pipe, a socket or a device, and edges are read "
                "more than once. Write them to a file first, or leave it out."
            )
        unique.setdefault((status.st_dev, status.st_ino), path)
    return list(unique.values())


def _remote(place: Location) -> list[RemoteFile]:
    """Objects of that name, below that prefix, or that match that pattern."""
    objects = objects_of(place.bucket)
    if not place.bucket.is_listed:
        if glob.has_magic(place.url.rpartition("/")[2]):
            raise ConfigError(
                f"{place.url}: servers of HTTP do not list their files. Give the URL of each."
            )
        found = objects.head(place)
        return [] if found is None else [found]
    if place.key and not place.key.endswith("/") and (found := objects.head(place)) is not None:
        return [found]
    parts = [part for part in place.key.split("/") if part]
    fixed = list(takewhile(lambda part: not glob.has_magic(part), parts))
    below = list(objects.below(place, "/".join(fixed)))
    return [
        file
        for file in below
        # Empty objects mark folders; a file without edges is told of where it is read.
        if (file.size_bytes or has_known_ending(file.key))
        and _is_meant(file.key.split("/")[len(fixed) :], parts[len(fixed) :])
    ]


def _is_meant(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether an object, by its names below the fixed folder, is visible and matches a pattern."""
    return not any(name[:1] in "._" for name in names if name) and _matches(names, pattern)


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether names match a pattern, or lie in a folder that does."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(names[start:], pattern[1:]) for start in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


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
