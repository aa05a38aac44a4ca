"""``figrl pin``: keep a run for good.

For example:
  figrl pin --store store 4f1c0ffee123
  figrl pin --store store 4f1c0ffee123 --remove
"""

from __future__ import annotations

import click

from figrl.serve.publish import pin
from figrl_jobs.console import Report
from figrl_jobs.options import job, store_option


@job("pin", __doc__)
@click.argument("run")
@store_option
@click.option("--remove", is_flag=True, help="Unpin the run: re-indexing may delete it again.")
def command(run: str, store: str, remove: bool) -> Report:
    """Keep RUN from being deleted by re-indexing."""
    return pin(store, run, pinned=not remove)


@command.render
def _render(report: Report) -> None:
    click.echo(f"Run {report['run']} is {'pinned' if report['pinned'] else 'not pinned'}.")
