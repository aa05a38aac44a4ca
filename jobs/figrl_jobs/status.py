"""``figrl status``: contents of a store.

For example:
  figrl status --store store

Exit code 3 if something is damaged: it is named, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import Any

import click

from figrl.errors import DamagedError
from figrl.serve.status import store_status
from figrl.store.lock import DEAD_AFTER_SECONDS, describe_owner
from figrl.units import human_seconds
from figrl_jobs.console import Cell, Report, print_facts, print_notes, print_table
from figrl_jobs.options import job, store_option

_COLUMNS: list[tuple[str, Cell]] = [
    ("run", "{run}"),
    ("made", lambda run: _minute(run["created"])),
    ("graph", "{graph}"),
    ("dim", "{dim}"),
    ("sketch", "{sketch_size:,}"),
    ("took", "{seconds:duration}"),
    ("size", "{size_bytes:bytes}"),
    ("peak memory", "{peak_worker_bytes:bytes}"),
    ("folded in", lambda run: f"{run['folded_in']:,}" if run["folded_in"] else ""),
    ("", lambda run: ", ".join(_marks(run))),
]

_JOBS_SHOWN = 10
_OWNER = {"alive": "in use by", "dead": "left by a killed job", "silent": "left by a silent job"}
_BAD = ("failed", "refused", "interrupted", "cancelled", "killed", "withdrawn")


@job("status", __doc__)
@store_option
def command(store: str) -> Report:
    """Show the graph, runs, last jobs and unfinished work of a store."""
    report = store_status(store)
    if report["damaged"]:
        report |= {"error": " ".join(report["damaged"]), "exit_code": DamagedError.exit_code}
    return report


@command.ends_with
def _exit_code(report: Report) -> int:
    return int(report.get("exit_code", 0))


@command.render
def _render(report: Report) -> None:
    sizes = "{graph[version]} ({graph[kind]}, {graph[nodes]:,} nodes, {graph[edges]:,} edges)"
    facts: dict[str, Cell] = {
        "store": "{store}",
        "graph": sizes if report["graph"] else _missing(report, "none yet"),
        "current run": (
            "{current}" if report["current"] else _missing(report, "none: figrl embed makes one")
        ),
        "size on disk": "{size_bytes:bytes}",
    }
    if report["in_use_by"] is not None:
        facts[_OWNER[report["in_use_by"]["state"]]] = lambda report: _owner(report["in_use_by"])
    if report["last_attempt"] is not None:
        facts["last attempt"] = lambda report: _describe_attempt(report["last_attempt"])
    print_facts(report, facts)
    if report["runs"]:
        runs = [{**run, "is_current": run["run"] == report["current"]} for run in report["runs"]]
        print_table(runs, _COLUMNS, left=[title for title, _ in _COLUMNS])
    if any(run["refused_by"] is not None for run in report["runs"]):
        click.echo(
            "A refused run did not pass a gate: its report.html says why. To publish it all the "
            f"same: figrl rollback RUN --store {report['store']}"
        )
    _print_jobs(report["last_jobs"])
    if report["history"]:
        click.echo("history:")
    for event in report["history"]:
        gates = f" ({', '.join(event['gates'])})" if event.get("gates") else ""
        what = f"{event['action']} {event['run'] or event.get('job', '')}"
        click.echo(f"  {_minute(event['time'])}  {what}{gates}")
    for submitted in report["jobs"]:
        click.echo(f"job {submitted['id']}: {_describe_job(submitted, report['store'])}")
    for work in report["unfinished"]:
        click.echo(f"unfinished: {work['what']} ({work['blocks_done']:,} blocks done)")
    print_notes(report)
    for message in report["damaged"]:
        click.echo(f"error: {message}", err=True)


def _missing(report: Report, otherwise: str) -> str:
    """What is said in place of something that is not there; it may be what is damaged."""
    return "not known, because the store is damaged: see below" if report["damaged"] else otherwise


def _marks(run: dict[str, Any]) -> list[str]:
    """What a run is, beside being there."""
    refused = run["refused_by"] is not None
    return ["current"] * run["is_current"] + ["pinned"] * run["pinned"] + ["refused"] * refused


def _owner(owner: dict[str, Any]) -> str:
    """Describe who has the lock; one that was killed runs no more."""
    if owner["state"] == "alive" or not {"since", "beat"} <= set(owner):
        return describe_owner(owner)
    when = f"started {_minute(owner['since'])}, last sign of life {_minute(owner['beat'])}"
    return f"'{owner.get('purpose')}' (process {owner.get('process')}, {when})"


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")


def _print_jobs(jobs: list[dict[str, Any]]) -> None:
    """Print the last jobs, newest last; of those that ended badly also why, and what to read."""
    if jobs:
        click.echo("last jobs:")
    for one, times in list(_without_repeats(jobs))[-_JOBS_SHOWN:]:
        when = _minute(one["started"]) if one.get("started") else "unknown         "
        took = ""
        if one.get("started") and one.get("ended"):
            took = f", {human_seconds(max(one['ended'] - one['started'], 0.0))}"
        code = f", exit code {one['exit_code']}" if one.get("exit_code") else ""
        run = f" run {one['run']}" if one.get("run") else ""
        again = f", the last of {times} times" if times > 1 else ""
        click.echo(f"  {when}  {one['job']}: {one['result']}{run}{took}{code}{again}")
        if one["result"] in _BAD:
            told = {"": one["reason"], "report: ": one.get("report"), "log: ": one.get("log")}
            for name, value in told.items():
                if value:
                    click.echo(f"      {name}{value}")


def _without_repeats(jobs: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Jobs, and how often; of those that find the store in use again and again only the last."""
    for (_, in_use), group in groupby(jobs, lambda one: (one["job"], one["exit_code"] == 6)):
        every = list(group)
        yield from [(every[-1], len(every))] if in_use else ((one, 1) for one in every)


def _describe_attempt(made: dict[str, Any]) -> str:
    """Describe the last attempt to publish: job, run, result and reason."""
    run = f" of run {made['run']}" if made["run"] else ""
    if made["result"] in ("running", "killed"):
        return f"{made['job']}{run}, started {_minute(made['started'])}: {made['result']}"
    reason = f": {made['reason']}" if made["reason"] else ""
    return f"{made['job']}{run}, {_minute(made['ended'])}: {made['result']}{reason}"


def _describe_job(job: dict[str, Any], store: str) -> str:
    """Describe a submitted job in one line."""
    state = job.get("state", "unknown")
    text, resume = f"{job['job']}, {state}", f"figrl resume --store {store} {job['id']}"
    if state == "waiting" and job["silent_seconds"] > DEAD_AFTER_SECONDS:
        text += f" for {human_seconds(job['silent_seconds'])}. If its scheduler is "
        text += f"gone: {resume}"
    if state == "running":
        text += f" on {job['worker']}"
        if "stage" in job:
            text += f", stage {job['stage']} ({job['done']} of {job['blocks']} blocks)"
        if job["driver"] != "alive":
            text = f"{job['job']}, lost: its driver on {job['worker']} gave no heartbeat for "
            text += f"{human_seconds(job['silent_seconds'])}. To go on: {resume}"
    if job.get("attempts", 0) > 1:
        text += f", attempt {job['attempts']}"
    return text + (f": {job['error']}" if job.get("error") else "")
