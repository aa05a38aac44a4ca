"""``figrl submit``: hand a whole job to a running cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click
import distributed

from jobs.console import emit
from jobs.hosted import host_job
from jobs.options import json_option
from pipeline.cluster import connect, read_cluster_config
from pipeline.errors import ConfigError
from pipeline.hosting import new_job
from pipeline.nightly_config import read_reindex_config
from pipeline.store import store_paths

_JOBS = ("ingest", "embed", "fold-in", "export", "cluster", "holes", "reindex")
_PATHS = ("store", "out", "config", "edges")
_TRIES_AFTER_ERRORS = 3


@click.command(
    "submit",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""
\b
Examples:
  figrl submit reindex nightly.yaml --cluster cluster.yaml
  figrl submit embed --store store --dim 64 --cluster cluster.yaml
  figrl status --store store
  figrl cancel --store store 20261117-030000-1a2b3c
\b
The cluster file has to name a scheduler that runs; figrl has to be installed where its workers run,
and they have to see the same files. This command ends at once. The driver runs as a task; if its
worker dies, it starts again on another one and goes on from what was done.
""",
)
@click.argument("job", type=click.Choice(_JOBS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@json_option
def command(job: str, arguments: tuple[str, ...], as_json: bool) -> None:
    """Hand JOB with its ARGUMENTS to a running Dask cluster, and leave."""
    called = import_module(f"jobs.{job.replace('-', '_')}").command
    params = called.make_context(f"figrl {job}", list(arguments)).params
    config = read_cluster_config(params["cluster"])
    if config.kind != "scheduler":
        raise ConfigError(
            "submit needs a cluster that goes on running: name its scheduler in the cluster file, "
            "such as scheduler: tcp://127.0.0.1:8786, and give that file with --cluster."
        )
    params = {name: _absolute(name, value) for name, value in params.items()}
    store = params.get("store") or _store_of(params["config"])
    folder = new_job(store_paths(store), job, params, str(config.scheduler))
    with connect(config) as client:
        future = client.submit(
            host_job,
            folder,
            job,
            params,
            key=f"figrl-{folder.name}",
            retries=_TRIES_AFTER_ERRORS,
            pure=False,
        )
        distributed.fire_and_forget(future)
    report = {"store": str(store), "id": folder.name, "job": job, "log": str(folder / "log.jsonl")}
    emit(report, as_json=as_json or params["as_json"], render=_render)


def _absolute(name: str, value: Any) -> Any:
    """Paths as a worker can find them, whatever folder it runs in."""
    if name not in _PATHS or value is None:
        return value
    if isinstance(value, tuple):
        return tuple(str(Path(path).absolute()) for path in value)
    return str(Path(value).absolute())


def _store_of(config: str | None) -> str:
    if config is None:
        raise click.UsageError("Give a CONFIG file.")
    return read_reindex_config(config).store


def _render(report: dict[str, Any]) -> None:
    click.echo(f"Submitted {report['job']} as {report['id']}.")
    click.echo(f"See how it goes: figrl status --store {report['store']}")
    click.echo(f"Its log: {report['log']}")
