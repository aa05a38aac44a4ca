"""``figrl rollback``: publish an earlier run again.

For example:
  figrl rollback --store store
  figrl rollback --store store 4f1c0ffee123

This is immediate: nothing is computed. 'figrl status' lists the runs that are kept.
"""

from __future__ import annotations

import click

from figrl.serve.publish import roll_back
from figrl_jobs.console import Report
from figrl_jobs.options import job, store_option


@job("rollback", __doc__)
@click.argument("run", required=False)
@store_option
def command(run: str | None, store: str) -> Report:
    """Publish RUN again, by default the one before the current."""
    return roll_back(store, run)


@command.render
def _render(report: Report) -> None:
    click.echo(f"Rolled back to {report['current']} (before: {report['before'] or 'nothing'})")
    if report["refused_by"] is not None:
        gates = ", ".join(report["refused_by"]) or "a gate"
        click.echo(
            f"note: {report['current']} was refused by {gates}; it is published all the same."
        )
