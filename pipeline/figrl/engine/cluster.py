"""Starts or reaches the cluster of a cluster file.

Nobody else on the machine can use a local cluster: its connections need certificates that are made
for the run and that only its processes have.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing import spawn
from typing import Any
from unittest.mock import patch

import dask
import distributed
from distributed.deploy.cluster import Cluster
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from figrl.engine.cluster_file import ClusterConfig, CustomCluster, LocalCluster, Wait
from figrl.engine.security import http_routes, private_folder
from figrl.errors import ConfigError, ResourceError, system_error
from figrl.units import human_bytes, human_seconds

_CONNECT_TRIES = 5

_LEAST_BYTES = 150_000_000
"""Memory of a worker process that has loaded what it needs; with less it dies again and again."""


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
    with _quiet(), target as cluster:
        try:
            client = _client(cluster, security)
        except (OSError, TimeoutError, ValueError) as error:
            raise ResourceError(
                f"No Dask scheduler answers at {cluster} ({error}). Start it, or correct the "
                "address or the certificates in the cluster file."
            ) from error
        with client:
            if config.wait is not None:
                _wait_for_workers(client, config.wait)
            yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging, with tracebacks, that a cluster went away: the job says so itself."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _wait_for_workers(client: distributed.Client, wait: Wait) -> None:
    """Wait in the queue of a cluster, not for ever."""
    try:
        client.wait_for_workers(wait.workers, timeout=wait.seconds)
    except TimeoutError as error:
        raise ResourceError(
            f"The Dask cluster had {len(client.nthreads())} of {wait.workers} workers after "
            f"{human_seconds(wait.seconds)}. Start some and run the same command again, or "
            "correct wait in the cluster file."
        ) from error


def _client(cluster: Any, security: Security | None) -> distributed.Client:
    with warnings.catch_warnings():
        # Workers are looked at before they get work, and told of in one line.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        return _connected(cluster, security)


def _connected(cluster: Any, security: Security | None) -> distributed.Client:
    for _ in range(_CONNECT_TRIES - 1):
        # The scheduler's answer may come together with news for all clients, which Dask's client
        # takes for an error of its own.
        with suppress(AssertionError):
            return distributed.Client(cluster, set_as_default=False, security=security)
    return distributed.Client(cluster, set_as_default=False, security=security)


@contextmanager
def _local_cluster(local: LocalCluster, limit_bytes: int | None) -> Iterator[Any]:
    workers, threads = local.shape()
    memory = local.limit_bytes(limit_bytes)
    if memory < _LEAST_BYTES:
        raise ResourceError(
            f"A worker process takes {human_bytes(_LEAST_BYTES)} by itself, and its limit is "
            f"{human_bytes(memory)}. Raise --memory-limit, or use fewer workers."
        )
    pages = local.dashboard_address is not None
    with _main_module_left_alone(), dask.config.set(http_routes(pages=pages)), _starting():
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=memory,
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
    forever = {"distributed.deploy.lost-worker-timeout": "365 days"}
    with _main_module_left_alone(), dask.config.set(forever), cluster:
        yield cluster


@contextmanager
def _starting() -> Iterator[None]:
    """Say why processes do not start: Dask's own words for it are that they do not."""
    try:
        yield
    except (OSError, RuntimeError, TimeoutError) as error:
        known = system_error(error)
        if known is not None:
            raise known from error
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(f"{type(cause).__name__}: {cause}".split()).rstrip(".: ")
        raise ResourceError(
            f"The workers of the local cluster do not start ({reason}). Correct that, or use fewer "
            "workers, with more memory and open files for each of them; finished blocks are kept."
        ) from error


@contextmanager
def _main_module_left_alone() -> Iterator[None]:
    """Keep worker processes from importing the script that starts them.

    It would begin the job again in each of them, unless it has a guard for its main module, which
    scripts of a few lines do not have. Workers need nothing of it: Dask sends functions that are
    defined there by value.
    """
    original = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        prepared = original(name)
        return {key: prepared[key] for key in prepared if not key.startswith("init_main")}

    with patch.object(spawn, "get_preparation_data", without_main):
        yield


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
        cause = error.__cause__ or error
        reason = str(cause) or type(cause).__name__
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
