"""``figrl pin``: keep a run for good."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit
from jobs.options import cluster_option, json_option, store_option
from pipeline.serve.publish import pin


@click.command(
    "pin",
    epilog="""
\b
Examples:
  figrl pin --store store 4f1c0ffee123
  figrl pin --store store 4f1c0ffee123 --remove
""",
)
@click.argument("run")
@store_option
@click.option("--remove", is_flag=True, help="Let the run be deleted again when its time comes.")
@cluster_option
@json_option
def command(run: str, store: str, remove: bool, cluster: str | None, as_json: bool) -> None:
    """Keep RUN from being deleted by re-indexing."""
    emit(pin(store, run, pinned=not remove), as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    click.echo(f"Run {report['run']} is {'pinned' if report['pinned'] else 'not pinned'}.")
