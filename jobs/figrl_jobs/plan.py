"""``figrl plan``: what an embedding would cost.

For example:
  figrl plan --store store --dim 100 --sketch-size 1000
  figrl plan --store store --dim 100 --sketch-size 1000 --memory-limit 1GB
  figrl plan --nodes 1e9 --edges 1e10 --workers 64 --memory 64GB --dim 128 --sketch-size 192

Takes the options of 'figrl embed' and runs nothing; with --nodes and --edges it needs no graph.
Seconds are predicted from built-in rates of a two-core machine, or with --measured-rates from those
of this one. Exit code 5 if the run would not fit the memory of the workers or the free disk.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from figrl.config import make_options
from figrl.engine.capacity import ClusterMemory, planned_memory
from figrl.engine.cluster_file import read_cluster_config
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
    measured_rates: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> Report:
    """Show tasks, bytes, flops, memory, disk and seconds of each stage of an embedding."""
    config = make_options(EmbedOptions, options)
    graph, free = _graph(store, nodes, edges)
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    if workers is None and threads is None and memory is None:
        offered = planned_memory(read_cluster_config(cluster), limit)
    else:
        size = parse_memory(memory or memory_limit or "16GB")
        offered = ClusterMemory(workers or 1, threads or 8, min(size, limit or size))
    if storage_rate is not None:
        offered = replace(offered, storage_rate=parse_memory(storage_rate))
    plan = plan_embedding(graph, config, offered)
    plan.check(free if free is not None else plan.disk_bytes)
    rates = read_rates() if measured_rates else None
    return {**plan.describe(rates), "free_disk_bytes": free}


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
        "cluster": "{workers} workers x {threads_per_worker} threads, "
        "{memory_limit_bytes:bytes} each",
        "memory of a worker": "{peak_worker_bytes:bytes} of {allowed_bytes:bytes} that may be used",
        "disk": "{disk_bytes:bytes}" + free,
        "network": "{network_bytes:bytes} to and from the store",
        "slices": "{tiling[slice_columns]} columns of the sketch at a time, "
        "{tiling[operand_rows]:,} rows of the operand",
        "time": f"about {{seconds:duration}}, most of it for {{binds}} (rates {rates})",
        "faster with": "{advice}",
    }
    print_facts(report, facts)
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
