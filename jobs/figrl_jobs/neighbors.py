"""``figrl neighbors``: the nodes with the most similar vectors.

For example:
  figrl neighbors --store store alice -n 5
  figrl neighbors --store store 17 42 --json
  figrl neighbors --store store alice --approximate

The search compares all vectors, a chunk at a time, in the threads of this process, or with
--cluster on a Dask cluster. --approximate uses the index that 'figrl reindex' builds with
'index: approximate'.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import click

from figrl.engine.cluster import connect, read_cluster_config
from figrl.errors import BadInputError
from figrl.serve.embedding import open_store
from figrl.serve.neighbors import neighbors
from figrl_jobs.console import Cell, Report, print_table
from figrl_jobs.options import cluster_option, job, store_option


@job("neighbors", __doc__)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@store_option
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=10, help="Neighbours of each ID."
)
@click.option("--run", help="Run to search; default: the current one.")
@click.option("--approximate", is_flag=True, help="Search the index; it may miss some neighbours.")
@cluster_option
def command(
    ids: tuple[str, ...], store: str, run: str | None, cluster: str | None, **options: Any
) -> Report:
    """Show the nodes whose vectors are nearest to that of each ID, by cosine or dot product."""
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
    columns: list[tuple[str, Cell]] = [
        ("id", lambda row: row["id"] if row["rank"] == 1 else ""),
        ("rank", "{rank}"),
        ("neighbor", "{neighbor}"),
        (metric, f"{{{metric}:.4f}}"),
    ]
    print_table(report["neighbors"], columns, left=["id", "neighbor"])
