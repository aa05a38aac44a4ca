"""``figrl submit``: run a whole job on a running cluster.

For example:
  figrl submit reindex nightly.yaml --cluster cluster.yaml
  figrl submit embed --store store --dim 64 --cluster cluster.yaml
  figrl status --store store
  figrl cancel --store store 20261117-030000-1a2b3c
  figrl resume --store store          after the scheduler died

The cluster file must name a running scheduler. figrl must be installed on its workers, and they
must see the same files. This command returns immediately. The driver runs as a task; if its worker
dies, it is started on another one and resumes from the finished blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import dask
import distributed

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, read_cluster_config
from figrl.engine.logs import JobLog
from figrl.engine.session import Session
from figrl.engine.submitted import new_job, submitted_state
from figrl.errors import CancelledError, ConfigError, FigrlError, without_secrets
from figrl.nightly.config import read_reindex_config
from figrl.nightly.reindex import tell_failure
from figrl.store.access import Storage, configured_storage
from figrl.store.files import read_json, write_json
from figrl.store.jobs import record_failure
from figrl.store.layout import store_paths
from figrl.store.lock import process_name
from figrl.store.places import local_path, remote_url
from figrl_jobs.console import Report
from figrl_jobs.options import job

_JOBS = ("ingest", "embed", "fold-in", "export", "cluster", "holes", "reindex")
_PATHS = ("store", "out", "config", "edges", "cluster")
_RETRIES = 3


@job("submit", __doc__, ignore_unknown_options=True, allow_interspersed_args=False)
@click.argument("job", type=click.Choice(_JOBS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, job: str, arguments: tuple[str, ...]) -> Report:
    """Run JOB with its ARGUMENTS on a running Dask cluster."""
    called = import_module(f"figrl_jobs.{job.replace('-', '_')}").command
    params = called.make_context(f"figrl {job}", list(arguments)).params
    config = running_cluster(params["cluster"])
    params = {name: _absolute(name, value) for name, value in params.items()}
    if "store" in params and params["store"] is None:
        raise click.UsageError("submit needs --store: the state and the log of the job lie there.")
    store = params.get("store") or _store_of(params["config"])
    # Of whoever submits, not of the worker.
    settings = _without_storage(dask.config.get("figrl", None) or {})
    with _told_of(job, store, params), connect(config) as client:
        folder = new_job(store_paths(store), job, params, settings, str(config.scheduler))
        start_driver(client, folder, 1, config)
    context.params["as_json"] |= params["as_json"]
    return {"store": str(store), "id": folder.name, "job": job, "log": str(folder / "log.jsonl")}


def running_cluster(file: str | None) -> ClusterConfig:
    """Read a cluster file, which has to name a scheduler."""
    config = read_cluster_config(file)
    if config.kind != "scheduler":
        raise ConfigError(
            "submit needs a cluster that keeps running: name its scheduler in the cluster file, "
            "such as scheduler: tcp://127.0.0.1:8786, and give that file with --cluster."
        )
    return config


@contextmanager
def _told_of(job: str, store: str | Path, params: dict[str, Any]) -> Iterator[None]:
    """Record a job that cannot be submitted among those that failed; none waits for a driver."""
    try:
        yield
    except BaseException as error:
        if job == "reindex":
            tell_failure(str(store), read_reindex_config(params["config"]).metrics, error)
        elif store_paths(store).graphs.exists():
            record_failure(store_paths(store).root, job, error)
        raise


def start_driver(
    client: distributed.Client, folder: Path, lease: int, config: ClusterConfig
) -> None:
    """Submit the driver of a job, and leave it with the cluster.

    How URLs are reached may be secret: it goes with the task, and is in no record of the job.
    """
    key = f"figrl-{folder.name}-{lease}"
    storage = Storage.of(config.storage).over(configured_storage())
    future = client.submit(
        run_submitted, folder, lease, storage, key=key, retries=_RETRIES, pure=False
    )
    distributed.fire_and_forget(future)


def run_submitted(folder: Path, lease: int, storage: Storage) -> str:
    """Run a job as a task of the cluster; other tasks may use its thread meanwhile."""
    facts = read_json(folder / "job.json")
    job, params = facts["job"], {name: _as_given(value) for name, value in facts["params"].items()}
    command = import_module(f"figrl_jobs.{job.replace('-', '_')}").command
    with (
        dask.config.set({"figrl": facts["settings"]}),
        distributed.worker_client() as client,
        submitted_state(folder, lease) as monitor,
    ):
        log = JobLog(folder / "log.jsonl", monitor)
        log.event("started", process=process_name())
        try:
            monitor.check_cancelled()
            with click.Context(command, obj=Session(client, monitor=log, storage=storage)):
                write_json(folder / "report.json", command.call(params))
            log.event("done")
        except CancelledError as error:
            log.event("cancelled", error=error.message, exit_code=error.exit_code)
            raise
        except FigrlError as error:
            log.event("failed", error=error.message, exit_code=error.exit_code)
            raise
    return folder.name


def _as_given(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value


def _absolute(name: str, value: Any) -> Any:
    """Make paths absolute: a worker runs in another folder."""
    if name not in _PATHS or value is None:
        return value
    if isinstance(value, tuple):
        return tuple(_recorded_url(path) or str(local_path(path).absolute()) for path in value)
    return str(local_path(value).absolute())


def _recorded_url(given: str) -> str | None:
    """A URL of edges, which the record of the job shall have; None for a path."""
    url = remote_url(given)
    if url is not None and without_secrets(url) != url:
        raise ConfigError(
            f"{url}: its password or signature would be written to the record of the job. Give the "
            "URL without it, and credentials under storage in the cluster file or dask.config."
        )
    return url


def _without_storage(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without credentials."""
    kept = {key: value for key, value in settings.items() if key != "storage"}
    for key in kept.keys() & {"cluster"}:
        if isinstance(kept[key], dict):
            kept[key] = {name: value for name, value in kept[key].items() if name != "storage"}
    return kept


def _store_of(config: str | None) -> str:
    if config is None:
        raise click.UsageError("Give a CONFIG file.")
    return read_reindex_config(config).store


@command.render
def _render(report: Report) -> None:
    click.echo(f"Submitted {report['job']} as {report['id']}.")
    click.echo(f"Progress: figrl status --store {report['store']}")
    click.echo(f"Log: {report['log']}")
