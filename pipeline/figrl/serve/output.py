"""The place of an output: where it may be, what it may replace, and which job writes it.

An output is written by one job at a time. Its work lies in a hidden folder beside it, which has the
lock; it goes when the output is in place. So a store is only read, and may be read-only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from figrl.errors import ConfigError, StoreInUseError
from figrl.store import files
from figrl.store.layout import PathLike
from figrl.store.leftovers import delete_left_beside
from figrl.store.lock import Lock, describe_owner, locked, owner_of
from figrl.store.objects import RemoteFile
from figrl.store.places import local_path, remote_url

_MARK = b"figrl"
"""Key of the metadata by which a Parquet file is known as one that figrl wrote."""

_PART_NAME = re.compile(r"part-\d{6,}\.parquet")

_TRIES = 20

Input: TypeAlias = PathLike | RemoteFile
"""A file that is read, or what stands for files."""


def marked(schema: pa.Schema, content: str) -> pa.Schema:
    """A schema whose files are known as figrl's; `content` says what is in them."""
    return schema.with_metadata({_MARK: content.encode()})


def part_path(folder: Path, number: int) -> Path:
    """Path of a part."""
    return folder / f"part-{number:06d}.parquet"


def is_one_file(out: Path) -> bool:
    """Whether an output is one Parquet file; else it is a folder of them."""
    return out.suffix.lower() == ".parquet"


def check_output(out: PathLike, *, store: PathLike, inputs: Iterable[Input] = ()) -> Path:
    """Resolve the path of an output; refuse a format that is not written, the store and inputs.

    `inputs`: files, folders and glob patterns, as the user gave them and as they were found.
    """
    path = local_path(out).resolve()
    suffix = path.suffix
    # A folder may end in a number, such as vectors-1.2.
    if not is_one_file(path) and suffix and not suffix[1:].isdigit():
        raise ConfigError(
            f"--out {out} ends in '{suffix}', but only Parquet is written. Give a name that ends "
            "in .parquet for one file, or a name without an ending for a folder of files."
        )
    _check_apart(out, path, "the store", local_path(store).resolve())
    for given in _local(inputs):
        source = local_path(given)
        _check_apart(out, path, "the input", source.resolve())
        if fnmatch(path.name, source.name) and source.resolve().parent == path.parent:
            raise ConfigError(
                f"--out {out} is one of the files that the input {given} stands for. Give a "
                "place outside of it."
            )
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise ConfigError(f"--out {out} cannot be made: {parent} is a file. Give another.")
    return path


def _local(inputs: Iterable[Input]) -> Iterator[PathLike]:
    """Inputs that lie on a file system, where outputs do."""
    for given in inputs:
        if not isinstance(given, RemoteFile) and remote_url(given) is None:
            yield given


def _check_apart(given: PathLike, out: Path, what: str, other: Path) -> None:
    if out == other:
        relation = "is"
    elif other.is_relative_to(out):
        relation = "holds"
    elif out.is_relative_to(other):
        relation = "lies in"
    else:
        return
    raise ConfigError(
        f"--out {given} {relation} {what} {other}, which is only read. Give a place outside of it."
    )


def quarantine_of(out: Path, inputs: Iterable[Input]) -> Path:
    """Folder beside an output for rows that are rejected; it may be replaced."""
    path = out.with_name(out.name + ".quarantine")
    for given in _local(inputs):
        if local_path(given).resolve().is_relative_to(path):
            raise ConfigError(
                f"{path}, for rejected rows, holds the input {given}. Give another --out, or move "
                "the input."
            )
    found = sorted(path.iterdir()) if path.is_dir() else [path] * os.path.lexists(path)
    for entry in found:
        schema = _schema_of(entry)
        if schema is None or not {"file", "row", "reason"} <= set(schema.names):
            raise ConfigError(
                f"{path}, for rejected rows, is there already, and {entry} was not written by "
                "figrl. Give another --out, or move it away."
            )
    return path


