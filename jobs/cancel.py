"""``figrl cancel``: end a job that was submitted."""

from __future__ import annotations

import time
from typing import Any

import click

from jobs.console import emit
from jobs.options import cluster_option, json_option, store_option
from pipeline.hosting import ENDED, ask_to_cancel, read_state
from pipeline.store import store_paths


@click.command(
    "cancel",
    epilog="""
\b
Example:
  figrl cancel --store store 20261117-030000-1a2b3c
\b
The job ends before its next block; what is finished is kept. It can be asked for from any machine
that sees the store.
""",
)
@click.argument("job")
@store_option
@click.option("--wait", default=30.0, show_default=True, help="Seconds to wait for its end.")
@cluster_option
@json_option
def command(job: str, store: str, wait: float, cluster: str | None, as_json: bool) -> None:
    """End the submitted job JOB; figrl status lists them."""
    folder = ask_to_cancel(store_paths(store), job)
    deadline = time.monotonic() + wait
    while read_state(folder).get("state") not in ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
    report = {"store": store, "id": job, **read_state(folder)}
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if report.get("state") in ENDED:
        click.echo(f"Job {report['id']}: {report['state']}.")
    else:
        click.echo(f"Job {report['id']} was asked to end, and will before its next block.")
