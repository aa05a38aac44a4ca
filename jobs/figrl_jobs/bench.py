"""``figrl bench``: figrl beside the alternatives.

For example:
  figrl bench factor
  figrl bench sketch embed --data graphs/ --json
  figrl bench growth --preset accurate --plot growth.png
  figrl bench quality --data graphs/ --graph PPI --method figrl --method pycleora
  figrl bench quality held-back options --data graphs/ --plot quality.png --write docs/quality.md
  figrl bench simulate                a simulation beside runs on 1, 2 and 4 workers
  figrl bench workers --write docs/scale.md     simulated: up to 10^11 edges and 1,000 workers
  figrl bench rates                   rates of this machine, for 'figrl plan --measured-rates'

Each comparison runs figrl and the alternative one after the other, each in its own process.
Ratios are theirs to ours: above 1, figrl is faster or takes less memory. 'ingest' and --plot need
the extra [bench], the peers of 'quality' the extra [peers]; parts on real graphs need --data.
'growth' goes up to 100 million edges and takes a quarter of an hour and 25 GB of disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from inspect import signature
from operator import itemgetter
from pathlib import Path

import click

from figrl.bench.checks import bench_checks
from figrl.bench.embed import bench_embed, bench_limit
from figrl.bench.factor import bench_factor
from figrl.bench.fold_in import bench_fold_in
from figrl.bench.growth import bench_growth
from figrl.bench.held_back import bench_held_back
from figrl.bench.ingest import bench_ingest
from figrl.bench.methods import METHODS
from figrl.bench.nights import bench_nights
from figrl.bench.options import bench_options
from figrl.bench.plot import plot_report
from figrl.bench.problems import CASES, MEASURES
from figrl.bench.quality import bench_quality, compare_with_peers
from figrl.bench.rates import measure_rates
from figrl.bench.results import Comparison, HeldBack, Metric, Score
from figrl.bench.scale import bench_scale
from figrl.bench.selection import TIMEOUT_SECONDS, Selection
from figrl.bench.simulated_runs import Predicted, bench_simulate, bench_workers
from figrl.bench.sketch import bench_product, bench_regenerate
from figrl.bench.storage import bench_storage
from figrl.bench.tables import PARTS, report_tables, write_tables
from figrl.learn.spec import PRESETS
from figrl.units import human_bytes
from figrl_jobs.console import Cell, Report, print_facts, print_table
from figrl_jobs.options import job

Result = Comparison | Metric | Score | HeldBack | Predicted

_PARTS: dict[str, Sequence[Callable[..., Sequence[Result]]]] = {
    "factor": [bench_factor],
    "sketch": [bench_regenerate, bench_product],
    "ingest": [bench_ingest],
    "embed": [bench_embed],
    "fold-in": [bench_fold_in],
    "growth": [bench_growth],
    "limit": [bench_limit],
    "scale": [bench_scale],
    "simulate": [bench_simulate],
    "workers": [bench_workers],
    "quality": [bench_quality],
    "options": [bench_options],
    "held-back": [bench_held_back],
    "nights": [bench_nights],
    "storage": [bench_storage],
    "checks": [bench_checks],
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
    "figures": [
        ("what", "{what}"),
        ("measured", "{value:.3g} {unit}"),
        ("goal", lambda f: f"{'at least' if f['at_least'] else 'at most'} {f['limit']:.3g}"),
        ("reached", lambda f: "yes" if f["reached"] else "no"),
        ("from", "{detail}"),
    ],
}

_KINDS: dict[str, type[Result]] = {
    "lines": Comparison,
    "figures": Metric,
    "held_back": HeldBack,
    "predicted": Predicted,
}
"""Names of lists of results in the report."""


@job("bench", __doc__)
@click.argument("parts", nargs=-1, required=True, type=click.Choice([*_PARTS, "rates"]))
@click.option(
    "--data",
    envvar="FIGRL_DATA",
    type=click.Path(file_okay=False, exists=True),
    help="Folder of real graphs, such as com-dblp.txt.gz; default: $FIGRL_DATA.",
)
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    type=click.Choice([case.graph for case in CASES]),
    help="Only this graph of quality, held-back and options; may be repeated.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    type=click.Choice([method.name for method in METHODS]),
    help="Only this method of quality and held-back; may be repeated.",
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    type=click.Choice(list(MEASURES)),
    help="Only this measure of quality, held-back and options; may be repeated.",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    default=TIMEOUT_SECONDS,
    show_default=True,
    help="Skip a method of quality, held-back or options that takes longer.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="accurate",
    show_default=True,
    help="Preset that growth embeds with.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    help="Plot the results to this file (.png, .svg or .pdf).",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False),
    help="Write the tables of quality, held-back, options and workers to this Markdown file, "
    "between its markers.",
)
def command(
    parts: tuple[str, ...],
    data: str | None,
    plot: str | None,
    write: str | None,
    timeout: float,
    preset: str,
    **restricted: tuple[str, ...],
) -> Report:
    """Measure PARTS against the alternatives and print the ratios."""
    given: dict[str, object] = {"preset": preset}
    if data is not None:
        notify = partial(click.echo, err=True)
        chosen = Selection(Path(data), **restricted, timeout_seconds=timeout, notify=notify)
        given |= {"data": Path(data), "selection": chosen}
    results: list[tuple[str, Result]] = []
    machine = _machine()
    report: Report = {}
    if "rates" in parts:
        report["rates"] = asdict(measure_rates())
    for part, bench in [(name, bench) for name in parts for bench in _PARTS.get(name, [])]:
        needed = {"data", "selection", "preset"} & set(signature(bench).parameters)
        if needed - set(given):
            click.echo(f"skipped: {bench.__name__} needs --data", err=True)
            continue
        click.echo(f"{bench.__name__.replace('_', ' ')} ...", err=True)
        results += [(part, result) for result in bench(**{name: given[name] for name in needed})]
        if write is not None:
            # Each part as soon as it is done: together they take hours.
            write_tables(_describe(results, machine), Path(write))
    report |= _describe(results, machine)
    if plot is not None:
        plot_report(report, Path(plot))
    return report


def _machine() -> Report:
    """Cores and load of the machine; on a busy one seconds are too long, and methods skipped."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        text = f"note: the load average is {load:.1f} on {cores} cores: seconds will be too long, "
        click.echo(text + "and methods may be skipped for the time limit", err=True)
    return {"cores": cores, "load_average": load}


