"""How fast a machine is: rates that turn the operations of a plan into seconds.

A plan uses the rates of a small two-core machine, so that it is the same everywhere. Seconds for
this machine come from rates that `figrl bench rates` measures and keeps in the user's cache folder;
they are read only where a user asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from figrl.errors import ConfigError
from figrl.store.files import read_json


@dataclass(frozen=True)
class Rates:
    """What one core does in a second, while the others do too; and what one disk does."""

    regenerate: float = 1.2e9  # entries of R that are made
    gather: float = 6e9  # bytes of operand rows that are added up along edges
    rows: float = 5e7  # rows of the operand that are found
    entries: float = 8e7  # entries of the stored graph that are decoded
    copy: float = 4e9  # bytes written to memory that is in use
    touch: float = 5e9  # bytes written to memory that was never used before
    gram: float = 9e10  # flops (n d^2) of the Gram matrix
    gram_entries: float = 5e8  # entries (n d) that the Gram matrix takes up
    gemm: float = 6.5e10  # flops (2 n d k) of a dense product
    chunks: float = 700.0  # Zarr chunks that are opened, whatever their size
    read: float = 1.8e9  # bytes from the disk past the cache, all cores together
    write: float = 1e9  # bytes to the disk past the cache, all cores together
    # What Dask and the files cost, however many cores there are: one scheduler hands out all tasks.
    task_seconds: float = 0.0075
    stage_seconds: float = 0.1

    def core_seconds(self, work: Mapping[str, int]) -> float:
        """Seconds that one core takes for counts of work, by the name of their rate."""
        return sum(count / float(getattr(self, name)) for name, count in work.items())


def rates_path() -> Path:
    """Where the rates of this machine are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "figrl" / "rates.json"


def measured_rates() -> Rates:
    """Rates of this machine, as they were measured."""
    try:
        kept = read_json(rates_path())
        return Rates(**{field.name: float(kept[field.name]) for field in fields(Rates)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"There are no rates of this machine in {rates_path()} ({error}). Measure them first: "
            "figrl bench rates"
        ) from error
