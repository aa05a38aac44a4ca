"""What the beginning of a file says: the kind of its ids, and the columns that are used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from figrl.errors import BadInputError
from figrl.ingestion.kernels import parse_integers
from figrl.ingestion.options import IngestOptions
from figrl.store.ids import IdKind, string_buffers

HEAD_BYTES = 64 << 10


def open_bytes(path: str) -> BinaryIO:
    """Open a file, decompressing it on the fly if it is gzipped."""
    if path.endswith(".gz"):
        return cast("BinaryIO", pa.input_stream(path, compression="gzip"))
    return Path(path).open("rb")


def guess_id_kind(ids: Sequence[str], options: IngestOptions) -> IdKind:
    """Integers if all ids are; a missing id is a bad row and says nothing about the others."""
    if options.ids != "auto":
        return options.ids
    present = pa.array([value for value in ids if value], pa.large_string())
    return "int" if parse_integers(*string_buffers(present))[1].all() else "string"


def choose_columns(path: str, names: Sequence[str], options: IngestOptions) -> list[str]:
    """Names of the columns of source, target and perhaps weight, which is not that of times."""
    given = {name: getattr(options, name) for name in ("source", "target", "weight", "time")}
    shown = ", ".join(names) or "none"
    for option, name in given.items():
        if name is not None and name not in names:
            raise BadInputError(
                f"{path}: there is no column '{name}' (given with --{option}). Its columns are: "
                f"{shown}."
            )
    free = [name for name in names if name not in given.values()]
    if len(free) < [options.source, options.target].count(None):
        raise BadInputError(
            f"{path}: an edge has two ends, each in a column of its own; this file has the columns "
            f"{shown}. Give a file with more, or name others of its columns."
        )
    chosen = [options.source or free.pop(0), options.target or free.pop(0)]
    if options.weight is not None:
        chosen.append(options.weight)
    elif options.source is None and options.target is None:
        chosen += [name for name in names if name != options.time][2:3]
    used = [*chosen, *([] if options.time is None else [options.time])]
    for name in used:
        if used.count(name) > 1 or names.count(name) > 1:
            raise BadInputError(
                f"{path}: column '{name}' would be used twice. Its columns are: {shown}. Name "
                "different ones with --source, --target, --weight and --time."
            )
    return chosen


def columns_read(
    chosen: Sequence[str], options: IngestOptions, *, weighted: bool
) -> tuple[str, ...]:
    """Names of the columns that are read, in the order of their roles."""
    return (*chosen[: 3 if weighted else 2], *([] if options.time is None else [options.time]))