def _describe(results: Sequence[tuple[str, Result]], machine: Report) -> Report:
    """Results as JSON: those of a kind in one list; figrl's scores compared with the peers'."""
    report: Report = {"machine": machine}
    report |= {
        name: [result.describe() for _, result in results if isinstance(result, kind)]
        for name, kind in _KINDS.items()
    }
    scores = [(part, result) for part, result in results if isinstance(result, Score)]
    report["scores"] = [{"part": part, **score.describe()} for part, score in scores]
    return report | compare_with_peers([score for part, score in scores if part == "quality"])


@command.render
def _render(report: Report) -> None:
    if "rates" in report:
        print_facts(report["rates"], {name: f"{{{name}:.3g}}" for name in report["rates"]})
    for name, columns in _TABLES.items():
        if report[name]:
            print_table(report[name], columns, left=["what", "against", "reached", "from"])
    for table in (table for tables in report_tables(report).values() for table in tables):
        click.echo(f"\n{table.title}")
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        cells: list[tuple[str, Cell]] = [(name, itemgetter(name)) for name in table.columns]
        print_table(rows, cells, left=table.words)
    for score in report["scores"]:
        if score["skipped"] and score["part"] not in PARTS:
            click.echo(f"skipped: {score['method']}: {score['skipped']}")
