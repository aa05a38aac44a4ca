"""``figrl status``: contents of a store.

For example:
  figrl status --store store
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from figrl.serve.status import store_status
from figrl.store.lock import describe_owner
from figrl.units import human_seconds
from figrl_jobs.console import Cell, Report, print_facts, print_table
from figrl_jobs.options import job, store_option

_COLUMNS: list[tuple[str, Cell]] = [
    ("run", "{run}"),
    ("made", lambda run: _minute(run["created"])),
    ("graph", "{graph}"),
    ("dim", "{dim}"),
    ("sketch", "{sketch_size:,}"),
    ("took", "{seconds:duration}"),
    ("peak memory", "{peak_worker_bytes:bytes}"),
    ("folded in", lambda run: f"{run['folded_in']:,}" if run["folded_in"] else ""),
    ("", lambda run: ", ".join(["current"] * run["is_current"] + ["pinned"] * run["pinned"])),
]


@job("status", __doc__)
@store_option
def command(store: str) -> Report:
    """Show the graph, the runs and the unfinished work of a store."""
    return store_status(store)


@command.render
def _render(report: Report) -> None:
    sizes = "{graph[version]} ({graph[kind]}, {graph[nodes]:,} nodes, {graph[edges]:,} edges)"
    facts: dict[str, Cell] = {
        "store": "{store}",
        "graph": sizes if report["graph"] else "none yet",
        "current run": "{current}" if report["current"] else "none: figrl embed makes one",
        "size on disk": "{size_bytes:bytes}",
    }
    if report["in_use_by"] is not None:
        facts["in use by"] = lambda report: describe_owner(report["in_use_by"])
    if report["last_attempt"] is not None:
        facts["last attempt"] = lambda report: _describe_attempt(report["last_attempt"])
    print_facts(report, facts)
    if report["runs"]:
        runs = [{**run, "is_current": run["run"] == report["current"]} for run in report["runs"]]
        print_table(runs, _COLUMNS, left=[title for title, _ in _COLUMNS])
    if report["history"]:
        click.echo("history:")
    for event in report["history"]:
        gates = f" ({', '.join(event['gates'])})" if event.get("gates") else ""
        what = f"{event['action']} {event['run'] or event.get('job', '')}"
        click.echo(f"  {_minute(event['time'])}  {what}{gates}")
    for submitted in report["jobs"]:
        click.echo(f"job {submitted['id']}: {_describe_job(submitted)}")
    for work in report["unfinished"]:
        click.echo(f"unfinished: {work['what']} ({work['blocks_done']:,} blocks done)")


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")


def _describe_attempt(made: dict[str, Any]) -> str:
    """Describe the last attempt to publish: job, run, result and reason."""
    run = f" of run {made['run']}" if made["run"] else ""
    if made["result"] == "running":
        return f"{made['job']}{run}, started {_minute(made['started'])}: it runs, or was killed"
    reason = f": {made['reason']}" if made["reason"] else ""
    return f"{made['job']}{run}, {_minute(made['ended'])}: {made['result']}{reason}"


def _describe_job(job: dict[str, Any]) -> str:
    """Describe a submitted job in one line."""
    state = job.get("state", "unknown")
    text = f"{job['job']}, {state}"
    if state == "running":
        text += f" on {job['worker']}"
        if "stage" in job:
            text += f", stage {job['stage']} ({job['done']} of {job['blocks']} blocks)"
        if job["silent_seconds"] > 30:
            text += f", no heartbeat for {human_seconds(job['silent_seconds'])}"
    if job.get("attempts", 0) > 1:
        text += f", attempt {job['attempts']}"
    return text + (f": {job['error']}" if job.get("error") else "")
