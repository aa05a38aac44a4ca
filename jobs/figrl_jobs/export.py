"""``figrl export``: the vectors of a run as Parquet.

For example:
  figrl export --store store --out vectors.parquet      one file
  figrl export --store store --out vectors              a folder, one file per row block
  figrl export --store store --out vectors --shard-size 256MB

Columns: id (int64 or string, exactly as it came in), vector (fixed_size_list<float>[k]). Of a
bipartite or directed graph: id, side ("source" or "target"), vector. The store is only read; work
lies beside --out until it is done. Of two jobs with one --out, the second ends with exit code 6.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.serve.export import run_export
from figrl.store.layout import existing_store
from figrl.store.places import local_path
from figrl_jobs.console import Report, finish, print_facts, print_stages
from figrl_jobs.options import Connection, job, running_options, store_option


@job("export", __doc__)
@store_option
@click.option("--out", required=True, help="A .parquet file, or a folder of them.")
@click.option("--run", help="Run to export; default: the current one.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output at --out.")
@click.option("--shard-size", metavar="SIZE", help="Size of the files of a folder, such as 256MB.")
@running_options
def command(store: str, out: str, connection: Connection, **options: Any) -> Report:
    """Write the vectors of a run as Parquet: id, vector."""
    existing_store(store)
    with connection as session:
        return run_export(store, local_path(out), session, **options)


@command.render
def _render(report: Report) -> None:
    click.echo(f"{report['rows']:,} vectors of {report['dim']} dimensions: {report['out']}")
    print_facts(report, {"run": "{run}"})
    print_stages(report)
    finish()
