"""``figrl status``: what a store holds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from rich.table import Table

from jobs.console import emit, facts, table_console
from jobs.options import cluster_option, json_option, store_option
from pipeline.measure import human_bytes, human_seconds
from pipeline.serve.status import store_status


@click.command(
    "status",
    epilog="""
\b
Example:
  figrl status --store store
""",
)
@store_option
@cluster_option
@json_option
def command(store: str, cluster: str | None, as_json: bool) -> None:
    """Show the graph, the runs and the unfinished work of a store."""
    emit(store_status(store), as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    graph = report["graph"]
    facts(
        {
            "store": report["store"],
            "graph": f"{graph['version']} ({graph['nodes']:,} nodes, {graph['edges']:,} edges)",
            "current run": report["current"] or "none: figrl embed makes one",
            "size on disk": human_bytes(report["size_bytes"]),
        }
    )
    if report["runs"]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("run", "made", "graph", "dim", "sketch", "took", "peak memory", ""):
            table.add_column(column)
        for run in report["runs"]:
            table.add_row(
                run["run"],
                datetime.fromtimestamp(run["created"]).isoformat(" ", "minutes"),
                run["graph"],
                str(run["dim"]),
                f"{run['sketch_size']:,}",
                human_seconds(run["seconds"]),
                human_bytes(run["peak_worker_bytes"]),
                "current" if run["run"] == report["current"] else "",
            )
        table_console().print(table)
    for work in report["unfinished"]:
        click.echo(f"unfinished: {work['what']} ({work['blocks_done']:,} blocks done)")
