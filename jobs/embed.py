"""``figrl embed``: a stored graph to one vector per node."""

from __future__ import annotations

from typing import Any

import click

from jobs.console import emit, facts, stages_table
from jobs.options import config_options, running_options, session, store_option
from pipeline.api import run_embed
from pipeline.config import EmbedConfig, make_config
from pipeline.measure import human_bytes, human_seconds
from pipeline.serve.embedding import spectrum_facts
from pipeline.store import existing_store

EMBED_OPTIONS = (
    "preset",
    "dim",
    "sketch_size",
    "epsilon",
    "power_iterations",
    "regularization",
    "representation",
    "exponent",
    "smoothing",
    "projection",
    "certificate",
    "seed",
)


@click.command(
    "embed",
    epilog="""
\b
Examples:
  figrl embed --store store
  figrl embed --store store --dim 64 --power-iterations 7
  figrl embed --store store --preset paper --dim 100 --sketch-size 1000
  figrl embed --store store --dim 100 --sketch-size 1000 --memory-limit 1GB
\b
The memory limit holds for each worker process. The sketch (nodes x sketch size x 4 bytes) lies on
disk and may be far larger; the plan, made first, refuses what would not fit (exit code 5). See
what it will cost with 'figrl plan'. The finished run becomes the store's current one.
""",
)
@store_option
@config_options(EmbedConfig, *EMBED_OPTIONS)
@running_options
def command(
    store: str, as_json: bool, cluster: str | None, memory_limit: str | None, **options: Any
) -> None:
    """Learn one vector for each node of the graph that was ingested last."""
    config = make_config(EmbedConfig, options)
    existing_store(store)
    with session(cluster, memory_limit) as running:
        report = run_embed(store, config, running)
    emit(report, as_json=as_json, render=_render)


def _render(report: dict[str, Any]) -> None:
    if report["already_done"]:
        click.echo("This run was done before: nothing to do. It is the current one.")
    plan, recipe = report["plan"], report["recipe"]
    facts(
        {
            "run": report["run"],
            "graph": f"{report['graph']} ({report['nodes']:,} nodes, {report['edges']:,} edges)",
            "vectors": f"{report['dim']} dimensions, from a sketch of {report['sketch_size']:,}",
            "made by": (
                f"{2 * recipe['power_iterations'] + 1} products, {recipe['projection']}, degrees + "
                f"{recipe['regularization']:.3g}, {recipe['representation']}"
                + (f" with {recipe['smoothing']} steps of smoothing" if recipe["smoothing"] else "")
            ),
            **spectrum_facts(report),
            "memory of a worker": (
                f"{human_bytes(report['peak_worker_bytes'])} at most, planned "
                f"{human_bytes(plan['peak_worker_bytes'])}, limit "
                f"{human_bytes(plan['memory_limit_bytes'])}"
            ),
            "took": human_seconds(report["seconds"]),
        }
    )
    stages_table(report)
    click.echo(f"Next: figrl export --store {report['store']} --out vectors.parquet")
