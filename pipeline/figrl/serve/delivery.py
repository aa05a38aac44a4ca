"""Delivery of an output: parts are written beside it, then put in place as one file or a folder.

A job that is killed at any moment can be run again: the parts stay until the output is in place,
and a file in its work folder records that an existing output is its own.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.runner import Runner
from figrl.engine.stage import Block, Memory, Stage, Stats
from figrl.errors import ConfigError
from figrl.store import files

_DELIVERING = "delivering"

_COPIES = 4
"""Copies of a row group that a join holds: as read, cast, encoded, and compressed."""


def check_target(out: Path, work: Path, *, overwrite: bool) -> None:
    """Refuse to replace an existing output, unless this job wrote it or the user allows it."""
    if files.exists(out) and not overwrite and not files.exists(work / _DELIVERING):
        raise ConfigError(f"{out} is there already. Give another --out, or --overwrite.")


def parts_beside(out: Path, work: Path) -> Path:
    """Folder of the parts of an output: beside it, hence on the same file system.

    The name contains that of the work folder, so that no job delivers the parts of another.
    """
    return out.with_name(f".{out.name}.{work.name}.parts")


def part_path(folder: Path, number: int) -> Path:
    """Path of a part."""
    return folder / f"part-{number:06d}.parquet"


def create_parts(parts: Path) -> None:
    """Create the folder of the parts, which exists until they are delivered."""
    parts.mkdir(parents=True, exist_ok=True)


def forget_delivered(work: Path, parts: Path) -> None:
    """Start over if the parts were delivered: marks of an earlier attempt are no longer valid."""
    if not files.exists(parts):
        files.delete(work / "marks")


def deliver(runner: Runner, parts: Path, schema: pa.Schema, out: Path) -> None:
    """Put parts in place: joined into one file if `out` ends in .parquet, else as a folder."""
    files.write_text(runner.marks.with_name(_DELIVERING), f"{out}\n")
    files.delete_temporary(parts)
    if out.suffix == ".parquet":
        # The user may have moved the file that an earlier attempt joined.
        files.delete(runner.marks / "join")
        join = [Block("all", (parts, schema, out))]
        largest = max((files.size_bytes(part) for part in files.list_prefix(parts)), default=0)
        memory = Memory(task_bytes=_COPIES * largest)
        runner.run_stage(Stage("join", join_parts, join, memory, (parts,), frees=(parts,)))
    else:
        files.move(parts, out)


def join_parts(parts: Path, schema: pa.Schema, out: Path) -> Stats:
    """Write all parts to one file, a row group at a time."""
    if out.is_dir():
        files.delete(out)
    with (
        files.atomic_write(out) as aside,
        pq.ParquetWriter(aside, schema, use_dictionary=False) as sink,
    ):
        for path in files.list_prefix(parts, "part-*.parquet"):
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                sink.write_table(file.read_row_group(group).cast(schema))
    return {"written_bytes": files.size_bytes(out)}
