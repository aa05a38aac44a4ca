"""``figrl plan``: what an embedding would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from jobs.console import emit, facts, table_console
from jobs.embed import EMBED_OPTIONS
from jobs.options import config_options, running_options
from pipeline.cluster import parse_memory, planned_memory, read_cluster_config
from pipeline.config import EmbedConfig, make_config
from pipeline.errors import ConfigError
from pipeline.files import free_bytes
from pipeline.graph import Graph, open_graph
from pipeline.measure import human_bytes, human_seconds
from pipeline.plan import imagined_graph, plan_embedding
from pipeline.run import ClusterMemory
from pipeline.store import existing_store

_COUNT = click.FloatRange(1, 1e15)
"""A float, so that it may be written as 1e9."""


@click.command(
    "plan",
    epilog="""
\b
Examples:
  figrl plan --store store --dim 100 --sketch-size 1000
  figrl plan --store store --dim 100 --sketch-size 1000 --memory-limit 1GB
  figrl plan --nodes 1e9 --edges 1e10 --workers 64 --memory 64GB --dim 128 --sketch-size 192
\b
Takes the options of 'figrl embed' and runs nothing; with --nodes and --edges it needs no graph.
Seconds come from rates that 'figrl bench rates' measures on this machine. Ends with exit code 5 if
the run would not fit the memory of the workers or the free disk.
""",
)
@click.option(
    "--store", type=click.Path(file_okay=False), help="Store whose graph would be embedded."
)
@click.option("--nodes", type=_COUNT, help="Nodes of a graph that is only imagined.")
@click.option("--edges", type=_COUNT, help="Edges of a graph that is only imagined.")
@click.option("--workers", type=int, help="Workers of a cluster that is only imagined.")
@click.option("--threads", type=int, help="Threads of each of them.  [default: 8]")
@click.option("--memory", metavar="SIZE", help="Memory of each of them, such as 64GB.")
@config_options(EmbedConfig, *EMBED_OPTIONS)
@running_options
def command(
    store: str | None,
    nodes: float | None,
    edges: float | None,
    workers: int | None,
    threads: int | None,
    memory: str | None,
    as_json: bool,
    cluster: str | None,
    memory_limit: str | None,
    **options: Any,
) -> None:
    """Tell tasks, bytes, flops, memory, disk and seconds of each stage of an embedding."""
    config = make_config(EmbedConfig, options)
    graph, free = _graph(store, nodes, edges)
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    if workers is not None or memory is not None:
        size = parse_memory(memory or memory_limit or "16GB")
        offered = ClusterMemory(workers or 1, threads or 8, size)
    else:
        offered = planned_memory(read_cluster_config(cluster), limit)
    plan = plan_embedding(graph, config, offered)
    plan.check(free if free is not None else plan.disk_bytes)
    report = {**plan.describe(), "free_disk_bytes": free}
    emit(report, as_json=as_json, render=_render)


def _graph(store: str | None, nodes: float | None, edges: float | None) -> tuple[Graph, int | None]:
    """The graph of a store and the disk that is free there, or a graph of the size given."""
    if nodes is not None and edges is not None and store is None:
        return imagined_graph(int(nodes), int(edges)), None
    if store is None or nodes is not None or edges is not None:
        raise ConfigError("Give --store, or --nodes and --edges for a graph that is imagined.")
    paths = existing_store(store)
    return open_graph(paths), free_bytes(Path(paths.root))


def _render(report: dict[str, Any]) -> None:
    for note in report["notes"]:
        click.echo(f"note: {note}")
    free = report["free_disk_bytes"]
    rates = "measured here" if report["rates"]["measured"] else "of a two-core machine"
    facts(
        {
            "graph": f"{report['nodes']:,} nodes, {report['edges']:,} edges",
            "vectors": f"{report['dim']} dimensions, from a sketch of {report['sketch_size']:,}",
            "cluster": (
                f"{report['workers']} workers x {report['threads_per_worker']} threads, "
                f"{human_bytes(report['memory_limit_bytes'])} each"
            ),
            "memory of a worker": (
                f"{human_bytes(report['peak_worker_bytes'])} of "
                f"{human_bytes(report['allowed_bytes'])} that may be used"
            ),
            "disk": human_bytes(report["disk_bytes"])
            + (f" of {human_bytes(free)} free" if free is not None else ""),
            "network": f"{human_bytes(report['network_bytes'])} to and from the store",
            "slices": (
                f"{report['tiling']['slice_columns']} columns of the sketch at a time, "
                f"{report['tiling']['operand_rows']:,} rows of the operand"
            ),
            "time": (
                f"about {human_seconds(report['seconds'])}, most of it for {report['binds']} "
                f"(rates {rates})"
            ),
        }
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", "tasks", "read", "written", "flops", "memory of a worker", "time"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in report["stages"]:
        table.add_row(
            stage["name"],
            f"{stage['tasks']:,}",
            human_bytes(stage["read_bytes"]),
            human_bytes(stage["written_bytes"]),
            f"{stage['flops']:.2g}",
            human_bytes(stage["peak_bytes"]),
            human_seconds(stage["seconds"]),
        )
    table_console().print(table)
