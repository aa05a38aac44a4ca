"""Delivery of an output: parts are checked, then put in place as one file or a folder.

A job that is killed at any moment can be run again: the parts stay until the output is in place,
and a file in its work folder records that an existing output is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.runner import Runner
from figrl.engine.stage import Block, Memory, Stage, StageResult, Stats
from figrl.errors import BadInputError
from figrl.serve.output import Place, is_one_file, part_path
from figrl.store import files
from figrl.store.leftovers import delete_temporary

_COPIES = 4
"""Copies of a row group that a join holds: as read, cast, encoded, and compressed."""


def rows_of_parts(result: StageResult, name: str = "rows") -> list[int]:
    """Rows that each block of a stage wrote to its part, in the order of the parts."""
    return [int(result.stats[key][name]) for key in sorted(result.stats)]


def deliver(
    runner: Runner, place: Place, parts: Path, schema: pa.Schema, rows: Sequence[int]
) -> None:
    """Put parts in place: joined into one file if the name ends in .parquet, else as a folder.

    `rows`: what the blocks wrote to each part; other parts are not delivered.
    """
    work, out = runner.marks.parent, place.path
    delete_temporary(parts)
    check_parts(parts, rows, work)
    place.lock.check()
    # Somebody may have put a file there since the job began.
    place.check_free(work)
    files.write_text(work / "delivering", f"{out}\n")
    if is_one_file(out):
        # The user may have moved the file that an earlier attempt joined.
        files.delete(runner.marks / "join")
        join = [Block("all", (parts, schema, out, sum(rows)))]
        largest = max((files.size_bytes(part) for part in files.list_prefix(parts)), default=0)
        memory = Memory(task_bytes=_COPIES * largest)
        runner.run_stage(Stage("join", join_parts, join, memory, (parts,), frees=(parts,)))
    else:
        files.move(parts, out)


def check_parts(parts: Path, rows: Sequence[int], work: Path) -> None:
    """Compare the parts with what the blocks have written; start over if they differ."""
    found = {path: _rows_in(path) for path in files.list_prefix(parts)}
    expected = {part_path(parts, number): count for number, count in enumerate(rows)}
    if found == expected:
        return
    wrong = sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path))
    shown = wrong[0]
    # Both, so that the next attempt computes them again.
    files.delete(work / "marks")
    files.delete(parts)
    raise BadInputError(
        f"{len(wrong)} of the parts to deliver changed since they were written: {shown.name} has "
        f"{_describe(found.get(shown))} and should have {_describe(expected.get(shown))}. Nothing "
        f"was delivered, and {parts} is discarded. Run the same command again; if it happens "
        "again, check the disk."
    )


def _rows_in(path: Path) -> int:
    """Rows of a part; -1 if it cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return -1


def _describe(rows: int | None) -> str:
    if rows is None:
        return "no file"
    return "no readable content" if rows < 0 else f"{rows:,} rows"


def join_parts(parts: Path, schema: pa.Schema, out: Path, rows: int) -> Stats:
    """Write all parts to one file, a row group at a time."""
    written = 0
    with files.atomic_write(out) as aside:
        with pq.ParquetWriter(aside, schema, use_dictionary=False) as sink:
            for path in files.list_prefix(parts, "part-*.parquet"):
                file = pq.ParquetFile(path)
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group).cast(schema)
                    sink.write_table(table)
                    written += len(table)
        if written != rows:
            raise BadInputError(
                f"{out} would have {written:,} of {rows:,} rows: its parts in {parts} changed. "
                "Nothing was delivered. Run the same command again."
            )
        if out.is_dir():
            files.delete(out)
    return {"written_bytes": files.size_bytes(out)}
