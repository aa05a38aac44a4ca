"""The page of the study: sections of tables and figures in one self-contained HTML file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figrl.serve.page import render_page
from figrl.store.files import write_text
from figrl.study.figures import Curve

Cell = str | float | int | None
Row = Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """A table of the page, open or folded, and the CSV file of the same name."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds a number in any row."""
        return [
            any(isinstance(row[place], int | float) for row in self.rows)
            for place in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Picture:
    """An SVG and its caption."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """Results of one experiment."""

    name: str
    title: str
    text: Sequence[str]
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    skipped: Sequence[str] = ()


def pivot(
    name: str,
    caption: str,
    keys: tuple[str, ...],
    across: str,
    curves: Mapping[tuple[Cell, ...], Curve],
) -> Table:
    """Table of curves: a row for each key, a column for each `x` of any curve."""
    places = sorted({x for curve in curves.values() for x in curve.x})
    first, *others = (f"{x:,g}" for x in places)
    rows = []
    for key, curve in curves.items():
        values = dict(zip(curve.x, curve.y, strict=True))
        rows.append([*key, *(values.get(x) for x in places)])
    return Table(name, caption, (*keys, f"{across} = {first}", *others), rows)


def write_csv(folder: Path, table: Table) -> Path:
    """Write a table with all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    path = folder / f"{table.name}.csv"
    write_text(path, text.getvalue())
    return path


def render(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """Render the page as HTML."""
    return render_page("study.html", title=title, lead=lead, sections=sections, shown=shown)


def shown(cell: Cell) -> str:
    """Format a cell with three significant digits."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3f}" if 0.01 <= abs(cell) < 100 else f"{cell:.3g}"
