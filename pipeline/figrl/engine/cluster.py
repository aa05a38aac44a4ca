"""cluster.yaml: where the work runs.

One of three: a local cluster (the default), the address of a running scheduler, or a cluster class
by its import path. Nobody else on the machine can use a local cluster: its connections need
certificates that are made for the run and that only its processes have.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import dask
import distributed
from dask.system import CPU_COUNT
from distributed.comm.addressing import get_address_host_port
from distributed.deploy.cluster import Cluster
from distributed.security import Security
from distributed.system import MEMORY_LIMIT
from pydantic import Field, ValidationError, field_validator, model_validator

from figrl.config import Options, describe_problems, read_yaml
from figrl.engine.security import TlsFiles, has_own_certificates, http_routes, private_folder
from figrl.errors import ConfigError, ResourceError
from figrl.settings import section
from figrl.store.places import local_path
from figrl.units import human_bytes, memory_bytes, parse_memory

_WORKER_WAIT_SECONDS = 60.0
_CONNECT_TRIES = 5


class LocalCluster(Options):
    """Worker processes on this machine, bound to loopback and closed to other users."""

    workers: int | None = Field(None, ge=1)
    threads_per_worker: int | None = Field(None, ge=1)
    memory_limit: str | None = None
    dashboard_address: str | None = None

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        if value is not None:
            memory_bytes(value)
        return value

    def shape(self) -> tuple[int, int]:
        """Processes and threads of each; by default one process for every four cores."""
        cores = CPU_COUNT
        workers = self.workers or max(1, cores // 4)
        return workers, self.threads_per_worker or max(1, cores // workers)

    def limit_bytes(self, limit_bytes: int | None) -> int:
        """Memory of each process; no more than the machine has, which is what Dask grants."""
        if limit_bytes is None and self.memory_limit is not None:
            limit_bytes = parse_memory(self.memory_limit)
        return min(limit_bytes or int(MEMORY_LIMIT // self.shape()[0]), int(MEMORY_LIMIT))


class Adapt(Options):
    """Let the cluster grow and shrink between two sizes."""

    minimum: int = Field(1, ge=0)
    maximum: int = Field(ge=1)


class CustomCluster(Options):
    """A subclass of Dask's Cluster, such as those of dask-jobqueue or dask-kubernetes."""

    class_path: str = Field(alias="class")
    arguments: dict[str, Any] = Field(default_factory=dict)
    scale: int | None = Field(None, ge=1)
    adapt: Adapt | None = None


