"""``figrl bench``: ours and the alternatives in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from jobs.console import emit, facts, table_console
from jobs.options import json_option
from pipeline.measure import human_bytes
from pipeline.rates import measure_rates
from pipeline.study.bench.embed import bench_embed, bench_limit, bench_workers
from pipeline.study.bench.factor import bench_factor
from pipeline.study.bench.fold_in import bench_fold_in
from pipeline.study.bench.growth import bench_growth
from pipeline.study.bench.held_back import bench_held_back
from pipeline.study.bench.ingest import bench_ingest
from pipeline.study.bench.lines import Figure, Line, Score
from pipeline.study.bench.nights import bench_nights
from pipeline.study.bench.plot import plot_report
from pipeline.study.bench.projection import bench_projection
from pipeline.study.bench.quality import bench_options, bench_quality
from pipeline.study.bench.sketch import bench_product, bench_regenerate
from pipeline.study.bench.storage import bench_storage

_PARTS: dict[str, Sequence[Callable[..., Sequence[Line | Figure | Score]]]] = {
    "factor": [bench_factor],
    "sketch": [bench_regenerate, bench_product, bench_workers],
    "ingest": [bench_ingest],
    "embed": [bench_embed],
    "fold-in": [bench_fold_in],
    "growth": [bench_growth],
    "limit": [bench_limit],
    "projection": [bench_projection],
    "quality": [bench_quality],
    "options": [bench_options],
    "held-back": [bench_held_back],
    "nights": [bench_nights],
    "storage": [bench_storage],
}
_NEED_DATA = (
    bench_product,
    bench_embed,
    bench_projection,
    bench_quality,
    bench_options,
    bench_held_back,
    bench_nights,
)


@click.command(
    "bench",
    epilog="""
\b
Examples:
  figrl bench factor
  figrl bench sketch embed --data graphs/ --json
  figrl bench growth --plot growth.png
  figrl bench quality held-back --data graphs/ --plot quality.png
  figrl bench rates                   measure this machine, for 'figrl plan'
\b
Each comparison runs ours and the alternative one after the other, each in a process of its own.
Ratios are theirs to ours: above 1, ours is faster, or takes less memory. 'ingest' and --plot need
the extra [bench], the peers of 'quality' the extra [peers]; parts on real graphs need --data.
'growth' goes up to 100 million edges: it takes a quarter of an hour and 25 GB of disk.
""",
)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*_PARTS, "rates"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    type=click.Path(file_okay=False, exists=True),
    help="Folder of real graphs, such as com-dblp.txt.gz; default: the one FIGRL_DATA names.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    help="Draw the lines to this file (.png, .svg or .pdf).",
)
@json_option
def command(parts: tuple[str, ...], data: str | None, plot: str | None, as_json: bool) -> None:
    """Measure PARTS against the alternatives and print the ratios."""
    lines: list[Line | Figure | Score] = []
    report: dict[str, Any] = {}
    if "rates" in parts:
        report["rates"] = asdict(measure_rates())
    for bench in (bench for part in parts for bench in _PARTS.get(part, [])):
        if bench in _NEED_DATA and data is None:
            click.echo(f"skipped: {bench.__name__} needs --data", err=True)
            continue
        click.echo(f"{bench.__name__.replace('_', ' ')} ...", err=True)
        lines += bench(Path(str(data))) if bench in _NEED_DATA else bench()
    report["lines"] = [line.describe() for line in lines if isinstance(line, Line)]
    report["figures"] = [line.describe() for line in lines if isinstance(line, Figure)]
    report["scores"] = [line.describe() for line in lines if isinstance(line, Score)]
    if plot is not None:
        plot_report(report, Path(plot))
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if "rates" in report:
        facts({name: f"{value:.3g}" for name, value in report["rates"].items()})
    if report["lines"]:
        table_console().print(_lines_table(report["lines"]))
    if report["scores"]:
        table_console().print(_scores_table(report["scores"]))
    if report["figures"]:
        table_console().print(_figures_table(report["figures"]))


def _scores_table(scores: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("graph", "method", "modularity", "NMI", "seconds", "memory"):
        table.add_column(column, justify="left" if column in ("graph", "method") else "right")
    for score in scores:
        if score["skipped"] is not None:
            table.add_row(score["graph"], score["method"], f"skipped: {score['skipped']}")
            continue
        table.add_row(
            score["graph"],
            score["method"],
            f"{score['modularity']:.3f}",
            "" if score["nmi"] is None else f"{score['nmi']:.3f}",
            f"{score['seconds']:.3g}",
            human_bytes(score["peak_bytes"]),
        )
    return table


def _figures_table(figures: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("what", "measured", "goal", "reached", "from"):
        table.add_column(column, justify="right" if column in ("measured", "goal") else "left")
    for figure in figures:
        bound = "at least" if figure["at_least"] else "at most"
        table.add_row(
            figure["what"],
            f"{figure['value']:.3g} {figure['unit']}",
            f"{bound} {figure['limit']:.3g}",
            "yes" if figure["reached"] else "no",
            figure["detail"],
        )
    return table


def _lines_table(lines: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("what", "against", "ours", "theirs", "faster", "goal", "memory", "less", "goal"):
        table.add_column(column, justify="left" if column in ("what", "against") else "right")
    for line in lines:
        memory, goal = line["memory_ratio"], line["wanted_memory"]
        table.add_row(
            line["what"],
            line["other"],
            f"{line['seconds']:.3g} s",
            f"{line['other_seconds']:.3g} s",
            f"{line['speedup']:.2f} x",
            f"{line['wanted']:.3g} x",
            human_bytes(line["peak_bytes"]) if memory else "",
            f"{memory:.2f} x" if memory else "",
            f"{goal:.2g} x" if goal else "",
        )
    return table
