"""``figrl holes``: the nodes that hold clusters together."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rich.text import Text

from jobs.console import emit, facts, table_console
from jobs.options import running_options, session, store_option
from pipeline.measure import human_seconds
from pipeline.study.hole_calls import run_holes


@click.command(
    "holes",
    epilog="""
\b
Examples:
  figrl holes --store store -n 10
  figrl holes --store store -n 42 --clusters 1000 --runs 10000
\b
Structural holes are nodes between clusters: what passes from one to another passes through them.
Nodes are clustered by k-means of their vectors and ranked by the paper's relative deviation score:
how strongly another cluster draws a node away from its own. --runs also simulates how far news
that begins at a hole and at a tenth of its cluster goes: SHII is the number of nodes reached in
other clusters for each one reached in its own, under the linear threshold model (LT) and the
independent cascade model (IC).
""",
)
@store_option
@click.option("-n", "count", type=int, default=10, show_default=True, help="Holes that are wanted.")
@click.option(
    "--clusters", type=int, help="Clusters of k-means; default: 100, or a tenth of the nodes."
)
@click.option("--run", help="Run whose vectors are used; default: the current one.")
@click.option(
    "--runs",
    type=int,
    default=0,
    show_default=True,
    help="Simulations of each hole's influence; the paper has 10,000.",
)
@click.option(
    "--probability",
    type=float,
    default=0.1,
    show_default=True,
    help="Of the independent cascade model: that an edge passes something on.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of k-means and simulations.")
@running_options
def command(
    store: str,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> None:
    """Find the nodes that bridge clusters, and how far their influence goes."""
    with session(cluster, memory_limit) as running:
        report = run_holes(store, running, **options)
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    simulated = ["SHII, LT", "SHII, IC"] if report["runs"] else []
    for column in ("rank", "id", "score", "cluster", "drawn to", *simulated):
        table.add_column(column, justify="left" if column == "id" else "right")
    for hole in report["holes"]:
        # As text: what stands between brackets in an id is not for rich to read.
        name = Text(str(hole["id"]))
        row = [f"{hole['score']:.4g}", str(hole["cluster"]), str(hole["toward"])]
        row += [f"{hole[model]:.4g}" for model in ("shii_lt", "shii_ic") if report["runs"]]
        table.add_row(str(hole["rank"]), name, *row)
    table_console().print(table)
    facts(
        {
            "run": report["run"],
            "clusters": (
                f"{report['clusters']:,} by {report['clustered_by']}, modularity "
                f"{report['modularity']:.3f}"
            ),
            "simulated": f"{report['runs']:,} times each" if report["runs"] else "no (--runs)",
            "took": human_seconds(report["seconds"]),
        }
    )
