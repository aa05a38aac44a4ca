"""``figrl fold-in``: vectors for nodes that are not in the graph.

For example:
  figrl fold-in new-edges.parquet --store store --out new-vectors.parquet
  figrl fold-in new/ --store store --out new-vectors/ --degrees stored
  figrl fold-in edges-of-this-hour.parquet --store store --publish
  figrl fold-in plays-of-new-items.parquet --store store --side target --out new-items.parquet

Each row of EDGES is: new node, known node, optionally a weight. Other rows:
  an edge between two new nodes    counts in the degree of both; with smoothing (the default of
                                   embed) they pass their vectors on to each other, see --rounds
  an edge to an unknown node       is ignored (unknown: not in the graph, never in column 1)
  a 'new' node that is known       is skipped, or computed again with --known recompute
  a new node that cannot reach     gets a vector of zeros
    any known node
Each of them is counted in the summary. In a bipartite or directed graph column 1 holds new nodes of
one side (--side, by default source) and column 2 known nodes of the other, so there are no edges
between new nodes. With --publish the edges are kept until the next run is published: late edges of
a node that was folded in before update its vector, and the same file given twice counts once.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.config import make_options
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.serve.overlay_update import run_fold_publish
from figrl.store.layout import existing_store
from figrl.store.places import local_path
from figrl_jobs.console import Report, finish, is_verbose, print_facts, print_stages
from figrl_jobs.options import Connection, config_options, job, running_options, store_option


@job("fold-in", __doc__)
@click.argument("edges", nargs=-1, required=True)
@store_option
@click.option("--out", help="A .parquet file, or a folder of them: id, vector.")
@click.option(
    "--publish",
    is_flag=True,
    help="Serve the vectors with the current run instead of writing them to --out.",
)
@click.option("--run", help="Run to fold into; default: the current one.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output at --out.")
@config_options(FoldInOptions)
@running_options
def command(
    edges: tuple[str, ...],
    store: str,
    out: str | None,
    publish: bool,
    run: str | None,
    overwrite: bool,
    connection: Connection,
    **options: Any,
) -> Report:
    """Compute vectors of new nodes from their EDGES to known ones."""
    config = make_options(FoldInOptions, options)
    if publish == (out is not None) or (publish and (run or overwrite)):
        raise click.UsageError("Give either --out, or --publish without --run and --overwrite.")
    existing_store(store)
    with connection as session:
        if out is None:
            return run_fold_publish(store, edges, config, session)
        return run_fold_in(
            store, edges, local_path(out), config, session, run=run, overwrite=overwrite
        )


@command.render
def _render(report: Report) -> None:
    counts = {name.replace("_", " "): value for name, value in report["counts"].items()}
    shown = f"{counts.pop('nodes folded in'):,} vectors of new nodes"
    if "out" in report:
        click.echo(f"{shown}: {report['out']}")
    else:
        done = "were published before" if report["already_done"] else "are served with the run now"
        click.echo(f"{shown} {done}.")
    kept = {name: f"{value:,}" for name, value in counts.items() if value or is_verbose()}
    print_facts(report, {"run": "{run}", **kept})
    print_stages(report)
    if report["quarantine"]:
        click.echo(f"Rejected rows, with file, row and reason: {report['quarantine']}")
    finish(*(() if "out" in report else (f"figrl neighbors --store {report['store']} ID",)))
