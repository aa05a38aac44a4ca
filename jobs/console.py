"""What a person sees: progress on standard error, a summary on standard output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from jobs.hosted import host
from pipeline.job import StageResult
from pipeline.measure import human_bytes, human_seconds
from pipeline.stages import grouped_stages

_LOG_EVERY_SECONDS = 15.0


class ConsoleMonitor:
    """A progress bar on a terminal; elsewhere a line for each stage, and now and then between."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task: Any = None
        self._logged = 0.0

    @contextmanager
    def showing(self) -> Iterator[ConsoleMonitor]:
        """Show bars while the block runs, if there is a terminal to show them on."""
        if self._console.is_terminal:
            with self._bars:
                yield self
        else:
            yield self

    def started(self, result: StageResult) -> None:
        """Begin a bar."""
        self._logged = time.monotonic()
        self._task = self._bars.add_task(result.name, total=result.blocks, completed=result.reused)

    def advanced(self, result: StageResult) -> None:
        """Move the bar."""
        self._bars.update(self._task, completed=len(result.stats))
        if not self._console.is_terminal and time.monotonic() - self._logged > _LOG_EVERY_SECONDS:
            self._logged = time.monotonic()
            self._line(f"{result.name}: {len(result.stats)} of {result.blocks} blocks")

    def finished(self, result: StageResult) -> None:
        """End the bar."""
        self._bars.update(self._task, completed=result.blocks)
        if not self._console.is_terminal:
            reused = f", {result.reused} of them done before" if result.reused else ""
            plural = "s" if result.blocks != 1 else ""
            took = human_seconds(result.seconds)
            self._line(f"{result.name}: {result.blocks} block{plural} in {took}{reused}")

    def note(self, text: str) -> None:
        """Say something that a person should read."""
        self._line(f"note: {text}")

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def emit(
    report: dict[str, Any], *, as_json: bool, render: Callable[[dict[str, Any]], None]
) -> None:
    """Write the result: one JSON object, or words; of a job that was submitted, a file."""
    hosted = host.get()
    if hosted is not None:
        hosted.report = report
    elif as_json:
        click.echo(json.dumps(report, indent=1))
    else:
        render(report)


def table_console() -> Console:
    """Give a console as wide as the terminal, or, where there is none, as wide as the tables."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    return console


def facts(rows: dict[str, Any]) -> None:
    """Print names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        shown = (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
        # As text: what stands between brackets in a path is not for rich to read.
        table.add_row(name, Text(shown))
    table_console().print(table, soft_wrap=True)


def stages_table(report: dict[str, Any]) -> None:
    """Print what each stage took, and the peak of each worker process."""
    planned = {stage["name"]: stage for stage in report.get("plan", {}).get("stages", [])}
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ["stage", "times", "blocks", "done now", "seconds", "read", "written", "peak memory"]
    for column in columns + ["planned"] * bool(planned):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for name, stage in grouped_stages(report["stages"]).items():
        row = [
            name,
            f"{stage['times']:,}",
            f"{stage['blocks']:,}",
            f"{stage['computed']:,}",
            f"{stage['seconds']:.1f}",
            human_bytes(stage["read_bytes"]),
            human_bytes(stage["written_bytes"]),
            human_bytes(stage["peak_bytes"]) if stage["peak_bytes"] else "-",
        ]
        if planned:
            plan = planned.get(name)
            row.append(human_bytes(plan["peak_bytes"]) if plan else "")
        table.add_row(*row)
    console = table_console()
    console.print(table)
    for worker in report["workers"]:
        console.print(f"worker {worker['worker']}: peak {human_bytes(worker['peak_bytes'])}")
