"""Tables of the report of the quality benchmarks, on the terminal and in a Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figrl.bench.problems import DESCRIPTIVE, MEASURES
from figrl.bench.quality import TIE
from figrl.store.files import write_text
from figrl.units import human_bytes, human_seconds

Record = dict[str, Any]

PARTS = ("quality", "held-back", "options")
"""Parts of the benchmark whose tables can be written to a file, between markers."""

_NONE = "-"


@dataclass(frozen=True)
class Table:
    """A title, names of columns, and rows of text; `best` are places of cells in bold."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()

    @property
    def words(self) -> list[str]:
        """Columns that hold words, not numbers."""
        firsts = zip(self.columns, self.rows[0], strict=True)
        return [name for name, cell in firsts if not cell[:1].isdigit() and cell != _NONE]

    def markdown(self) -> str:
        """Format as Markdown."""
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        for place, row in enumerate(self.rows):
            bold = [(place, column) in self.best for column in range(len(row))]
            cells = [f"**{cell}**" if one else cell for cell, one in zip(row, bold, strict=True)]
            lines.append(_line(cells))
        return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def report_tables(report: Record) -> dict[str, list[Table]]:
    """Tables by part of the benchmark, of the parts that were run."""
    scores = {part: [one for one in report["scores"] if one["part"] == part] for part in PARTS}
    found = {
        "quality": quality_tables(scores["quality"], report),
        "held-back": held_back_tables(report["held_back"]) + _skipped(scores["held-back"]),
        "options": options_tables(scores["options"]),
        "workers": workers_tables(report.get("predicted", [])),
    }
    return {part: tables for part, tables in found.items() if tables}


def quality_tables(scores: Sequence[Record], report: Record) -> list[Table]:
    """Each measure by method and graph; seconds and memory; ratios to the best peer; wins."""
    tables = []
    for measure, title in MEASURES.items():
        having = [one for one in scores if measure in one["measures"]]
        if having:
            ranked = None if measure in DESCRIPTIVE else measure
            tables.append(_pivot(title, having, _value(measure), ranked))
    measured = [one for one in scores if one["skipped"] is None]
    if measured:
        title = "Seconds (load average before the run: {load_average:.1f} on {cores} cores)"
        title = title.format(**report["machine"])
        tables.append(_pivot(title, measured, lambda one: f"{one['seconds']:.3g}"))
        tables.append(_pivot("Peak memory", measured, lambda one: human_bytes(one["peak_bytes"])))
    return [*tables, *_ratios(report["ratios"]), *_wins(report["wins"]), *_skipped(scores)]


def options_tables(scores: Sequence[Record]) -> list[Table]:
    """Each measure and the seconds it took, by options and graph."""
    tables = []
    for measure, title in MEASURES.items():
        having = [one for one in scores if measure in one["measures"]]
        if having:
            both = _value_and_seconds(measure)
            tables.append(_pivot(f"{title}, by options", having, both, measure))
    return [*tables, *_skipped(scores)]


def held_back_tables(found: Sequence[Record]) -> list[Table]:
    """Ratios to the graph learnt whole, by the share of nodes that was folded in."""
    if not found:
        return []
    shares = sorted({one["share"] for one in found})
    rows: dict[tuple[str, str, str], dict[float, Record]] = {}
    for one in found:
        rows.setdefault((one["measure"], one["graph"], one["method"]), {})[one["share"]] = one
    cells = []
    for key, by_share in rows.items():
        whole = next(iter(by_share.values()))["whole"]
        ratios = [f"{by_share[share]['ratio']:.3f}" for share in shares]
        cells.append([*key, f"{whole:.3f}", *ratios])
    columns = [
        "measure",
        "graph",
        "method",
        "learnt whole",
        *(f"{s:.0%} folded in" for s in shares),
    ]
    return [Table("Nodes folded in, as a ratio to the graph learnt whole", columns, cells)]


