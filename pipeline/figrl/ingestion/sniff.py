"""What the beginning of a file says: the kind of its ids, and what its columns hold."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from figrl.ingestion.columns import Column
from figrl.ingestion.kernels import parse_integers
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.texts import is_number
from figrl.store.ids import IdKind, string_buffers

MAX_LINE_BYTES = 1 << 20
"""A longer line is no edge, and would be held in memory as a whole."""


def guess_id_kind(ids: Sequence[str], options: IngestOptions) -> IdKind:
    """Integers if all ids are; a missing id is a bad row and says nothing about the others."""
    if options.ids != "auto":
        return options.ids
    return "int" if all_integers([value for value in ids if value]) else "string"


def all_integers(values: Sequence[str]) -> bool:
    """Whether all texts are the way an int64 is printed."""
    return bool(parse_integers(*string_buffers(pa.array(values, pa.large_string())))[1].all())


def column_of(name: str, values: Sequence[str]) -> Column:
    """A column of text, by its first values."""
    present = [value for value in values if value]
    if not present:
        return Column(name, "nothing", numeric=False)
    if all_integers(present):
        return Column(name, "int", numeric=True)
    numbers = [is_number(value) for value in present]
    # "007" and "1e5" are ids like any text; "1.0" is a number that lost its type.
    is_float = all(numbers) and any("." in value for value in present)
    return Column(name, "float" if is_float else "string", numeric=any(numbers))


def is_distinct(values: Sequence[str]) -> bool:
    """Whether no value is there twice, as in an index."""
    return len(set(values)) == len(values)
