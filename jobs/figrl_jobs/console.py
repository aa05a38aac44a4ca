"""Output of a job: progress on standard error, a summary on standard output."""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import click
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from figrl.engine.stage import StageResult, group_by_name
from figrl.units import human_bytes, human_seconds

Report = dict[str, Any]
"""Result of a job, as JSON can hold it."""

_LOG_EVERY_SECONDS = 15.0


class ConsoleMonitor:
    """A progress bar on a terminal; elsewhere a line per stage, and one every 15 seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<18}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
        )
        self._task: Any = None
        self._logged = 0.0

    @contextmanager
    def showing(self) -> Iterator[ConsoleMonitor]:
        """Show progress bars inside the ``with`` statement, if standard error is a terminal."""
        with self._bars if self._console.is_terminal else nullcontext():
            yield self

    def started(self, result: StageResult) -> None:
        """Start a bar."""
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
        """Print a message for the user."""
        self._line(f"note: {text}")

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Formatter(string.Formatter):
    """``str.format`` with the specs ``bytes``, ``duration`` and ``list``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one value."""
        special: dict[str, Callable[[Any], str]]
        special = {"bytes": human_bytes, "duration": human_seconds, "list": ", ".join}
        return special[format_spec](value) if format_spec in special else format(value, format_spec)


Cell = str | Callable[[Report], object]
"""A template with the keys of a record, such as ``"{nodes:,}"``, or a function of the record."""


def _fill(cell: Cell, record: Report) -> Text:
    """Fill a cell; rich prints it as it is, because brackets in a path or an id are no markup."""
    filled = _Formatter().vformat(cell, (), record) if isinstance(cell, str) else cell(record)
    return Text(str(filled))


def print_facts(report: Report, facts: dict[str, Cell]) -> None:
    """Print names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    for name, cell in facts.items():
        grid.add_row(name, _fill(cell, report))
    _table_console().print(grid, soft_wrap=True)


def print_table(
    records: Iterable[Report], columns: Sequence[tuple[str, Cell]], *, left: Collection[str]
) -> None:
    """Print a row per record; the columns named in `left` are aligned left, all others right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, _ in columns:
        table.add_column(column, justify="left" if column in left else "right")
    for record in records:
        table.add_row(*(_fill(cell, record) for _, cell in columns))
    _table_console().print(table)


def print_stages(report: Report) -> None:
    """Print what each stage took, and the peak memory of each worker process."""
    stages = report.get("plan", {}).get("stages", [])
    planned = {stage["name"]: human_bytes(stage["peak_bytes"]) for stage in stages}
    columns: list[tuple[str, Cell]] = [
        ("stage", "{name}"),
        ("times", "{times:,}"),
        ("blocks", "{blocks:,}"),
        ("done now", "{computed:,}"),
        ("seconds", "{seconds:.1f}"),
        ("read", "{read_bytes:bytes}"),
        ("written", "{written_bytes:bytes}"),
        ("peak memory", lambda s: human_bytes(s["peak_bytes"]) if s["peak_bytes"] else "-"),
        *([("planned", lambda stage: planned.get(stage["name"], ""))] if planned else []),
    ]
    groups = group_by_name(report["stages"])
    print_table([{"name": n, **group} for n, group in groups.items()], columns, left=["stage"])
    for worker in report["workers"]:
        click.echo(f"worker {worker['worker']}: peak {human_bytes(worker['peak_bytes'])}")


def _table_console() -> Console:
    """Console as wide as the terminal; wide enough for all tables where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    return console
