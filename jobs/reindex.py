"""``figrl reindex``: the nightly job."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit, facts, stages_table
from jobs.options import cluster_option, json_option, memory_option, session
from pipeline.measure import human_bytes, human_seconds
from pipeline.nightly import run_reindex
from pipeline.nightly_config import example_config, read_reindex_config


@click.command(
    "reindex",
    epilog="""
\b
Examples:
  figrl reindex --example > nightly.yaml
  figrl reindex nightly.yaml
  figrl reindex nightly.yaml --publish-anyway
\b
The job ingests the sources, learns vectors, rotates them onto the published ones, checks them,
publishes them in one step and deletes old runs. Started again with nothing new, it does nothing.
Killed at any moment, it goes on where it was. A run that a gate refuses is kept, exit code 4, and
the published one stays.
""",
)
@click.argument("config", required=False, type=click.Path(dir_okay=False))
@click.option("--example", is_flag=True, help="Print a configuration to start from.")
@click.option("--publish-anyway", is_flag=True, help="Publish although a gate refuses.")
@memory_option
@cluster_option
@json_option
def command(
    config: str | None,
    example: bool,
    publish_anyway: bool,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
) -> None:
    """Bring the published vectors up to date with their sources, as CONFIG says."""
    if example:
        click.echo(example_config(), nl=False)
        return
    if config is None:
        raise click.UsageError("Give a CONFIG file; --example prints one to start from.")
    wanted = read_reindex_config(config)
    with session(cluster, memory_limit) as running:
        report = run_reindex(wanted, running, publish_anyway=publish_anyway)
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if report["nothing_to_do"]:
        click.echo(f"Nothing to do: run {report['run']} is published, and its sources are as then.")
        return
    rows = {
        "published": report["run"],
        "nodes": report["nodes"],
        "edges": report["edges"],
        "took": human_seconds(report["seconds"]),
    }
    if report["alignment"] and report["alignment"]["mean_cosine"] is not None:
        alignment = report["alignment"]
        rows["cosine with last run"] = (
            f"{alignment['mean_cosine']:.3f} in the mean, over {alignment['compared_nodes']:,} "
            f"nodes ({alignment['mean_cosine_unaligned']:.3f} before alignment)"
        )
    if report["certificate"]:
        rows["certificate"] = report["certificate"]["meaning"]
    if report["carried_nodes"]:
        rows["folded in again"] = f"{report['carried_nodes']:,} nodes that the sources lack"
    retired = report["retired"]
    if retired["deleted"]:
        rows["deleted"] = f"{', '.join(retired['deleted'])} ({human_bytes(retired['freed_bytes'])})"
    if retired["in_use"]:
        rows["kept, for somebody reads it"] = ", ".join(retired["in_use"])
    facts(rows)
    stages_table(report)
    refused = [gate["gate"] for gate in report["gates"] if not gate["passed"]]
    if refused:
        click.echo(f"Published although these gates refused it: {', '.join(refused)}")
    click.echo(f"Report: {report['report']}")
