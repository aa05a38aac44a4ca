"""Asks the workers of a cluster what they offer, or knows it without them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import distributed

from figrl.engine.capacity import ClusterMemory, offer
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, LocalCluster
from figrl.engine.fleet import Fleet, cluster_there
from figrl.errors import ResourceError
from figrl.units import human_seconds

_WORKER_WAIT_SECONDS = 60.0
_TOLD_SECONDS = 3.0
"""Without a worker, after which a person is told what is waited for."""


def cluster_memory(
    client: distributed.Client,
    limit_bytes: int | None,
    told: Callable[[str], None] = lambda _: None,
) -> ClusterMemory:
    """Ask the workers that can take part for their memory, at most `limit_bytes`, and threads.

    `told`: gets a sentence if there is no worker yet.
    """
    _wait_for_one(client, told)
    fleet = Fleet(client)
    fleet.refresh("when it was asked for its workers")
    with cluster_there("when it was asked for its workers"):
        offers = client.run(offer, workers=list(fleet.fit), on_error="ignore") if fleet.fit else {}
    if not offers:
        waited = human_seconds(_WORKER_WAIT_SECONDS)
        raise ResourceError(
            f"The Dask cluster has no worker that answers, after {waited}. Start one, with figrl "
            "installed where it runs, and try again."
        )
    threads = max(threads for threads, _ in offers.values())
    memory = {address: size for address, (_, size) in offers.items()}
    least = min(memory, key=memory.__getitem__)
    limit = min(memory[least], limit_bytes or memory[least])
    is_smaller = limit == memory[least] < max(memory.values())
    return ClusterMemory(len(offers), threads, limit, smallest=least if is_smaller else "")


def _wait_for_one(client: distributed.Client, told: Callable[[str], None]) -> None:
    # By a task, for an adaptive cluster may start its first worker only when there is work.
    first = client.submit(os.getpid, pure=False)
    patience = min(_TOLD_SECONDS, _WORKER_WAIT_SECONDS)
    try:
        first.result(timeout=patience)
    except TimeoutError:
        if not client.nthreads():
            at_most = human_seconds(_WORKER_WAIT_SECONDS)
            told(f"Waiting for a worker of the Dask cluster, up to {at_most}.")
        with suppress(TimeoutError):
            first.result(timeout=_WORKER_WAIT_SECONDS - patience)


def planned_memory(config: ClusterConfig, limit_bytes: int | None) -> ClusterMemory:
    """What the workers offer; a local cluster need not be started to know it."""
    if config.kind == "local":
        local = config.local or LocalCluster()
        workers, threads = local.shape()
        return ClusterMemory(workers, threads, local.limit_bytes(limit_bytes))
    with connect(config, limit_bytes) as client:
        return cluster_memory(client, limit_bytes)
