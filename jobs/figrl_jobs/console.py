"""The summary of a job on standard output: its result first, then one time, and what is next."""

from __future__ import annotations

import string
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from figrl.engine.stage import group_by_name
from figrl.units import human_bytes, human_seconds
from figrl_jobs.main import STARTED

Report = dict[str, Any]
"""Result of a job, as JSON can hold it."""


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


def is_verbose() -> bool:
    """Whether ``--verbose`` was given."""
    return bool(click.get_current_context().params.get("verbose"))


def finish(*next_commands: str) -> None:
    """Print the last lines: the time since the command began, and what to do next."""
    began = click.get_current_context().meta.get(STARTED)
    if began is not None:
        click.echo(f"Took {human_seconds(time.perf_counter() - began)}.")
    for command in next_commands:
        click.echo(f"Next: {command}")


def print_text(text: str) -> None:
    """Print a paragraph, wrapped to the width of the terminal."""
    console = _table_console()
    click.echo(textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False))


def print_facts(report: Report, facts: dict[str, Cell]) -> None:
    """Print names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in facts.items():
        grid.add_row(name, _fill(cell, report))
    _table_console().print(grid)


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
    """With ``--verbose``, print what each stage took, and the peak memory of each worker."""
    if not is_verbose():
        return
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


def reading_facts(report: Report) -> dict[str, Cell]:
    """What was taken for what: the columns of each format of the input, and its header."""
    facts: dict[str, Cell] = {}
    readings = report.get("input", [])
    for reading in readings:
        name = "columns" if len(readings) == 1 else f"columns of {reading['format']}"
        roles = ("source", "target", "weight", "time")
        used = [f"{role} {reading[role]!r}" for role in roles if reading[role] is not None]
        weight = [] if reading["weight"] is not None else ["no weight"]
        header = "" if reading["header"] else " (no header: numbers of columns)"
        text = ", ".join([*used, *weight]) + header
        # A name may have braces, and is no template.
        facts[name] = text.replace("{", "{{").replace("}", "}}")
    return facts


def print_notes(report: Report) -> None:
    """Print what ingest guessed and may have guessed wrong."""
    for note in report.get("notes", ()):
        print_text(f"note: {note}")


def _table_console() -> Console:
    """Console as wide as the terminal; wide enough for all tables where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    return console
