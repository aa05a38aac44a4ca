"""``figrl resume``: submit a job again that ended early or was lost with its scheduler.

For example:
  figrl resume --store store                                  the last job that is not done
  figrl resume --store store 20261117-030000-1a2b3c
  figrl resume --store store --cluster cluster.yaml           on another scheduler

It goes on from its finished blocks, with the options that it was submitted with. By default the
cluster file is the one that it was submitted with, too.
"""

from __future__ import annotations

import click

from figrl.engine.cluster import connect
from figrl.engine.submitted import next_lease, unfinished_job
from figrl.store.files import read_json
from figrl.store.layout import store_paths
from figrl_jobs.console import Report
from figrl_jobs.options import job, store_option
from figrl_jobs.submit import running_cluster, start_driver


@job("resume", __doc__)
@click.argument("job", required=False)
@store_option
@click.option("--cluster", type=click.Path(), help="Cluster file; default: the one of the job.")
def command(job: str | None, store: str, cluster: str | None) -> Report:
    """Submit JOB again, by default the last one that is not done."""
    paths = store_paths(store)
    folder = unfinished_job(paths, job)
    facts = read_json(folder / "job.json")
    config = running_cluster(cluster or facts["params"]["cluster"])
    # No lease is taken, and no driver waited for, where no scheduler answers.
    with connect(config) as client:
        start_driver(client, folder, next_lease(folder), config)
    log = str(folder / "log.jsonl")
    return {"store": store, "id": folder.name, "job": facts["job"], "log": log}


@command.render
def _render(report: Report) -> None:
    click.echo(f"Resumed {report['job']} as {report['id']}.")
    click.echo(f"Progress: figrl status --store {report['store']}")
    click.echo(f"Log: {report['log']}")
