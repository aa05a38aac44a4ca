"""``figrl status``: what a store holds."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click
from rich.table import Table

from jobs.console import emit, facts, table_console
from jobs.options import cluster_option, json_option, store_option
from pipeline.measure import human_bytes, human_seconds
from pipeline.serve.status import store_status

_COLUMNS = ("run", "made", "graph", "dim", "sketch", "took", "peak memory", "folded in")


@click.command(
    "status",
    epilog="""
\b
Example:
  figrl status --store store
""",
)
@store_option
@cluster_option
@json_option
def command(store: str, cluster: str | None, as_json: bool) -> None:
    """Show the graph, the runs and the unfinished work of a store."""
    emit(store_status(store), as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    graph = report["graph"]
    sizes = graph and f"{graph['version']} ({graph['nodes']:,} nodes, {graph['edges']:,} edges)"
    facts(
        {
            "store": report["store"],
            "graph": sizes or "none yet",
            "current run": report["current"] or "none: figrl embed makes one",
            "size on disk": human_bytes(report["size_bytes"]),
            **_in_use(report["in_use_by"]),
        }
    )
    if report["runs"]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in (
            "run",
            "made",
            "graph",
            "dim",
            "sketch",
            "took",
            "peak memory",
            "folded in",
            "",
        ):
            table.add_column(column)
        for run in report["runs"]:
            table.add_row(
                run["run"],
                datetime.fromtimestamp(run["created"]).isoformat(" ", "minutes"),
                run["graph"],
                str(run["dim"]),
                f"{run['sketch_size']:,}",
                human_seconds(run["seconds"]),
                human_bytes(run["peak_worker_bytes"]),
                f"{run['folded_in']:,}" if run["folded_in"] else "",
                ", ".join(_marks(run, report["current"])),
            )
        table_console().print(table)
    if report["history"]:
        click.echo("history:")
    for event in report["history"]:
        when = datetime.fromtimestamp(event["time"]).isoformat(" ", "minutes")
        gates = f" ({', '.join(event['gates'])})" if event.get("gates") else ""
        click.echo(f"  {when}  {event['action']} {event['run']}{gates}")
    for job in report["jobs"]:
        click.echo(f"job {job['id']}: {_describe_job(job)}")
    for work in report["unfinished"]:
        click.echo(f"unfinished: {work['what']} ({work['blocks_done']:,} blocks done)")


def _marks(run: dict[str, Any], current: str | None) -> list[str]:
    return ["current"] * (run["run"] == current) + ["pinned"] * run["pinned"]


def _in_use(owner: dict[str, Any] | None) -> dict[str, str]:
    if owner is None:
        return {}
    silent = human_seconds(max(time.time() - owner.get("beat", 0.0), 0.0))
    text = (
        f"{owner.get('purpose')} (process {owner.get('process')}, last sign of life {silent} ago)"
    )
    return {"in use by": text}


def _describe_job(job: dict[str, Any]) -> str:
    """A submitted job in a line."""
    state = job.get("state", "unknown")
    text = f"{job['job']}, {state}"
    if state == "running":
        text += f" on {job['worker']}"
        if "stage" in job:
            text += f", stage {job['stage']} ({job['done']} of {job['blocks']} blocks)"
        if job["silent_seconds"] > 30:
            text += f", no sign of life for {human_seconds(job['silent_seconds'])}"
    if job.get("attempts", 0) > 1:
        text += f", attempt {job['attempts']}"
    return text + (f": {job['error']}" if job.get("error") else "")
