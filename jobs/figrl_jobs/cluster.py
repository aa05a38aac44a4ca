"""``figrl cluster``: clusters of the nodes of a run.

For example:
  figrl cluster --store store --clusters 20
  figrl cluster --store store --clusters 20 --method agglomerative
  figrl cluster --store store --clusters 20 --out clusters.parquet --seed 7

Columns: id (int64 or string, exactly as it came in), cluster (int32, from 0); of a bipartite or
directed graph id, side ("source" or "target"), cluster. Where the vectors fit into the memory of a
worker, scikit-learn clusters them there; otherwise they are clustered out of core, and the summary
says so. Modularity above 0.3 means clear communities.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.analyze.centers import ClusterOptions
from figrl.analyze.clusters import run_cluster
from figrl.store.layout import existing_store
from figrl.store.places import local_path
from figrl_jobs.console import Cell, Report, finish, print_facts, print_text
from figrl_jobs.options import Connection, config_options, job, running_options, store_option


@job("cluster", __doc__)
@store_option
@click.option("--clusters", required=True, type=int, metavar="K", help="Number of clusters.")
@config_options(ClusterOptions)
@click.option("--run", help="Run to cluster; default: the current one.")
@click.option(
    "--out",
    help="A .parquet file, or a folder of them; default: "
    "STORE/runs/RUN/clusters/METHOD-K.parquet, replaced if it exists.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier output at --out.")
@running_options
def command(
    store: str, clusters: int, out: str | None, connection: Connection, **options: Any
) -> Report:
    """Cluster the nodes of a run by their vectors: id, cluster."""
    existing_store(store)
    with connection as session:
        path = None if out is None else local_path(out)
        return run_cluster(store, clusters, session, out=path, **options)


@command.render
def _render(report: Report) -> None:
    empty = ", {empty_clusters:,} of them empty" if report["empty_clusters"] else ""
    facts: dict[str, Cell] = {
        "run": "{run}",
        "clusters": "{clusters:,} of {smallest_cluster:,} to {largest_cluster:,} nodes" + empty,
        "nodes": "{nodes:,}",
        "method": "{method}, by {by}",
        "modularity": "{modularity:.4f}",
        "out": "{out}",
        "labels": "{labels} (by row, for other jobs)",
    }
    print_facts(report, facts)
    for note in report["notes"]:
        print_text(f"note: {note}")
    finish()
