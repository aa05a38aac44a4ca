"""cluster.yaml: where the work runs.

One of three: a local cluster (the default), the address of a running scheduler, or a cluster class
by its import path.
"""

from __future__ import annotations

import os
from typing import Any, Literal

from dask.system import CPU_COUNT
from distributed.comm.addressing import get_address_host_port
from distributed.system import MEMORY_LIMIT
from pydantic import Field, ValidationError, field_validator, model_validator

from figrl.config import Options, describe_problems, read_yaml
from figrl.engine.security import TlsFiles, has_own_certificates
from figrl.errors import ConfigError
from figrl.settings import section
from figrl.store.access import Entries, checked
from figrl.store.places import local_path
from figrl.units import memory_bytes, parse_memory


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


class Wait(Options):
    """For how many workers to wait before a job begins, and for how long at most."""

    workers: int = Field(1, ge=1)
    seconds: float = Field(3600.0, gt=0)


class ClusterConfig(Options):
    """The whole of cluster.yaml; exactly one of local, scheduler and custom is given.

    `security` goes with a scheduler, `wait` with all but a local cluster. `storage` says how URLs
    of edges are reached.
    """

    local: LocalCluster | None = None
    scheduler: str | None = None
    custom: CustomCluster | None = None
    security: TlsFiles | None = None
    wait: Wait | None = None
    storage: Entries = Field(default_factory=dict)

    @field_validator("storage")
    @classmethod
    def _for_places(cls, value: Entries) -> Entries:
        return checked(value)

    @model_validator(mode="before")
    @classmethod
    def _one_section(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value.keys() - {"security", "wait", "storage"}) > 1:
            given = ", ".join(str(key) for key in value if key != "storage")
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

    @model_validator(mode="after")
    def _workers_that_may_come(self) -> ClusterConfig:
        if self.wait is None:
            return self
        if self.kind == "local":
            raise ValueError("wait is for a scheduler or a custom cluster: a local one is started")
        adapt = self.custom.adapt if self.custom is not None else None
        if adapt is not None and adapt.minimum < self.wait.workers:
            raise ValueError(
                f"wait.workers is {self.wait.workers}, but without work the cluster has only "
                f"custom.adapt.minimum: {adapt.minimum}"
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