class ClusterConfig(Options):
    """The whole of cluster.yaml; exactly one section is given, and `security` with a scheduler."""

    local: LocalCluster | None = None
    scheduler: str | None = None
    custom: CustomCluster | None = None
    security: TlsFiles | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_section(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value.keys() - {"security"}) > 1:
            given = ", ".join(str(key) for key in value)
            raise ValueError(f"give exactly one of local, scheduler or custom; it has {given}")
        return value

    @model_validator(mode="after")
    def _certificates_where_they_are_used(self) -> ClusterConfig:
        encrypted = self.scheduler is not None and self.scheduler.startswith("tls://")
        if self.security is not None and not encrypted:
            raise ValueError("security is for a scheduler with an address tls://HOST:PORT")
        if encrypted and self.security is None and not has_own_certificates():
            raise ValueError(
                f"{self.scheduler} needs certificates: add security with ca_file, cert and key"
            )
        return self

    @field_validator("scheduler", "custom", mode="before")
    @classmethod
    def _is_given(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("nothing is given; leave the section out for a local cluster")
        return value

    @field_validator("scheduler")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            get_address_host_port(value)
        except ValueError as error:
            raise ValueError(f"{error}; write for example tcp://127.0.0.1:8786") from error
        return value

    @property
    def kind(self) -> Literal["local", "scheduler", "custom"]:
        """Which of the three it is."""
        if self.scheduler is not None:
            return "scheduler"
        return "custom" if self.custom is not None else "local"


def read_cluster_config(file: str | os.PathLike[str] | None = None) -> ClusterConfig:
    """Read the cluster file that somebody named.

    Without one, the section ``figrl.cluster`` of ``dask.config`` counts, and without that it is a
    local cluster. A ``cluster.yaml`` that merely lies in the working folder is not read: it could
    run any code.
    """
    if file is None:
        return _configured_cluster()
    path = local_path(file)
    hint = "Give one of the sections local, scheduler or custom."
    config = read_yaml(path, ClusterConfig, what="The cluster file", hint=hint)
    if config.security is None:
        return config
    files = config.security.relative_to(path.absolute().parent)
    return config.model_copy(update={"security": files})


def _configured_cluster() -> ClusterConfig:
    """The cluster of ``dask.config``; relative paths start at the working folder."""
    try:
        return ClusterConfig.model_validate(section("cluster", ClusterConfig))
    except ValidationError as error:
        where = "figrl.cluster"
        problems = describe_problems(error, ClusterConfig, where) or [f"{where}: {_reason(error)}"]
        raise ConfigError(f"dask.config: {'; '.join(problems)}.") from error


def _reason(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


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
    offers = client.run(_offer, on_error="ignore")
    if not offers:
        raise ResourceError(
            "The Dask cluster has no worker that answers. Start one, with figrl installed where it "
            "runs, and try again."
        )
    threads = max(threads for threads, _ in offers.values())
    memory = min(memory for _, memory in offers.values())
    return ClusterMemory(len(offers), threads, min(memory, limit_bytes or memory))


def _offer(dask_worker: distributed.Worker) -> tuple[int, int]:
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


@contextmanager
def connect(config: ClusterConfig, limit_bytes: int | None = None) -> Iterator[distributed.Client]:
    """Start or reach the cluster, and leave it as it was found.

    `limit_bytes` replaces the memory limit of a local cluster's processes.
    """
    target: AbstractContextManager[Any] = nullcontext(config.scheduler)
    if config.custom is not None:
        target = _custom_cluster(config.custom)
    elif config.scheduler is None:
        target = _local_cluster(config.local or LocalCluster(), limit_bytes)
    security = config.security.load() if config.security is not None else None
    with target as cluster:
        try:
            client = _client(cluster, security)
        except (OSError, TimeoutError, ValueError) as error:
            raise ResourceError(
                f"No Dask scheduler answers at {cluster} ({error}). Start it, or correct the "
                "address or the certificates in the cluster file."
            ) from error
        with client:
            yield client


def _client(cluster: Any, security: Security | None) -> distributed.Client:
    for _ in range(_CONNECT_TRIES - 1):
        # The scheduler's answer may come together with news for all clients, which Dask's client
        # takes for an error of its own.
        with suppress(AssertionError):
            return distributed.Client(cluster, set_as_default=False, security=security)
    return distributed.Client(cluster, set_as_default=False, security=security)


@contextmanager
def _local_cluster(local: LocalCluster, limit_bytes: int | None) -> Iterator[Any]:
    workers, threads = local.shape()
    pages = local.dashboard_address is not None
    with dask.config.set(http_routes(pages=pages)):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=local.limit_bytes(limit_bytes),
            processes=True,
            host="127.0.0.1",
            # In memory; a worker gets them through the pipe by which it is started.
            security=Security.temporary(),
            local_directory=str(private_folder()),
            dashboard_address=local.dashboard_address or "127.0.0.1:0",
            scheduler_kwargs={"dashboard": pages},
            worker_dashboard_address=None,
            preload=_preloads(),
            # The error of a block comes back to the job; there is no need to hear of it twice.
            silence_logs=logging.CRITICAL,
        )
    # A worker that dies is started again, but Dask dismisses it for good if it happens to be away
    # at one moment, 15 s after a death: with the last one dismissed, a job would wait for ever.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "365 days"}), cluster:
        yield cluster


def _preloads() -> list[str]:
    """What workers load first: figrl's own, and what the user's configuration of Dask asks for."""
    asked = dask.config.get("distributed.worker.preload")
    return ["figrl.engine.uninterrupted", *([asked] if isinstance(asked, str) else asked)]


@contextmanager
def _custom_cluster(custom: CustomCluster) -> Iterator[Any]:
    kind = _cluster_class(custom.class_path)
    try:
        cluster = kind(**custom.arguments)
    except Exception as error:
        # Every class has its own way to refuse, and Dask wraps the reason.
        reason = error.__cause__ or error
        raise ConfigError(
            f"{custom.class_path} does not start with these custom.arguments: {reason}."
        ) from error
    with cluster:
        if custom.adapt is not None:
            cluster.adapt(minimum=custom.adapt.minimum, maximum=custom.adapt.maximum)
        elif custom.scale is not None:
            cluster.scale(custom.scale)
        yield cluster


def _cluster_class(class_path: str) -> type[Any]:
    """Import a cluster class; anything else is an error, and is not called."""
    module, _, name = class_path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"custom.class: '{class_path}' cannot be imported ({error}). Give the import "
            "path of a cluster class, such as dask_jobqueue.SLURMCluster, and install its package."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Cluster)):
        raise ConfigError(
            f"custom.class: '{class_path}' is not a Dask cluster class: give a subclass of "
            "distributed.deploy.Cluster, such as dask_jobqueue.SLURMCluster."
        )
    return found
