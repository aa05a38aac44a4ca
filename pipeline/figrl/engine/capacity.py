"""What the workers of a cluster offer: memory and threads, by which a job is planned."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass

import distributed
from distributed.system import MEMORY_LIMIT

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, LocalCluster
from figrl.errors import ResourceError
from figrl.units import human_bytes

_WORKER_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class ClusterMemory:
    """What the workers of a cluster offer: the smallest memory and the most threads.

    `storage_rate`: bytes a second that the storage gives to all workers together, if that is known.
    """

    workers: int
    threads: int
    limit_bytes: int
    storage_rate: float = math.inf

    # Dask stops giving tasks to a worker whose process holds 80 % of its limit, and a shared
    # operand is held between tasks: a plan that came near would never end.
    usable_share = 0.75

    @property
    def allowed_bytes(self) -> int:
        """Bytes that a plan may use in a worker process."""
        return int(self.limit_bytes * self.usable_share)

    def describe(self) -> str:
        """One line for a person."""
        return (
            f"{self.workers} worker{'s' if self.workers != 1 else ''} with up to "
            f"{self.threads} thread{'s' if self.threads != 1 else ''} and "
            f"{human_bytes(self.limit_bytes)} each"
        )


def cluster_memory(client: distributed.Client, limit_bytes: int | None) -> ClusterMemory:
    """Ask the workers for their memory, at most `limit_bytes`, and their threads."""
    # A task, for an adaptive cluster may start its first worker only when there is work.
    first = client.submit(os.getpid, pure=False)
    with suppress(TimeoutError):
        first.result(timeout=_WORKER_WAIT_SECONDS)
    offers = client.run(offer, on_error="ignore")
    if not offers:
        raise ResourceError(
            "The Dask cluster has no worker that answers. Start one, with figrl installed where it "
            "runs, and try again."
        )
    threads = max(threads for threads, _ in offers.values())
    memory = min(memory for _, memory in offers.values())
    return ClusterMemory(len(offers), threads, min(memory, limit_bytes or memory))


def offer(dask_worker: distributed.Worker) -> tuple[int, int]:
    """Threads and memory of a worker."""
    limit = dask_worker.memory_manager.memory_limit or MEMORY_LIMIT
    return int(dask_worker.state.nthreads), int(limit)


def planned_memory(config: ClusterConfig, limit_bytes: int | None) -> ClusterMemory:
    """What the workers offer; a local cluster need not be started to know it."""
    if config.kind == "local":
        local = config.local or LocalCluster()
        workers, threads = local.shape()
        return ClusterMemory(workers, threads, local.limit_bytes(limit_bytes))
    with connect(config, limit_bytes) as client:
        return cluster_memory(client, limit_bytes)
