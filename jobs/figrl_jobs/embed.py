"""``figrl embed``: from a stored graph to one vector per node.

For example:
  figrl embed --store store
  figrl embed --store store --dim 64 --depth 12
  figrl embed --store store --representation product
  figrl embed --store store --publish no
  figrl embed --store store --preset paper --dim 100 --sketch-size 1000
  figrl embed --store store --dim 100 --sketch-size 1000 --memory-limit 1GB

The memory limit holds for each worker process. The sketch (nodes x sketch size x 4 bytes) is on
disk and may be far larger; a run that would not fit is refused before it starts (exit code 5).
'figrl plan' shows what it will cost. The finished run becomes the store's current one, but not
where figrl reindex has published before: see --publish.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.config import make_options
from figrl.learn.spec import EmbedOptions
from figrl.nightly.embed import embed_store
from figrl.serve.embedding import spectrum_facts
from figrl.store.layout import existing_store
from figrl_jobs.console import Cell, Report, print_facts, print_stages
from figrl_jobs.options import Connection, config_options, job, running_options, store_option


@job("embed", __doc__)
@store_option
@config_options(EmbedOptions)
@click.option(
    "--publish",
    type=click.Choice(["yes", "no"]),
    help="Whether the run becomes the current one; default: yes, but no where figrl reindex "
    "publishes. There 'yes' goes through its gates (exit code 4).",
)
@running_options
def command(store: str, publish: str | None, connection: Connection, **options: Any) -> Report:
    """Learn one vector per node of the graph that was ingested last."""
    config = make_options(EmbedOptions, options)
    existing_store(store)
    with connection as session:
        wanted = None if publish is None else publish == "yes"
        return embed_store(store, config, session, publish=wanted)


@command.render
def _render(report: Report) -> None:
    if report["already_done"]:
        click.echo("This run was done before: nothing to do.")
    smoothing = ", {smoothing_steps} steps of smoothing" if report["smoothing_steps"] else ""
    prominence = ", prominence {spec[prominence]:g}" if report["spec"]["prominence"] else ""
    facts: dict[str, Cell] = {
        "run": "{run}",
        "graph": "{graph} ({nodes:,} nodes, {edges:,} edges)",
        "vectors": "{dim} dimensions, from a sketch of {sketch_size:,}",
        "made by": "width {spec[width]} x depth {spec[depth]}, degrees + "
        "{spec[regularization]:.3g}, {spec[representation]}" + smoothing + prominence,
        **spectrum_facts(report),
        "memory of a worker": "{peak_worker_bytes:bytes} at most, planned "
        "{plan[peak_worker_bytes]:bytes}, limit {plan[memory_limit_bytes]:bytes}",
        "took": "{seconds:duration}",
    }
    print_facts(report, facts)
    print_stages(report)
    store, run = report["store"], report["run"]
    if not report["published"]:
        if report["gated"]:
            click.echo("Not published: figrl reindex publishes this store. --publish yes publishes")
            click.echo(
                "through its gates. The next reindex deletes what is not published, unless it"
            )
            click.echo(f"is pinned: figrl pin {run} --store {store}")
        else:
            click.echo("Not published. --publish yes does that.")
        click.echo(f"Next: figrl export --store {store} --run {run} --out vectors.parquet")
        return
    click.echo(f"Published: {run} is the current run.")
    click.echo(f"Next: figrl export --store {store} --out vectors.parquet")
