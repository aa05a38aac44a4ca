"""``figrl verify``: check every file of a store, and recompute what is damaged.

For example:
  figrl verify --store store
  figrl verify --store store --repair

Exit code 3 if anything is damaged and was not repaired. Repairing recomputes the damaged files and
no others, from the stored graph, or from the edge files if these are unchanged; the result has the
same bytes.
"""

from __future__ import annotations

import click

from figrl.errors import DamagedError
from figrl.serve.repair import run_repair
from figrl.serve.verify import verify
from figrl.store.layout import store_paths
from figrl.units import counted
from figrl_jobs.console import Report
from figrl_jobs.options import Connection, job, running_options, store_option


@job("verify", __doc__)
@store_option
@click.option("--repair", is_flag=True, help="Recompute what is damaged.")
@running_options
def command(store: str, repair: bool, connection: Connection) -> Report:
    """Check every file of a store and name what is damaged."""
    report = verify(store)
    if repair and report["damaged"]:
        with connection as session:
            report = run_repair(store_paths(store), session)
    if report["damaged"]:
        _render(report)
        raise DamagedError(_summary(report))
    return report


def _summary(report: Report) -> str:
    names = sorted({finding["what"] for finding in report["damaged"]})
    remedy = (
        "These could not be repaired; see above."
        if "repaired" in report
        else f"Recompute what is damaged: figrl verify --store {report['store']} --repair"
    )
    return f"damaged: {counted(len(report['damaged']), 'file')} of {', '.join(names)}. {remedy}"


@command.render
def _render(report: Report) -> None:
    for finding in report.get("repaired", []):
        click.echo(f"repaired: {finding['file']}")
    for finding in report["damaged"]:
        click.echo(f"{finding['what']}: {finding['problem']} ({finding['file']})", err=True)
        if "cannot" in finding:
            click.echo(f"  not repaired: {finding['cannot']}", err=True)
    if not report["damaged"]:
        click.echo(
            f"{report['store']}: {counted(report['graphs'], 'graph')} and "
            f"{counted(report['runs'], 'run')} are whole."
        )
