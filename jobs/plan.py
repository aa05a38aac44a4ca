"""``figrl plan``: what an embedding would cost."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from jobs.console import emit, facts, table_console
from jobs.embed import EMBED_OPTIONS
from jobs.options import config_options, running_options, store_option
from pipeline.cluster import parse_memory, planned_memory, read_cluster_config
from pipeline.config import EmbedConfig, make_config
from pipeline.files import free_bytes
from pipeline.graph import open_graph
from pipeline.measure import human_bytes
from pipeline.plan import plan_embedding
from pipeline.store import existing_store


@click.command(
    "plan",
    epilog="""
\b
Examples:
  figrl plan --store store --dim 100 --sketch-size 1000
  figrl plan --store store --dim 100 --sketch-size 1000 --memory-limit 1GB
\b
Takes the options of 'figrl embed' and runs nothing. Ends with exit code 5 if the run would not fit
the memory of the workers or the free disk.
""",
)
@store_option
@config_options(EmbedConfig, *EMBED_OPTIONS)
@running_options
def command(
    store: str, as_json: bool, cluster: str | None, memory_limit: str | None, **options: Any
) -> None:
    """Tell tasks, bytes, flops, memory and disk of each stage of an embedding."""
    config = make_config(EmbedConfig, options)
    paths = existing_store(store)
    limit = parse_memory(memory_limit) if memory_limit is not None else None
    memory = planned_memory(read_cluster_config(cluster), limit)
    plan = plan_embedding(open_graph(paths), config, memory)
    free = free_bytes(paths.root)
    plan.check(free)
    report = {**plan.describe(), "free_disk_bytes": free}
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    for note in report["notes"]:
        click.echo(f"note: {note}")
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
            "disk": (
                f"{human_bytes(report['disk_bytes'])} of "
                f"{human_bytes(report['free_disk_bytes'])} free"
            ),
            "slices": (
                f"{report['tiling']['slice_columns']} columns of the sketch at a time, "
                f"{report['tiling']['operand_rows']:,} rows of the operand"
            ),
        }
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("stage", "tasks", "read", "written", "flops", "memory of a worker"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in report["stages"]:
        table.add_row(
            stage["name"],
            f"{stage['tasks']:,}",
            human_bytes(stage["read_bytes"]),
            human_bytes(stage["written_bytes"]),
            f"{stage['flops']:.2g}",
            human_bytes(stage["peak_bytes"]),
        )
    table_console().print(table)
