"""``figrl holes``: the nodes that connect clusters.

For example:
  figrl holes --store store -n 10
  figrl holes --store store -n 42 --clusters 1000 --runs 10000

Structural holes are nodes between clusters: information passes from one to another through them.
Nodes are clustered by k-means of their vectors and ranked by the paper's relative deviation score:
how strongly another cluster pulls a node away from its own. --runs also simulates how far
information spreads that starts at a hole and a tenth of its cluster: SHII is the number of nodes
reached in other clusters per node reached in its own, under the linear threshold model (LT) and
the independent cascade model (IC).
"""

from __future__ import annotations

from typing import Any

import click

from figrl.analyze.holes import HoleOptions, run_holes
from figrl_jobs.console import Cell, Report, finish, print_facts, print_table
from figrl_jobs.options import Connection, config_options, job, running_options, store_option


@job("holes", __doc__)
@store_option
@click.option("-n", "count", type=int, default=10, show_default=True, help="Number of holes.")
@config_options(HoleOptions)
@click.option("--run", help="Run whose vectors are used; default: the current one.")
@running_options
def command(store: str, connection: Connection, **options: Any) -> Report:
    """Find the nodes between clusters and how far they reach."""
    with connection as session:
        return run_holes(store, session, **options)


@command.render
def _render(report: Report) -> None:
    columns: list[tuple[str, Cell]] = [
        ("rank", "{rank}"),
        ("id", "{id}"),
        *([("side", "{side}")] if any("side" in hole for hole in report["holes"]) else []),
        ("score", "{score:.4g}"),
        ("cluster", "{cluster}"),
        ("drawn to", "{toward}"),
    ]
    if report["runs"]:
        columns += [("SHII, LT", "{shii_lt:.4g}"), ("SHII, IC", "{shii_ic:.4g}")]
    print_table(report["holes"], columns, left=["id", "side"])
    facts: dict[str, Cell] = {
        "run": "{run}",
        "clusters": "{clusters:,} by {clustered_by}, modularity {modularity:.3f}",
        "simulated": "{runs:,} times each" if report["runs"] else "no (--runs)",
    }
    print_facts(report, facts)
    finish()
