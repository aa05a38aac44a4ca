"""``figrl neighbors``: the nodes whose vectors lie nearest."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rich.text import Text

from jobs.console import emit, table_console
from jobs.options import cluster_option, json_option, store_option
from pipeline.cluster import connect, read_cluster_config
from pipeline.errors import BadInputError
from pipeline.serve.calls import neighbors
from pipeline.serve.embedding import open_store


@click.command(
    "neighbors",
    epilog="""
\b
Examples:
  figrl neighbors --store store alice -n 5
  figrl neighbors --store store 17 42 --json
  figrl neighbors --store store alice --approximate
\b
All vectors are compared, a chunk at a time, by the threads of this process, or, with --cluster, by
a Dask cluster. --approximate asks the index that figrl reindex builds with 'index: approximate'.
""",
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@store_option
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=10, help="Neighbours of each.")
@click.option("--run", help="Run to search; default: the current one.")
@click.option("--approximate", is_flag=True, help="Ask the index; it may miss some.")
@cluster_option
@json_option
def command(
    ids: tuple[str, ...],
    store: str,
    count: int,
    run: str | None,
    approximate: bool,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Show the nodes whose vectors are most like those of ID, by cosine."""
    wanted = _typed(ids, store, run)
    try:
        if cluster is None:
            found = neighbors(store, wanted, count=count, run=run, approximate=approximate)
        else:
            with connect(read_cluster_config(cluster)) as client:
                found = neighbors(
                    store, wanted, count=count, run=run, approximate=approximate, client=client
                )
    except KeyError as error:
        raise BadInputError(f"{error.args[0]}.") from error
    emit({"store": store, "neighbors": found.to_pylist()}, as_json=as_json, render=_render)


def _typed(ids: tuple[str, ...], store: str, run: str | None) -> Any:
    """Ids as the graph has them."""
    if open_store(store).embedding(run).graph.id_kind == "string":
        return list(ids)
    try:
        return [int(node) for node in ids]
    except ValueError as error:
        raise BadInputError(f"The ids of this graph are integers: {error}.") from error


def _render(report: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("id", "rank", "neighbor", "cosine"):
        table.add_column(column, justify="left" if column in ("id", "neighbor") else "right")
    for row in report["neighbors"]:
        shown = str(row["id"]) if row["rank"] == 1 else ""
        # As text: what stands between brackets in an id is not for rich to read.
        names = Text(shown), Text(str(row["neighbor"]))
        table.add_row(names[0], str(row["rank"]), names[1], f"{row['cosine']:.4f}")
    table_console().print(table)
