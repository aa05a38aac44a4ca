"""What a folder of a graph, a run or an overlay holds: listed when it is committed, checked later.

Arrays and files with a checksum of their own are listed by name; of other files the list has the
checksum. A file that is not in the list, such as a report that is written later, is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figrl.errors import DamagedError
from figrl.store.arrays import open_zarr
from figrl.store.checksums import check_file, crc32c, damage_reported, damaged
from figrl.store.files import get, list_prefix

Damage = tuple[Path, str]
"""A damaged file, and what is wrong with it."""

LABELS_CRC = "labels_crc32c"
"""Checksum of the labels of clusters, in their report."""

_NOT_LISTED = {"work", "overlay", "index", "manifest.json"}
_CHECK_THEMSELVES = {"ids", "edges", "vectors"}
"""Folders whose files have a checksum of their own."""


def list_contents(folder: Path) -> dict[str, Any]:
    """Arrays of a folder, and files with their checksums, where they have none of their own."""
    arrays: list[str] = []
    files: dict[str, int | None] = {}
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            arrays.append(name)
        elif path.parent.name in _CHECK_THEMSELVES:
            files[name] = None
        else:
            files[name] = crc32c(get(path))
    return {"arrays": sorted(arrays), "files": files}


def _walk(folder: Path, *, top: bool = True) -> Iterator[Path]:
    """Files below a folder, and arrays in place of their files."""
    for path in list_prefix(folder):
        if top and path.name in _NOT_LISTED:
            continue
        if path.is_dir() and not (path / "zarr.json").exists():
            yield from _walk(path, top=False)
        else:
            yield path


def check_contents(folder: Path, contents: dict[str, Any]) -> Iterator[Damage]:
    """Files of a folder that are damaged or missing; everything is read once."""
    for name in contents["arrays"]:
        yield from check_array(folder / name)
    for name, crc in contents["files"].items():
        yield from _problem(folder / name, crc)


def check_array(path: Path) -> Iterator[Damage]:
    """Damaged files of an array."""
    try:
        array = open_zarr(path)
    except DamagedError as error:
        yield path / "zarr.json", error.message
        return
    for chunk, found in array.check():
        yield chunk, str(found)


def _problem(path: Path, crc: int | None) -> Iterator[Damage]:
    try:
        if crc is None:
            check_file(path)
        else:
            with damage_reported(path):
                found = crc32c(get(path))
            if found != crc:
                raise damaged(path, "does not match its checksum")
    except DamagedError as error:
        yield path, error.message
