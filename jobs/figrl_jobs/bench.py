"""``figrl bench``: figrl beside the alternatives.

For example:
  figrl bench factor
  figrl bench sketch embed --data graphs/ --json
  figrl bench growth --plot growth.png
  figrl bench quality held-back --data graphs/ --plot quality.png
  figrl bench rates                   rates of this machine, for 'figrl plan --measured-rates'

Each comparison runs figrl and the alternative one after the other, each in its own process.
Ratios are theirs to ours: above 1, figrl is faster or takes less memory. 'ingest' and --plot need
the extra [bench], the peers of 'quality' the extra [peers]; parts on real graphs need --data.
'growth' goes up to 100 million edges and takes a quarter of an hour and 25 GB of disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from inspect import signature
from pathlib import Path

import click

from figrl.bench.embed import bench_embed, bench_limit, bench_workers
from figrl.bench.factor import bench_factor
from figrl.bench.fold_in import bench_fold_in
from figrl.bench.growth import bench_growth
from figrl.bench.ingest import bench_ingest
from figrl.bench.nights import bench_nights
from figrl.bench.plot import plot_report
from figrl.bench.quality import bench_held_back, bench_options, bench_quality
from figrl.bench.rates import measure_rates
from figrl.bench.results import Comparison, Metric, Score
from figrl.bench.sketch import bench_product, bench_regenerate
from figrl.bench.storage import bench_storage
from figrl.units import human_bytes
from figrl_jobs.console import Cell, Report, print_facts, print_table
from figrl_jobs.options import job

_PARTS: dict[str, Sequence[Callable[..., Sequence[Comparison | Metric | Score]]]] = {
    "factor": [bench_factor],
    "sketch": [bench_regenerate, bench_product, bench_workers],
    "ingest": [bench_ingest],
    "embed": [bench_embed],
    "fold-in": [bench_fold_in],
    "growth": [bench_growth],
    "limit": [bench_limit],
    "quality": [bench_quality],
    "options": [bench_options],
    "held-back": [bench_held_back],
    "nights": [bench_nights],
    "storage": [bench_storage],
}

_TABLES: dict[str, Sequence[tuple[str, Cell]]] = {
    "lines": [
        ("what", "{what}"),
        ("against", "{other}"),
        ("ours", "{seconds:.3g} s"),
        ("theirs", "{other_seconds:.3g} s"),
        ("faster", "{speedup:.2f} x"),
        ("goal", "{wanted:.3g} x"),
        ("memory", lambda line: human_bytes(line["peak_bytes"]) if line["memory_ratio"] else ""),
        ("less", lambda line: f"{line['memory_ratio']:.2f} x" if line["memory_ratio"] else ""),
        ("goal", lambda line: f"{line['wanted_memory']:.2g} x" if line["wanted_memory"] else ""),
    ],
    "scores": [
        ("graph", "{graph}"),
        ("method", "{method}"),
        (
            "modularity",
            lambda s: f"skipped: {s['skipped']}" if s["skipped"] else f"{s['modularity']:.3f}",
        ),
        ("NMI", lambda s: "" if s["nmi"] is None else f"{s['nmi']:.3f}"),
        ("seconds", lambda s: "" if s["skipped"] else f"{s['seconds']:.3g}"),
        ("memory", lambda s: "" if s["skipped"] else human_bytes(s["peak_bytes"])),
    ],
    "figures": [
        ("what", "{what}"),
        ("measured", "{value:.3g} {unit}"),
        ("goal", lambda f: f"{'at least' if f['at_least'] else 'at most'} {f['limit']:.3g}"),
        ("reached", lambda f: "yes" if f["reached"] else "no"),
        ("from", "{detail}"),
    ],
}


@job("bench", __doc__)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*_PARTS, "rates"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    type=click.Path(file_okay=False, exists=True),
    help="Folder of real graphs, such as com-dblp.txt.gz; default: $FIGRL_DATA.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    help="Plot the results to this file (.png, .svg or .pdf).",
)
def command(parts: tuple[str, ...], data: str | None, plot: str | None) -> Report:
    """Measure PARTS against the alternatives and print the ratios."""
    results: list[Comparison | Metric | Score] = []
    report: Report = {}
    if "rates" in parts:
        report["rates"] = asdict(measure_rates())
    for bench in (bench for part in parts for bench in _PARTS.get(part, [])):
        needs_data = "data" in signature(bench).parameters
        if needs_data and data is None:
            click.echo(f"skipped: {bench.__name__} needs --data", err=True)
            continue
        click.echo(f"{bench.__name__.replace('_', ' ')} ...", err=True)
        results += bench(Path(str(data))) if needs_data else bench()
    for name, kind in (("lines", Comparison), ("figures", Metric), ("scores", Score)):
        report[name] = [result.describe() for result in results if isinstance(result, kind)]
    if plot is not None:
        plot_report(report, Path(plot))
    return report


@command.render
def _render(report: Report) -> None:
    if "rates" in report:
        print_facts(report["rates"], {name: f"{{{name}:.3g}}" for name in report["rates"]})
    for name, columns in _TABLES.items():
        if report[name]:
            left = ["what", "against", "graph", "method", "reached", "from"]
            print_table(report[name], columns, left=left)