@dataclass(frozen=True)
class Place:
    """An output that this job alone writes.

    `space`: the hidden folder beside it. `overwrite`: whether the user allows to replace what is
    there. `ours`: whether the place is figrl's own, so that anything there may be replaced.
    """

    path: Path
    space: Path
    lock: Lock
    overwrite: bool
    ours: bool

    def begin(self, work: Path, parts: Path, *, keep: Path | None = None) -> None:
        """Prepare the folders of a job that goes on where an earlier attempt ended, if there was.

        `work` holds its marks, `parts` its parts, `keep` its input.
        """
        self.check_free(work)
        for place in (self.path, self.space):
            delete_left_beside(place)
        for other in files.list_prefix(self.space):
            # Left by a killed job with other input or options: nobody else works here.
            if other not in (work, parts, keep, *parts.parents):
                files.delete(other)
        if not files.exists(parts):
            # They were delivered, or there were none: marks of an earlier attempt are not valid.
            files.delete(work / "marks")
        parts.mkdir(parents=True, exist_ok=True)

    def check_before(self) -> None:
        """Refuse what `check_free` would refuse, before the work that leads to it."""
        if not any(files.exists(work / "delivering") for work in files.list_prefix(self.space)):
            self.check_free(self.space)

    def check_free(self, work: Path) -> None:
        """Refuse to replace what is at the path.

        Unless this job delivered it before it was killed, or the user allows it and figrl wrote it.
        """
        there = os.path.lexists(self.path) and not files.exists(work / "delivering")
        if self.ours or not there:
            return
        if not self.overwrite:
            raise ConfigError(f"{self.path} is there already. Give another --out, or --overwrite.")
        foreign = _not_figrls(self.path)
        if foreign is not None:
            raise ConfigError(
                f"{self.path} is not replaced: {foreign} was not written by figrl. --overwrite "
                "replaces earlier outputs only. Give another --out, or move it away yourself."
            )


def _not_figrls(path: Path) -> Path | None:
    """What at a path was not written as an output by figrl; None if all was."""
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if not _PART_NAME.fullmatch(entry.name) or not _has_mark(entry):
                return entry
        return None
    return None if _has_mark(path) else path


def _has_mark(path: Path) -> bool:
    """Whether a path is a Parquet file with figrl's metadata."""
    schema = _schema_of(path)
    return schema is not None and _MARK in (schema.metadata or {})


def _schema_of(path: Path) -> pa.Schema | None:
    """Schema of a Parquet file; None if it is none."""
    # Opening a pipe would wait for ever.
    if not path.is_file():
        return None
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return None


@contextmanager
def output_locked(
    out: Path, purpose: str, *, overwrite: bool, ours: bool = False
) -> Iterator[Place]:
    """Hold the lock of an output; delete the work beside it when the job ends well.

    Raises `StoreInUseError` if another job writes the same output.
    """
    space = space_of(out)
    with ExitStack() as stack:
        lock = _lock(stack, space, out, purpose)
        try:
            yield Place(out, space, lock, overwrite, ours)
        except BaseException:
            # After a refusal there is nothing to go on from.
            if not files.list_prefix(space):
                files.delete(space)
            raise
        # Once it is deleted, a folder of this name is that of another job.
        clear(space)


def space_of(out: Path) -> Path:
    """The hidden folder beside an output, in which it is made."""
    return out.with_name(f".{out.name}.figrl")


def clear(space: Path) -> None:
    """Delete the work of an output that is in its place."""
    files.delete(space)


def _lock(stack: ExitStack, space: Path, out: Path, purpose: str) -> Lock:
    """Lock the folder beside an output, which the job before us may delete at any moment."""
    for _ in range(_TRIES):
        space.mkdir(parents=True, exist_ok=True)
        with ExitStack() as attempt:
            try:
                # As long as it is open, no other folder has its inode.
                folder = os.open(space, os.O_RDONLY | os.O_DIRECTORY)
                attempt.callback(os.close, folder)
                lock = attempt.enter_context(locked(space, purpose))
                same = os.path.samestat(os.fstat(folder), space.stat())
            except FileNotFoundError:
                continue
            except StoreInUseError as error:
                raise StoreInUseError(
                    f"{out} is being written by {describe_owner(owner_of(space))}. Wait until that "
                    "job has ended, or give another --out."
                ) from error
            if same:
                stack.push(attempt.pop_all())
                return lock
    raise StoreInUseError(f"{out} is being written by other jobs, one after the other. Try again.")
