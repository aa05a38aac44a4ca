"""``figrl fold-in``: vectors for nodes that came after the graph was learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.console import emit, facts, stages_table
from jobs.options import config_options, running_options, session, store_option
from pipeline.config import FoldInConfig, make_config
from pipeline.measure import human_seconds
from pipeline.serve.fold_calls import run_fold_in
from pipeline.serve.overlay_calls import run_fold_publish
from pipeline.store import existing_store


@click.command(
    "fold-in",
    epilog="""
\b
Examples:
  figrl fold-in new-edges.parquet --store store --out new-vectors.parquet
  figrl fold-in new/ --store store --out new-vectors/ --degrees stored
  figrl fold-in edges-of-this-hour.parquet --store store --publish
\b
Each row of EDGES is: new node, known node, and perhaps a weight. What becomes of the others:
  an edge between two new nodes    counts in the degree of both; with smoothing (the default of
                                   embed) they pass their vectors on to each other, see --rounds
  an edge to an unknown node       is left out (unknown: not in the graph, never in column 1)
  a 'new' node that is known       is left alone, or computed anew with --known recompute
  a new node that no known node    gets a vector of zeros
    can be reached from
Each of them is counted in the summary. With --publish the edges are kept until the next run is
published: late edges of a node that was folded in before make its vector anew, and the same file
given twice counts once.
""",
)
@click.argument("edges", nargs=-1, required=True)
@store_option
@click.option("--out", help="A .parquet file, or a folder of them: id, vector.")
@click.option(
    "--publish",
    is_flag=True,
    help="Serve the vectors with the current run, instead of writing them to --out.",
)
@click.option("--run", help="Run to fold into; default: the current one.")
@click.option("--overwrite", is_flag=True, help="Replace what is at --out.")
@config_options(
    FoldInConfig, "source", "target", "weight", "on_bad_edges", "degrees", "known", "rounds"
)
@running_options
def command(
    edges: tuple[str, ...],
    store: str,
    out: str | None,
    publish: bool,
    run: str | None,
    overwrite: bool,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> None:
    """Give vectors to new nodes from their EDGES to known ones; nothing is learnt again."""
    config = make_config(FoldInConfig, options)
    if publish == (out is not None) or (publish and (run or overwrite)):
        raise click.UsageError("Give either --out, or --publish without --run and --overwrite.")
    existing_store(store)
    with session(cluster, memory_limit) as running:
        if out is None:
            report = run_fold_publish(store, edges, config, running)
        else:
            report = run_fold_in(
                store, edges, Path(out), config, running, run=run, overwrite=overwrite
            )
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    counts = {name.replace("_", " "): value for name, value in report["counts"].items()}
    facts({"run": report["run"], **counts, "took": human_seconds(report["seconds"])})
    stages_table(report)
    if "out" not in report:
        done = "were there already" if report["already_done"] else "are served with the run now"
        click.echo(f"The vectors {done}.")
    if report["quarantine"]:
        click.echo(f"Rejected rows, with file, row and reason: {report['quarantine']}")
    if "out" in report:
        click.echo(f"Vectors: {report['out']}")
