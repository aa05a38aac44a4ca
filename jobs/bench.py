"""``figrl bench``: ours and the alternatives in one go."""

from __future__ import annotations

from collections.abc import Callable
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
from pipeline.study.bench.ingest import bench_ingest
from pipeline.study.bench.lines import Line
from pipeline.study.bench.sketch import bench_product, bench_regenerate

_PARTS: dict[str, list[Callable[..., list[Line]]]] = {
    "factor": [bench_factor],
    "sketch": [bench_regenerate, bench_product, bench_workers],
    "ingest": [bench_ingest],
    "embed": [bench_embed],
    "fold-in": [bench_fold_in],
    "limit": [bench_limit],
}
_NEED_DATA = (bench_product, bench_workers, bench_embed, bench_limit)


@click.command(
    "bench",
    epilog="""
\b
Examples:
  figrl bench factor
  figrl bench sketch embed --data graphs/ --json
  figrl bench rates                   measure this machine, for 'figrl plan'
\b
Each comparison runs ours and the alternative one after the other, each in a process of its own.
Ratios are theirs to ours: above 1, ours is faster, or takes less memory. 'ingest' needs the extra
[bench]; parts on com-dblp need --data.
""",
)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*_PARTS, "rates"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    type=click.Path(file_okay=False, exists=True),
    help="Folder with com-dblp.txt.gz; default: the one that FIGRL_DATA names.",
)
@json_option
def command(parts: tuple[str, ...], data: str | None, as_json: bool) -> None:
    """Measure PARTS against the alternatives and print the ratios."""
    lines: list[Line] = []
    report: dict[str, Any] = {}
    if "rates" in parts:
        report["rates"] = asdict(measure_rates())
    for bench in (bench for part in parts for bench in _PARTS.get(part, [])):
        if bench not in _NEED_DATA:
            lines += bench()
        elif data is not None:
            lines += bench(Path(data))
        else:
            click.echo(f"skipped: {bench.__name__} needs --data", err=True)
    report["lines"] = [line.describe() for line in lines]
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if "rates" in report:
        facts({name: f"{value:.3g}" for name, value in report["rates"].items()})
    if not report["lines"]:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("what", "against", "ours", "theirs", "faster", "goal", "memory", "less", "goal"):
        table.add_column(column, justify="left" if column in ("what", "against") else "right")
    for line in report["lines"]:
        memory, goal = line["memory_ratio"], line["wanted_memory"]
        table.add_row(
            line["what"],
            line["other"],
            f"{line['seconds']:.3g} s",
            f"{line['other_seconds']:.3g} s",
            f"{line['speedup']:.2f} x",
            f"{line['wanted']:.2g} x",
            human_bytes(line["peak_bytes"]) if memory else "",
            f"{memory:.2f} x" if memory else "",
            f"{goal:.2g} x" if goal else "",
        )
    table_console().print(table)
