"""Where a call runs, and who watches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import distributed

from figrl.engine.available import cluster_memory
from figrl.engine.capacity import ClusterMemory
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import read_cluster_config
from figrl.engine.stage import Monitor, Silent
from figrl.errors import ConfigError, system_errors_named
from figrl.store.access import Storage, configured_storage
from figrl.units import kind_of, parse_memory


def check_client(client: object) -> None:
    """Refuse what is no client of Dask, such as the address of a scheduler."""
    if client is None or isinstance(client, distributed.Client):
        return
    shown = f"distributed.Client({client!r})" if isinstance(client, str) else "one made of it"
    raise TypeError(f"client has to be a distributed.Client, not {kind_of(client)}: give {shown}.")


@dataclass(frozen=True)
class Session:
    """A Dask client, a memory limit per worker process, a monitor, and how URLs are reached.

    Without a client, a call takes Dask's current one, or the cluster that ``dask.config`` names,
    or starts a local one.
    """

    client: distributed.Client | None = None
    memory_limit: str | int | None = None
    monitor: Monitor = field(default_factory=Silent)
    storage: Storage = field(default_factory=configured_storage)

    def connected(self) -> distributed.Client:
        """The client, which has to be there."""
        if self.client is None:
            raise ConfigError("There is no Dask client.")
        return self.client

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit per worker process, in bytes."""
        if isinstance(self.memory_limit, str):
            return parse_memory(self.memory_limit)
        return self.memory_limit

    def memory(self, client: distributed.Client) -> ClusterMemory:
        """What the workers offer, within the limit."""
        return cluster_memory(client, self.limit_bytes, self.monitor.note)

    @contextmanager
    def open(self) -> Iterator[distributed.Client]:
        """Yield the session's client, or Dask's current one, or that of a cluster of its own.

        What the operating system refuses meanwhile is raised as an error of figrl.
        """
        client = self.client
        if client is None:
            with suppress(ValueError):
                client = distributed.get_client()
        at_hand = (
            nullcontext(client) if client else connect(read_cluster_config(), self.limit_bytes)
        )
        with system_errors_named(), at_hand as used:
            yield used