def workers_tables(found: Sequence[Record]) -> list[Table]:
    """Simulated runs, by graph and number of workers."""
    rows = [
        [
            f"{_power(one['nodes'])}, {_power(one['edges'])}",
            f"{one['workers']:,}",
            one["sketch"],
            one["smoothing"],
            human_bytes(one["moved_bytes"]),
            f"{one['tasks']:,}",
            human_seconds(one["seconds"]),
            one["binds"],
            human_seconds(one["network_seconds"]),
            human_seconds(one["storage_seconds"]),
        ]
        for one in found
    ]
    columns = [
        *("nodes, edges", "workers", "sketch", "smoothing", "bytes moved", "tasks"),
        *("a disk each", "binds", "12.5 GB/s each", "100 GB/s for all"),
    ]
    return [Table("Simulated runs on many workers", columns, rows)] if rows else []


def _power(number: int) -> str:
    return f"10^{len(str(number)) - 1}"


def _value(measure: str) -> Callable[[Record], str]:
    return lambda one: f"{one['measures'][measure]:.3f}"


def _value_and_seconds(measure: str) -> Callable[[Record], str]:
    return lambda one: f"{one['measures'][measure]:.3f} in {one['seconds']:.3g} s"


def _pivot(
    title: str, scores: Sequence[Record], shown: Callable[[Record], str], measure: str | None = None
) -> Table:
    """A row for each method, a column for each graph; the largest value of a measure is bold.

    Where a method learnt from several parts of a graph, the first counts.
    """
    graphs = list(dict.fromkeys(one["graph"] for one in scores))
    methods = list(dict.fromkeys(one["method"] for one in scores))
    by_place = {
        (methods.index(one["method"]), 1 + graphs.index(one["graph"])): one
        for one in reversed(scores)
    }
    rows = [
        [
            method,
            *(
                shown(by_place[row, column]) if (row, column) in by_place else _NONE
                for column in range(1, 1 + len(graphs))
            ),
        ]
        for row, method in enumerate(methods)
    ]
    best = set()
    for column in range(1, 1 + len(graphs)) if measure is not None else ():
        values = {at: one["measures"][measure] for at, one in by_place.items() if at[1] == column}
        least = max(values.values()) - TIE
        best |= {at for at, value in values.items() if value >= least}
    return Table(title, ["method", *graphs], rows, frozenset(best))


def _ratios(ratios: Sequence[Record]) -> list[Table]:
    if not ratios:
        return []
    own = list(dict.fromkeys(name for one in ratios for name in one["ratios"]))
    columns = ["measure", "graph", "best peer", "its score"]
    columns += [f"{name} / peer{what}" for name in own for what in ("", ", seconds")]
    columns.append("skipped")
    rows = [
        [one["measure"], one["graph"], one["best_peer"], f"{one['best']:.3f}"]
        + [_ratio(one[what], name) for name in own for what in ("ratios", "seconds_ratios")]
        + [", ".join(one["skipped"])]
        for one in ratios
    ]
    return [Table("figrl compared with the best peer of each graph and measure", columns, rows)]


def _ratio(values: dict[str, float], name: str) -> str:
    return f"{values[name]:.3f}" if name in values else _NONE


def _wins(wins: dict[str, Record]) -> list[Table]:
    rows = [[name, f"{one['won']} of {one['of']}"] for name, one in wins.items()]
    title = "Graphs and measures on which no peer that was measured is better"
    return [Table(title, ["method", "best"], rows)] if rows else []


def _skipped(scores: Sequence[Record]) -> list[Table]:
    keys = ("graph", "method", "learnt", "skipped")
    rows = [[one[key] for key in keys] for one in scores if one["skipped"] is not None]
    columns = ["graph", "method", "learnt from", "reason"]
    return [Table("Skipped", columns, rows)] if rows else []


def write_tables(report: Record, path: Path) -> None:
    """Write the tables of each part that was run between its markers in a Markdown file.

    Markers that are not there are added at the end.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for part, tables in report_tables(report).items():
        first, last = (f"<!-- {place} of figrl bench {part} -->" for place in ("begin", "end"))
        inside = "\n\n".join([first, *(table.markdown() for table in tables), last])
        before, _, rest = text.partition(first)
        _, ends, after = rest.partition(last)
        text = f"{before}{inside}{after}" if ends else f"{text}\n{inside}\n"
    write_text(path, text)
