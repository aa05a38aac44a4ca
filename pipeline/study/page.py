"""The page of the study: sections of tables and pictures, in one HTML file that needs no other."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.files import write_text

Cell = str | float | int | None

_STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#222933;background:#fff;margin:0 auto;
max-width:72rem;padding:1rem}
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.25rem;margin:2.6rem 0 .4rem}
h3,summary{font-size:1rem;font-weight:600;margin:1.2rem 0 .3rem}
p{margin:.4rem 0;max-width:52rem}.lead{color:#556070}
nav a{margin-right:1rem;white-space:nowrap}a{color:#2f55b8}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1.5rem}
figure{margin:0;max-width:36rem}figcaption{color:#556070;font-size:.88rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem}
th,td{text-align:left;padding:.22rem .9rem .22rem 0;border-bottom:1px solid #e3e7ee;
vertical-align:top}
td:first-child{white-space:nowrap}
th{vertical-align:bottom}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.n{white-space:nowrap}
"""


@dataclass(frozen=True)
class Table:
    """A table of the page, open or folded away, and the CSV of the same name."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture, with a sentence that says what to see."""

    svg: str
    sentence: str


@dataclass(frozen=True)
class Section:
    """What one experiment found."""

    name: str
    title: str
    text: Sequence[str]
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    skipped: Sequence[str] = field(default=())


def pivot(
    name: str,
    caption: str,
    keys: tuple[str, ...],
    across: str,
    cells: Mapping[tuple[Cell, ...], Mapping[float, Cell]],
) -> Table:
    """A table with a row for each key and a column for each of the values that are met `across`."""
    places = sorted({place for row in cells.values() for place in row})
    first, *others = (f"{place:,g}" for place in places)
    rows = [[*key, *(row.get(place) for place in places)] for key, row in cells.items()]
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
    """The page itself."""
    links = "".join(
        f"<a href='#{section.name}'>{html.escape(section.title)}</a> " for section in sections
    )
    body = "".join(_section(section) for section in sections)
    paragraphs = "".join(f"<p class=lead>{html.escape(text)}</p>" for text in lead)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        "<link rel=icon href='data:,'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{paragraphs}<nav>{links}</nav>{body}</body></html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<h2 id='{section.name}'>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(text)}</p>" for text in section.text]
    if section.skipped:
        parts.append(f"<p>Not here: {html.escape('; '.join(section.skipped))}.</p>")
    pictures = "".join(
        f"<figure>{picture.svg}<figcaption>{html.escape(picture.sentence)}</figcaption></figure>"
        for picture in section.pictures
    )
    if pictures:
        parts.append(f"<div class=grid>{pictures}</div>")
    parts += [_table(table) for table in section.tables]
    return "".join(parts)


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[place], int | float) for row in table.rows)
        for place in range(len(table.columns))
    ]
    head = "".join(
        f"<th{' class=n' if right else ''}>{html.escape(name)}</th>"
        for name, right in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if right else ''}>{html.escape(shown(cell))}</td>"
            for cell, right in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    caption = html.escape(table.caption)
    body = (
        f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"
        f"<p class=lead>csv/{html.escape(table.name)}.csv</p>"
    )
    if table.folded:
        return f"<details><summary>{caption}</summary>{body}</details>"
    return f"<h3>{caption}</h3>{body}"


def shown(cell: Cell) -> str:
    """A cell for a person: three digits are enough."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3f}" if 0.01 <= abs(cell) < 100 else f"{cell:.3g}"
