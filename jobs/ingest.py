"""``figrl ingest``: edge lists to a stored graph."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit, facts, stages_table
from jobs.options import config_options, running_options, session, store_option
from pipeline.api import run_ingest
from pipeline.config import IngestConfig, make_config
from pipeline.measure import human_seconds


@click.command(
    "ingest",
    epilog="""
\b
Examples:
  figrl ingest edges.parquet --store store
  figrl ingest 'crawl/day=*/' --store store --source from_url --target to_url
  figrl ingest com-dblp.txt.gz --store store
  figrl ingest trades.csv --store store --weight amount --on-bad-edges quarantine
\b
Parquet (a file, a folder, a glob, hive partitions), CSV and TSV, and SNAP's text form (two or
three columns, any white space, '#' comments); text and CSV may be gzipped. The graph is
undirected: (u, v) and (v, u) are one edge. A repeated edge counts once where there are no
weights; where there are, they are summed. Self-loops are dropped and counted.
""",
)
@click.argument("edges", nargs=-1, required=True)
@store_option
@config_options(
    IngestConfig, "source", "target", "weight", "ids", "csv_header", "on_bad_edges", "block_rows"
)
@running_options
def command(
    edges: tuple[str, ...],
    store: str,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> None:
    """Read EDGES (files, folders, globs) into the graph of a store."""
    config = make_config(IngestConfig, options)
    with session(cluster, memory_limit) as running:
        report = run_ingest(edges, store, config, running)
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if report["already_done"]:
        click.echo("This input was ingested before: nothing to do.")
    facts(
        {
            "graph": report["graph_version"],
            "nodes": report["nodes"],
            "edges": report["edges"],
            "weighted": "yes" if report["weighted"] else "no",
            "ids": report["id_kind"],
            "mean degree": f"{report['mean_degree']:.2f}",
            "rows read": report["rows_read"],
            "rows rejected": report["rows_rejected"],
            "self-loops dropped": report["self_loops_dropped"],
            "repeated edges merged": report["repeated_edges_merged"],
            "nodes without edges": report["isolated_nodes"],
            "row blocks": f"{report['blocks']:,} of {report['block_rows']:,} nodes",
            "took": human_seconds(report["seconds"]),
        }
    )
    stages_table(report)
    if report["rows_rejected"]:
        folder = f"{report['store']}/graph/{report['graph_version']}/quarantine"
        click.echo(f"Rejected rows, with file, row and reason: {folder}")
    click.echo(f"Next: figrl embed --store {report['store']}")
