"""``figrl ingest``: from edge lists to a stored graph.

For example:
  figrl ingest edges.parquet --store store
  figrl ingest 'crawl/day=*/' --store store --source from_url --target to_url
  figrl ingest com-dblp.txt.gz --store store
  figrl ingest trades.csv --store store --weight amount --on-bad-edges quarantine
  figrl ingest plays.parquet --store store --kind bipartite
  figrl ingest calls.csv --store store --kind directed --time called_at --half-life 30d

Which columns are taken: source and target (or src and dst, from and to, u and v) where there are
such names, else the first two that may hold ids. A column is a weight only by its name (weight, w,
value, count, ...) or by --weight; an index of pandas, years and times are never taken. Where two
readings are possible, the command asks. In files without names, columns are numbers from 1; text
with a third column of numbers needs --weight 3 or --weight none. The summary says what was taken.

Formats: Parquet (a file, a folder, a glob, hive partitions), CSV and TSV, JSON lines (.jsonl), and
SNAP text (two or three columns, any white space, '#' comments); all but Parquet may be gzipped. CSV
may have semicolons, bars or tabs in place of commas. A sparse matrix (.mtx of MatrixMarket, .npz of
scipy) is read alone, its ids are the numbers of its rows. Repeated edges count once in a graph
without weights; weights are summed. Self-loops are dropped and counted.

Kinds of graph:
  undirected  (u, v) and (v, u) are one edge
  bipartite   the columns hold two kinds of node, each with ids of its own: user 7 is not item 7,
              and (7, 7) is an edge like others; the two sides are called source and target
  directed    a node has one vector as source and one as target; (u, v) is an edge between source
              u and target v, and every node is on both sides

With --time and --half-life an edge counts weight * 2^-(age / half-life), also where there is no
column of weights. Ages are counted up to the latest time in the input, or to --as-of; edges after
that have age 0. Repeated edges are summed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from figrl.config import make_options
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl_jobs.console import (
    Cell,
    Report,
    finish,
    is_verbose,
    print_facts,
    print_notes,
    print_stages,
    reading_facts,
)
from figrl_jobs.options import Connection, config_options, job, running_options, store_option


@job("ingest", __doc__)
@click.argument("edges", nargs=-1, required=True)
@store_option
@config_options(IngestOptions)
@running_options
def command(edges: tuple[str, ...], store: str, connection: Connection, **options: Any) -> Report:
    """Read EDGES (files, folders, globs, URLs of them) into the graph of a store."""
    config = make_options(IngestOptions, options)
    with connection as session:
        return run_ingest(edges, store, config, session)


@command.render
def _render(report: Report) -> None:
    if report["already_done"]:
        click.echo("This input was ingested before: nothing to do.")
    click.echo(
        f"A graph of {report['nodes']:,} nodes and {report['edges']:,} edges in {report['store']}"
    )
    sides = "" if report.get("target_start") is None else "{kind}" + _sides(report) + ", "
    weights = "weighted" if report["weighted"] else "unweighted"
    ids = "int64" if report["id_kind"] == "int" else "string"
    decayed = "as_of" in report
    facts: dict[str, Cell] = {
        "graph": "{graph_version}, " + sides + weights + ", mean degree {mean_degree:.2f}",
        **reading_facts(report),
        "ids": ids,
        **({"half-life": "{config[half_life]}, up to " + _moment(report)} if decayed else {}),
        "rows read": "{rows_read:,}" + _set_aside(report),
        **({"row blocks": "{blocks:,} of {block_rows:,} nodes"} if is_verbose() else {}),
    }
    print_facts(report, facts)
    print_stages(report)
    print_notes(report)
    if report["rows_rejected"]:
        folder = f"{report['store']}/graph/{report['graph_version']}/quarantine"
        click.echo(f"Rejected rows, with file, row and reason: {folder}")
    finish(f"figrl embed --store {report['store']}")


def _set_aside(report: Report) -> str:
    """Rows and nodes that are not as one would think, where there are any."""
    counts = {
        "rejected": report["rows_rejected"],
        "self-loops dropped": report["self_loops_dropped"],
        "repeated edges merged": report["repeated_edges_merged"],
        "nodes without edges": report["isolated_nodes"],
    }
    return "".join(f"; {count:,} {what}" for what, count in counts.items() if count)


def _moment(report: Report) -> str:
    """Time up to which ages were counted, as the options give times."""
    if report["config"]["half_life"][-1].isdigit():
        return f"{report['as_of']:g}"
    return datetime.fromtimestamp(report["as_of"], UTC).isoformat(" ")


def _sides(report: Report) -> str:
    sources = report["target_start"]
    return f" ({sources:,} source, {report['nodes'] - sources:,} target)"
