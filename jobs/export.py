"""``figrl export``: the vectors of a run as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.console import emit, facts
from jobs.options import running_options, session, store_option
from pipeline.measure import human_seconds
from pipeline.serve.calls import run_export
from pipeline.store import existing_store


@click.command(
    "export",
    epilog="""
\b
Examples:
  figrl export --store store --out vectors.parquet      one file
  figrl export --store store --out vectors              a folder, one file per row block
  figrl export --store store --out vectors --shard-size 256MB
\b
Columns: id (int64 or string, exactly as it came in), vector (fixed_size_list<float>[k]).
""",
)
@store_option
@click.option("--out", required=True, help="A .parquet file, or a folder of them.")
@click.option("--run", help="Run to export; default: the current one.")
@click.option("--overwrite", is_flag=True, help="Replace what is at --out.")
@click.option("--shard-size", metavar="SIZE", help="Size of the files of a folder, such as 256MB.")
@running_options
def command(
    store: str,
    out: str,
    run: str | None,
    overwrite: bool,
    shard_size: str | None,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
) -> None:
    """Write the vectors of a run as Parquet: id, vector."""
    existing_store(store)
    with session(cluster, memory_limit) as running:
        report = run_export(
            store, Path(out), running, run=run, overwrite=overwrite, shard_size=shard_size
        )
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    facts(
        {
            "run": report["run"],
            "vectors": f"{report['rows']:,} of {report['dim']} dimensions",
            "out": report["out"],
            "took": human_seconds(report["seconds"]),
        }
    )
