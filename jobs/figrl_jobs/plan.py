"""``figrl plan``: what an embedding would cost.

For example:
  figrl plan --store store --dim 100 --sketch-size 1000
  figrl plan --store store --dim 100 --sketch-size 1000 --memory-limit 1GB
  figrl plan --nodes 1e9 --edges 1e10 --workers 64 --memory 64GB --dim 128 --sketch-size 192
  figrl plan --nodes 1e9 --edges 1e10 --workers 1000 --memory 64GB --simulate

Takes the options of 'figrl embed' and runs nothing; with --nodes and --edges it needs no graph.
Seconds are predicted from built-in rates of a two-core machine, or with --measured-rates from those
of this one. Exit code 5 if the run would not fit the memory of the workers or the free disk.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from figrl.bench.simulate import describe_simulated
from figrl.bench.simulated_stage import Modelled
from figrl.config import make_options
from figrl.engine.available import planned_memory
from figrl.engine.capacity import ClusterMemory
from figrl.engine.cluster_file import read_cluster_config
from figrl.engine.rates import Rates
from figrl.engine.rates import measured_rates as read_rates
from figrl.errors import ConfigError
from figrl.learn.plan import imagined_graph, plan_embedding
from figrl.learn.spec import EmbedOptions
from figrl.store.files import free_bytes
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import existing_store
from figrl.units import parse_memory
from figrl_jobs.console import Cell, Report, print_facts, print_table
from figrl_jobs.options import cluster_option, config_options, job, memory_option

_COUNT = click.FloatRange(1, 1e15)
"""A float, so that it may be written as 1e9."""


@job("plan", __doc__)
@click.option(
    "--store", type=click.Path(file_okay=False), help="Store whose graph would be embedded."
)
@click.option("--nodes", type=_COUNT, help="Nodes of a hypothetical graph.")
@click.option("--edges", type=_COUNT, help="Edges of a hypothetical graph.")
@click.option("--workers", type=int, help="Workers of a hypothetical cluster.")
@click.option("--threads", type=int, help="Threads of each worker.  [default: 8]")
@click.option("--memory", metavar="SIZE", help="Memory of each worker, such as 64GB.")
@click.option(
    "--storage-rate",
    metavar="SIZE",
    help="Bytes a second that the storage gives to all workers together, such as 10GB.",
)
@click.option(
    "--network-rate",
    metavar="SIZE",
    help="Bytes a second between a worker and the storage; default: those of a disk.",
)
@click.option(
    "--simulate",
    "simulated",
    is_flag=True,
    help="Play the stages through, block by block, as the workers would be given them.",
)
@click.option(
    "--measured-rates",
    is_flag=True,
    help="Predict seconds with the rates that 'figrl bench rates' measured on this machine.",
)
@config_options(EmbedOptions)
@memory_option
@cluster_option
def command(
    store: str | None,
    nodes: float | None,
    edges: float | None,
    workers: int | None,
    threads: int | None,
    memory: str | None,
    storage_rate: str | None,
    network_rate: str | None,
    simulated: bool,
    measured_rates: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> Report:
    """Show what an embedding would cost, stage by stage."""
    config = make_options(EmbedOptions, options)
    graph, free = _graph(store, nodes, edges)
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    assumed = ""
    if workers is None and threads is None and memory is None:
        offered = planned_memory(read_cluster_config(cluster), limit)
    else:
        given = {"--workers": workers, "--threads": threads, "--memory": memory or memory_limit}
        missing = [option for option, value in given.items() if value is None]
        assumed = f" (assumed: {', '.join(missing)})" if missing else ""
        size = parse_memory(memory or memory_limit or "16GB")
        offered = ClusterMemory(workers or 1, threads or 8, min(size, limit or size))
    if storage_rate is not None:
        offered = replace(offered, storage_rate=parse_memory(storage_rate))
    if network_rate is not None:
        offered = replace(offered, network_rate=parse_memory(network_rate))
    plan = plan_embedding(graph, config, offered)
    option = "--memory" if memory is not None else "--memory-limit"
    plan.check(free if free is not None else plan.disk_bytes, option)
    rates = read_rates() if measured_rates else None
    report = {**plan.describe(rates), "free_disk_bytes": free, "assumed": assumed}
    if simulated:
        report["simulated"] = describe_simulated(plan, Modelled(offered, rates or Rates()))
    return report


def _graph(store: str | None, nodes: float | None, edges: float | None) -> tuple[Graph, int | None]:
    """Return the graph of a store and its free disk, or a hypothetical graph."""
    if nodes is not None and edges is not None and store is None:
        return imagined_graph(int(nodes), int(edges)), None
    if store is None or nodes is not None or edges is not None:
        raise ConfigError("Give --store, or --nodes and --edges of a hypothetical graph.")
    paths = existing_store(store)
    return open_graph(paths), free_bytes(Path(paths.root))


@command.render
def _render(report: Report) -> None:
    for note in report["notes"]:
        click.echo(f"note: {note}")
    free = "" if report["free_disk_bytes"] is None else " of {free_disk_bytes:bytes} free"
    rates = "measured on this machine" if report["rates"]["measured"] else "of a two-core machine"
    facts: dict[str, Cell] = {
        "graph": "{nodes:,} nodes, {edges:,} edges",
        "vectors": "{dim} dimensions, from a sketch of {sketch_size:,}",
        "cluster": f"{_counted(report['workers'], 'worker')} with "
        f"{_counted(report['threads_per_worker'], 'thread')} and "
        "{memory_limit_bytes:bytes} each" + report["assumed"],
        "memory of a worker": "{peak_worker_bytes:bytes} of {allowed_bytes:bytes} that may be used",
        "disk": "{disk_bytes:bytes}" + free,
        "bytes moved": "{network_bytes:bytes} from and to the store, by all workers together",
        "sketch": _cut(report, "tiling", report["spec"]["width"]),
        "smoothing": _cut(report, "vectors_tiling", report["dim"]),
        "time": f"about {{seconds:duration}}, most of it for {{binds}} (rates {rates})",
        "faster with": "{advice}",
    }
    if not report["spec"]["smoothing"]:
        del facts["smoothing"]
    print_facts(report, facts)
    click.echo("Without ingest, which reads the edges once and sorts them on the disk.")
    columns: list[tuple[str, Cell]] = [
        ("stage", "{name}"),
        ("tasks", "{tasks:,}"),
        ("read", "{read_bytes:bytes}"),
        ("written", "{written_bytes:bytes}"),
        ("flops", "{flops:.2g}"),
        ("memory of a worker", "{peak_bytes:bytes}"),
        ("time", "{seconds:duration}"),
    ]
    print_table(report["stages"], columns, left=["stage"])
    if "simulated" in report:
        _render_simulated(report["simulated"])


def _render_simulated(simulated: Report) -> None:
    click.echo("")
    facts: dict[str, Cell] = {
        "simulated": "{seconds:duration}, block by block, most of it for {binds}"
    }
    print_facts(simulated, facts)
    parts = simulated["seconds_by_part"]
    columns: list[tuple[str, Cell]] = [
        ("stage", "{name}"),
        ("tasks", "{tasks:,}"),
        ("time", "{seconds:duration}"),
        ("binds", "{binds}"),
        *((part, f"{{seconds_by_part[{part}]:duration}}") for part in parts),
    ]
    print_table(simulated["stages"], columns, left=["stage", "binds"])


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cut(report: Report, which: str, columns: int) -> str:
    """How products are cut, in the words of docs/scale.md."""
    tiling = report[which]
    slices = -(-columns // tiling["slice_columns"])
    rows, groups = tiling["operand_rows"], tiling["groups"]
    text = f"{_counted(slices, 'slice')} of {tiling['slice_columns']} columns"
    if groups > 1:
        text += f" x {groups:,} groups of rows"
    if rows < report["nodes"]:
        return f"{text}, the matrix before in parts of {rows:,} rows"
    return f"{text}, in the memory of a worker" if tiling["chain"] else text
