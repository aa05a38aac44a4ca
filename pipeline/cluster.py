"""cluster.yaml: where the work runs.

One of three: a local cluster (the default), the address of a running scheduler, or any cluster
class by its import path.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import dask
import distributed
import yaml
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed.comm.addressing import get_address_host_port
from distributed.system import MEMORY_LIMIT
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.errors import ConfigError, ResourceError
from pipeline.run import ClusterMemory, cluster_memory


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalCluster(_Section):
    """Worker processes on this machine, bound to loopback."""

    workers: int | None = Field(None, ge=1)
    threads_per_worker: int | None = Field(None, ge=1)
    memory_limit: str | None = None
    dashboard_address: str = "127.0.0.1:0"

    @field_validator("memory_limit")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        if value is not None:
            _bytes_of(value)
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


class Adapt(_Section):
    """Let the cluster grow and shrink between two sizes."""

    minimum: int = Field(1, ge=0)
    maximum: int = Field(ge=1)


class CustomCluster(_Section):
    """Any cluster class, such as those of dask-jobqueue or dask-kubernetes."""

    class_path: str = Field(alias="class")
    arguments: dict[str, Any] = Field(default_factory=dict)
    scale: int | None = Field(None, ge=1)
    adapt: Adapt | None = None


class ClusterConfig(_Section):
    """The whole of cluster.yaml; exactly one section is given."""

    local: LocalCluster | None = None
    scheduler: str | None = None
    custom: CustomCluster | None = None

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


def parse_memory(text: str) -> int:
    """Bytes of a size such as ``2GB`` or ``512MiB``."""
    try:
        return _bytes_of(text)
    except ValueError as error:
        raise ConfigError(f"The memory limit is wrong: {error}.") from error


def _bytes_of(text: str) -> int:
    try:
        size = int(parse_bytes(text))
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"'{text}' is not a size of memory; write for example 2GB, 512MB or 4GiB"
        ) from error
    if size <= 0:
        raise ValueError(f"'{text}' is too small; write for example 2GB")
    return size


def read_cluster_config(file: str | os.PathLike[str] | None = None) -> ClusterConfig:
    """Read a cluster file; without one, ``cluster.yaml`` of this folder or a local cluster."""
    path = Path(file) if file is not None else Path("cluster.yaml")
    if file is None and not path.exists():
        return ClusterConfig()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"The cluster file {path} cannot be read: {error}.") from error
    known = "local, scheduler or custom"
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it has to hold one of the sections {known}.")
    if len(content) > 1:
        given = ", ".join(str(key) for key in content)
        raise ConfigError(f"{path}: give exactly one of {known}; it has {given}.")
    try:
        return ClusterConfig.model_validate(content)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            place = ".".join(str(part) for part in problem["loc"])
            reason = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{place}: {reason}")
        raise ConfigError(f"{path}: {'; '.join(problems)}. Known sections: {known}.") from error


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

    Parameters
    ----------
    config : ClusterConfig
    limit_bytes : int, optional
        Memory limit of each worker process of a local cluster, in place of the file's.
    """
    if config.kind == "scheduler":
        with _client(str(config.scheduler)) as client:
            yield client
    elif config.custom is not None:
        with _custom_cluster(config.custom) as cluster, _client(cluster) as client:
            yield client
    else:
        local = config.local or LocalCluster()
        with _local_cluster(local, limit_bytes) as cluster, _client(cluster) as client:
            yield client


@contextmanager
def _client(target: Any) -> Iterator[distributed.Client]:
    try:
        client = distributed.Client(target, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ResourceError(
            f"No Dask scheduler answers at {target} ({error}). Start it, or correct the address in "
            "the cluster file."
        ) from error
    with client:
        yield client


@contextmanager
def _local_cluster(local: LocalCluster, limit_bytes: int | None) -> Iterator[Any]:
    workers, threads = local.shape()
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        memory_limit=local.limit_bytes(limit_bytes),
        processes=True,
        host="127.0.0.1",
        dashboard_address=local.dashboard_address,
        worker_dashboard_address=None,
        # The error of a block comes back to the job; there is no need to hear of it twice.
        silence_logs=logging.CRITICAL,
    )
    # A worker that dies is started again, but Dask dismisses it for good if it happens to be away
    # at one moment, 15 s after a death: with the last one dismissed, a job would wait for ever.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "365 days"}), cluster:
        yield cluster


@contextmanager
def _custom_cluster(custom: CustomCluster) -> Iterator[Any]:
    module, _, name = custom.class_path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"custom.class: '{custom.class_path}' cannot be imported ({error}). Give the import "
            "path of a cluster class, such as dask_jobqueue.SLURMCluster, and install its package."
        ) from error
    try:
        cluster = kind(**custom.arguments)
    except Exception as error:
        # Every class has its own way to refuse, and Dask wraps the reason.
        reason = error.__cause__ or error
        raise ConfigError(
            f"{custom.class_path} does not start with these custom.arguments: {reason}."
        ) from error
    if not hasattr(cluster, "scheduler_address"):
        raise ConfigError(f"custom.class: '{custom.class_path}' is not a Dask cluster class.")
    with cluster:
        if custom.adapt is not None:
            cluster.adapt(minimum=custom.adapt.minimum, maximum=custom.adapt.maximum)
        elif custom.scale is not None:
            cluster.scale(custom.scale)
        yield cluster


@contextmanager
def client_at_hand(
    client: distributed.Client | None, limit_bytes: int | None
) -> Iterator[distributed.Client]:
    """Give the client that was given, or Dask's current one, or one of a new local cluster."""
    if client is None:
        with suppress(ValueError):
            client = distributed.get_client()
    if client is not None:
        yield client
        return
    with connect(read_cluster_config(), limit_bytes) as started:
        yield started


def scheduler_address(config: ClusterConfig) -> str:
    """Say where the work runs, for a person."""
    if config.kind == "scheduler":
        return f"the scheduler at {config.scheduler}"
    if config.custom is not None:
        return f"a cluster of {config.custom.class_path}"
    return "a local cluster"
