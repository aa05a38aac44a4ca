"""``figrl cancel``: end a job that was submitted.

For example:
  figrl cancel --store store 20261117-030000-1a2b3c

The job ends before its next block; finished blocks are kept. The command works on any machine that
sees the store.
"""

from __future__ import annotations

import time

import click

from figrl.engine.submitted import ENDED, ask_to_cancel, read_state
from figrl.store.layout import store_paths
from figrl_jobs.console import Report
from figrl_jobs.options import job, store_option


@job("cancel", __doc__)
@click.argument("job")
@store_option
@click.option("--wait", default=30.0, show_default=True, help="Seconds to wait for the job to end.")
def command(job: str, store: str, wait: float) -> Report:
    """End the submitted job JOB; figrl status lists them."""
    folder = ask_to_cancel(store_paths(store), job)
    deadline = time.monotonic() + wait
    while read_state(folder).get("state") not in ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
    return {"store": store, "id": job, **read_state(folder)}


@command.render
def _render(report: Report) -> None:
    if report.get("state") in ENDED:
        click.echo(f"Job {report['id']}: {report['state']}.")
    else:
        click.echo(f"Job {report['id']} will end before its next block.")
