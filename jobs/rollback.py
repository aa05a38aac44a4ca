"""``figrl rollback``: publish an earlier run again."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit
from jobs.options import cluster_option, json_option, store_option
from pipeline.serve.publish import roll_back


@click.command(
    "rollback",
    epilog="""
\b
Examples:
  figrl rollback --store store
  figrl rollback --store store 4f1c0ffee123
\b
It takes a moment: nothing is computed. figrl status lists the runs that are kept.
""",
)
@click.argument("run", required=False)
@store_option
@cluster_option
@json_option
def command(run: str | None, store: str, cluster: str | None, as_json: bool) -> None:
    """Publish RUN again; by default the run that was published before the current one."""
    emit(roll_back(store, run), as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    click.echo(f"Published: {report['current']} (before: {report['before'] or 'nothing'})")
