"""``figrl neighbors``: the nodes with the most similar vectors.

For example:
  figrl neighbors --store store alice -n 5
  figrl neighbors --store store 17 42 --json
  figrl neighbors --store store alice --approximate
  figrl neighbors --store store 17 --side source                   items for user 17
  figrl neighbors --store store 17 --side source --among source    users like user 17

The search compares all vectors, a chunk at a time, in the threads of this process, or with
--cluster on a Dask cluster. --approximate uses the index that 'figrl reindex' builds with
'index: approximate'.

In a bipartite or directed graph the nodes of the other side are searched, unless --among says
otherwise. --side is needed where both sides have the ID.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import click

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import read_cluster_config
from figrl.errors import BadInputError
from figrl.serve.embedding import open_store
from figrl.serve.neighbors import neighbors
from figrl.store.sides import SIDES
from figrl_jobs.console import Cell, Report, print_table
from figrl_jobs.options import cluster_option, job, store_option


@job("neighbors", __doc__)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@store_option
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=10, help="Neighbours of each ID."
)
@click.option("--run", help="Run to search; default: the current one.")
@click.option("--side", type=click.Choice(SIDES), help="Side of the IDs, where nodes have sides.")
@click.option(
    "--among",
    type=click.Choice([*SIDES, "all"]),
    help="Nodes to search; default: those of the other side, where nodes have sides.",
)
@click.option("--approximate", is_flag=True, help="Search the index; it may miss some neighbours.")
@cluster_option
def command(
    ids: tuple[str, ...], store: str, run: str | None, cluster: str | None, **options: Any
) -> Report:
    """Show the nodes whose vectors are nearest to that of each ID."""
    wanted = _typed(ids, store, run)
    connected = nullcontext() if cluster is None else connect(read_cluster_config(cluster))
    try:
        with connected as client:
            found = neighbors(store, wanted, run=run, client=client, **options)
    except KeyError as error:
        raise BadInputError(f"{error.args[0]}.") from error
    return {"store": store, "neighbors": found.to_pylist()}


def _typed(ids: tuple[str, ...], store: str, run: str | None) -> list[Any]:
    """Ids of the graph's kind; the search refuses what is no integer where ids are integers."""
    if open_store(store).embedding(run).graph.id_kind == "int":
        with suppress(ValueError):
            return [int(node) for node in ids]
    return list(ids)


@command.render
def _render(report: Report) -> None:
    metric = "dot" if any("dot" in row for row in report["neighbors"]) else "cosine"

    def first(name: str) -> Cell:
        return lambda row: row[name] if row["rank"] == 1 else ""

    columns: list[tuple[str, Cell]] = [
        ("id", first("id")),
        ("side", first("side")),
        ("rank", "{rank}"),
        ("neighbor", "{neighbor}"),
        ("neighbor side", "{neighbor_side}"),
        (metric, f"{{{metric}:.4f}}"),
    ]
    found = report["neighbors"]
    if not any("side" in row for row in found):
        columns = [column for column in columns if "side" not in column[0]]
    print_table(found, columns, left=["id", "side", "neighbor", "neighbor side"])
