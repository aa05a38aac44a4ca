"""``figrl cluster``: the nodes of a run in clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from jobs.console import emit, facts
from jobs.options import running_options, session, store_option
from pipeline.measure import human_seconds
from pipeline.store import existing_store
from pipeline.study.cluster_calls import run_cluster
from pipeline.study.cluster_tasks import Method


@click.command(
    "cluster",
    epilog="""
\b
Examples:
  figrl cluster --store store --clusters 20
  figrl cluster --store store --clusters 20 --method agglomerative
  figrl cluster --store store --clusters 20 --out clusters.parquet --seed 7
\b
Columns: id (int64 or string, exactly as it came in), cluster (int32, from 0 on). Where the vectors
fit into the memory of a worker, scikit-learn clusters them there; else it is done out of core, and
the summary says so. Modularity above 0.3 means clusters that the graph itself shows.
""",
)
@store_option
@click.option("--clusters", required=True, type=int, metavar="K", help="How many clusters.")
@click.option(
    "--method",
    type=click.Choice(["kmeans", "agglomerative"]),
    default="kmeans",
    show_default=True,
    help="k-means, or Ward's agglomerative method.",
)
@click.option("--run", help="Run to cluster; default: the current one.")
@click.option(
    "--out",
    help="A .parquet file, or a folder of them; default: "
    "STORE/runs/RUN/clusters/METHOD-K.parquet, replaced if it is there.",
)
@click.option("--overwrite", is_flag=True, help="Replace what is at --out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of k-means.")
@running_options
def command(
    store: str,
    clusters: int,
    method: str,
    run: str | None,
    out: str | None,
    overwrite: bool,
    seed: int,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
) -> None:
    """Put the nodes of a run into clusters by their vectors: id, cluster."""
    existing_store(store)
    with session(cluster, memory_limit) as running:
        report = run_cluster(
            store,
            clusters,
            running,
            method=cast("Method", method),
            run=run,
            out=None if out is None else Path(out),
            seed=seed,
            overwrite=overwrite,
        )
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    smallest, largest = report["smallest_cluster"], report["largest_cluster"]
    empty = report["empty_clusters"]
    facts(
        {
            "run": report["run"],
            "clusters": f"{report['clusters']:,} of {smallest:,} to {largest:,} nodes"
            + (f", {empty:,} of them empty" if empty else ""),
            "nodes": report["nodes"],
            "method": f"{report['method']}, by {report['by']}",
            "modularity": f"{report['modularity']:.4f}",
            "out": report["out"],
            "labels": f"{report['labels']} (by row, for other jobs)",
            "took": human_seconds(report["seconds"]),
        }
    )
    for note in report["notes"]:
        click.echo(f"note: {note}")
