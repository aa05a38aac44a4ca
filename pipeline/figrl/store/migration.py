"""Folders of layout 3 written anew in layout 4, in which every file has a checksum.

The numbers stay as they are, byte by byte. Layout 3 had no checksums: those that are added here
are of what is found, so they guard from now on. What can be seen to be damaged is refused: a chunk
that is missing or has another size, a Parquet or Arrow file that cannot be opened, bad JSON.

A folder is written aside, one file after the other, and checked as a whole; then it takes the place
of the old one in one step. So a migration can be killed at any moment, and goes on from there.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.errors import BadInputError, DamagedError
from figrl.store import files
from figrl.store.arrays import ArraySpec, create_array
from figrl.store.checksums import (
    WrongContentError,
    append_checksum,
    check_file,
    crc32c,
    damage_reported,
    damaged,
    file_crc,
    insert_checksum,
)
from figrl.store.contents import LABELS_CRC, check_contents
from figrl.store.layout import FORMAT, read_contents, read_manifest, write_manifest

OLD_FORMAT = 3

_LATER = {
    *("overlay", "index", "clusters", "pinned", "report.html", "log.jsonl"),
    *("checks.json", "gates.json", "map.json"),
}
"""What is added to a run after it was committed: it is not in the list of its manifest."""

Convert = Callable[[Path, Path], None]
"""Writes a file of the new layout from one of the old."""


def old_manifest(folder: Path) -> dict[str, Any] | None:
    """Manifest of a graph or a run of an older layout; None if its layout is the present one."""
    path = folder / "manifest.json"
    with damage_reported(path):
        content = files.get(path)
        if b'"checksum"' in content:
            return None
        manifest = json.loads(content)
        if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
            raise WrongContentError("does not say which layout it has")
    return None if manifest["format"] == FORMAT else manifest


def migrate_folder(folder: Path, aside: Path) -> int:
    """Replace the folder of a graph or a run by one of the new layout; return its bytes.

    `aside`: where it is written. What an earlier attempt has written there is used.
    """
    complete = aside.with_name(aside.name + ".complete")
    if not files.exists(complete):
        _write_aside(folder, aside)
        files.write_text(complete, "figrl migrate\n", durable=True)
    size = files.size_bytes(aside if files.exists(aside) else folder)
    if files.exists(aside):
        files.move(aside, folder)
        files.make_durable(folder)
    files.delete(complete)
    return size


def finish_begun(aside: Path, folder: Path) -> None:
    """Put a folder that an earlier attempt completed in its place, if it is not there yet."""
    if files.exists(aside.with_name(aside.name + ".complete")):
        migrate_folder(folder, aside)


def _write_aside(folder: Path, aside: Path) -> None:
    manifest = old_manifest(folder)
    if manifest is None:
        raise AssertionError(f"{folder} is of the present layout")
    every = list(_conversions(folder))
    # First what the manifest vouches for, so that it lists nothing else.
    for later in (False, True):
        for name, convert in every:
            if (name.parts[0] in _LATER) is later and not files.exists(aside / name):
                convert(folder / name, aside / name)
        if not later and not files.exists(aside / "manifest.json"):
            _write_manifest(aside, manifest)
    _check(aside, every)
    files.make_durable(aside)


def _check(aside: Path, every: list[tuple[Path, Convert]]) -> None:
    """Read everything once; after a power failure, an earlier attempt may have lost some of it."""
    try:
        for path, problem in check_contents(aside, read_contents(aside)):
            raise damaged(path, problem)
        for name, convert in every:
            if convert in (_trailed, _arrow, _parquet):
                check_file(aside / name)
            elif convert is _record:
                files.read_record(aside / name)
            elif convert is _overlay_manifest:
                read_manifest((aside / name).parent)
    except DamagedError as error:
        files.delete(aside)
        raise BadInputError(
            f"{error.message.partition('. Find')[0]}. Run figrl migrate again."
        ) from error


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    was = {"from_format": manifest["format"], "time": round(time.time(), 3)}
    told = {"checksums": "made by figrl migrate, of files that had none"}
    kept = {name: value for name, value in manifest.items() if name != "format"}
    write_manifest(folder, {**kept, "migrated": {**was, **told}})


def _conversions(folder: Path) -> Iterator[tuple[Path, Convert]]:
    """Files of a folder by name, and arrays in place of their files, each with what converts it."""
    for path in _walk(folder):
        yield path.relative_to(folder), _conversion(path.relative_to(folder), path)


def _walk(folder: Path, *, top: bool = True) -> Iterator[Path]:
    for path in files.list_prefix(folder):
        if top and path.name in ("work", "manifest.json"):
            continue
        if path.is_dir() and not files.exists(path / "zarr.json"):
            yield from _walk(path, top=False)
        else:
            yield path


def _conversion(name: Path, path: Path) -> Convert:
    top, kind = name.parts[0], name.suffix
    if path.is_dir():
        return _array
    if kind == ".json":
        overlay = top == "overlay" and name.name == "manifest.json"
        return _overlay_manifest if overlay else _record
    if top == "edges" and kind == ".parquet":
        return _parquet
    if kind == ".arrow":
        return _arrow
    if top == "index" or (kind == ".npy" and top != "clusters"):
        return _trailed
    return files.copy


def _array(old: Path, new: Path) -> None:
    """Write an array with the checksum codec: the metadata, then each chunk."""
    with damage_reported(old / "zarr.json"):
        found = files.read_json(old / "zarr.json")
        if [codec["name"] for codec in found["codecs"]] != ["bytes"]:
            raise WrongContentError("is compressed, which figrl did not write")
        shape, dtype = tuple(found["shape"]), np.dtype(found["data_type"])
        chunks = tuple(found["chunk_grid"]["configuration"]["chunk_shape"])
    aside = new.with_name(f"{new.name}.array")
    create_array(ArraySpec(aside, shape, chunks, str(dtype)))
    size = math.prod(chunks) * dtype.itemsize
    for place in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True))):
        name = Path("c", *map(str, place))
        if files.exists(aside / name):
            continue
        with damage_reported(old / name):
            content = files.get(old / name)
            if len(content) != size:
                raise WrongContentError(f"has {len(content)} bytes where {size} belong")
        files.put(aside / name, content + crc32c(content).to_bytes(4, "little"))
    files.move(aside, new)


def _parquet(old: Path, new: Path) -> None:
    with damage_reported(old):
        pq.read_metadata(old)
    _rewritten(old, new, insert_checksum)


def _arrow(old: Path, new: Path) -> None:
    with damage_reported(old), pa.memory_map(str(old)) as source:
        pa.ipc.open_file(source).get_batch(0)
    _rewritten(old, new, append_checksum)


def _trailed(old: Path, new: Path) -> None:
    _rewritten(old, new, append_checksum)


def _rewritten(old: Path, new: Path, add: Callable[[Path], None]) -> None:
    with files.atomic_write(new) as path:
        shutil.copyfile(old, path)
        add(path)


def _record(old: Path, new: Path) -> None:
    """Write a record with its checksum."""
    with damage_reported(old):
        value = files.read_json(old)
    if old.name == "gates.json" and isinstance(value, list):
        value = {"gates": value}
    if old.parent.name == "clusters":
        value[LABELS_CRC] = file_crc(old.with_suffix(".npy"))
    files.write_record(new, value)


def _overlay_manifest(old: Path, new: Path) -> None:
    """Commit a version of an overlay: its other files come before it, in the order of names."""
    with damage_reported(old):
        manifest = files.read_json(old)
        config = files.read_json(old.parents[1] / "options.json")
    for path in _walk(old.parent):
        name = path.relative_to(old.parent)
        if not files.exists(new.parent / name):
            _conversion(Path("overlay", name), path)(path, new.parent / name)
    write_manifest(new.parent, {**manifest, "config": config})


def migrate_log(path: Path) -> None:
    """Add a checksum to each line of a log of JSON; half a line of a power failure is left out."""
    if not files.exists(path):
        return
    lines = []
    for line in files.get(path).split(b"\n"):
        try:
            value = json.loads(line)
            lines.append(line if "checksum" in value else files.record_line(value).encode())
        except (ValueError, TypeError):
            continue
    files.put(path, b"".join(line + b"\n" for line in lines), durable=True)
