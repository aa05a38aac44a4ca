"""What the workers of a cluster offer: memory and threads, by which a job is planned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import distributed
from distributed.system import MEMORY_LIMIT

from figrl.engine.rates import Rates
from figrl.units import human_bytes


@dataclass(frozen=True)
class ClusterMemory:
    """What the workers of a cluster offer: the smallest memory and the most threads.

    `storage_rate`: bytes a second that the storage gives to all workers together, if that is known.
    `network_rate`: bytes a second between a worker and the storage; by default those of a disk.
    `smallest`: address of the worker by which the memory is limited, if others have more.
    """

    workers: int
    threads: int
    limit_bytes: int
    storage_rate: float = math.inf
    network_rate: float | None = None
    smallest: str = ""

    # Dask stops giving tasks to a worker whose process holds 80 % of its limit, and a shared
    # operand is held between tasks: a plan that came near would never end.
    usable_share = 0.75

    @property
    def allowed_bytes(self) -> int:
        """Bytes that a plan may use in a worker process."""
        return int(self.limit_bytes * self.usable_share)

    def disk_seconds(self, rates: Rates, read: float, written: float) -> float:
        """Seconds for which bytes keep the disk of a worker busy, or its network."""
        if self.network_rate is not None:
            return (read + written) / self.network_rate
        return read / rates.read + written / rates.write

    def describe(self) -> str:
        """One line for a person."""
        return (
            f"{self.workers} worker{'s' if self.workers != 1 else ''} with up to "
            f"{self.threads} thread{'s' if self.threads != 1 else ''} and "
            f"{human_bytes(self.limit_bytes)} each"
        )

    def remedy(self, needed: str = "more", *, fewer: bool = True) -> str:
        """How to give the workers the memory that is `needed`, such as ``"2GB"``.

        `fewer`: whether fewer threads would need less.
        """
        if self.smallest:
            return (
                f"Worker {self.smallest} has less memory than the others: give it {needed}, or "
                "stop it, for a job counts on the same of every worker."
            )
        amount = "" if needed == "more" else f" to {needed}"
        threads = ", or use workers with fewer threads" if fewer else ""
        return f"Raise --memory-limit{amount}{threads}."


def offer(dask_worker: distributed.Worker) -> tuple[int, int]:
    """Threads and memory of a worker."""
    limit = dask_worker.memory_manager.memory_limit or MEMORY_LIMIT
    return int(dask_worker.state.nthreads), int(limit)
