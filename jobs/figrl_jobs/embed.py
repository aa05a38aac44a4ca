"""``figrl embed``: from a stored graph, or from edges, to one vector per node.

For example:
  figrl embed edges.csv --out vectors.parquet
  figrl embed --store store
  figrl embed --store store --dim 64 --depth 12
  figrl embed --store store --representation product
  figrl embed --store store --publish no
  figrl embed --store store --preset paper --dim 100 --sketch-size 1000
  figrl embed --store store --dim 100 --sketch-size 1000 --memory-limit 1GB

With EDGES it ingests, embeds and exports; they are read as 'figrl ingest' reads them. Without
--store, the graph lies in a hidden folder beside --out until the vectors are written.

The memory limit holds for each worker process. The sketch (nodes x sketch size x 4 bytes) is on
disk and may be far larger; a run that would not fit is refused before it starts (exit code 5).
'figrl plan' shows what it will cost. The finished run becomes the store's current one, but not
where figrl reindex has published before: see --publish.
"""

from __future__ import annotations

from typing import Any

import click

from figrl.api.vectors import edges_to_vectors
from figrl.config import make_options
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.embed import embed_store
from figrl.serve.embedding import spectrum_facts
from figrl.settings import with_settings
from figrl.store.layout import existing_store
from figrl_jobs.console import (
    Cell,
    Report,
    finish,
    is_verbose,
    print_facts,
    print_notes,
    print_stages,
    print_text,
    reading_facts,
)
from figrl_jobs.options import Connection, config_options, job, running_options

_READING = "How EDGES are read"


@job("embed", __doc__)
@click.argument("edges", nargs=-1)
@click.option(
    "--store",
    type=click.Path(file_okay=False),
    help="Folder of the store, on a file system that all workers share. With EDGES it may be left "
    "out.",
)
@click.option("--out", help="Write the vectors: a .parquet file, or a folder of them.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output at --out.")
@config_options(EmbedOptions)
@click.option(
    "--publish",
    type=click.Choice(["yes", "no"]),
    help="Whether the run becomes the current one; default: yes, but no where figrl reindex "
    "publishes. There 'yes' goes through its gates (exit code 4).",
)
@config_options(IngestOptions, section=_READING, fills=False)
@running_options
def command(
    edges: tuple[str, ...],
    store: str | None,
    out: str | None,
    overwrite: bool,
    publish: str | None,
    connection: Connection,
    **options: Any,
) -> Report:
    """Learn a vector for each node of EDGES or of a stored graph."""
    given = {name: options.pop(name) for name in IngestOptions.model_fields}
    _check_usage(edges, store, out, given)
    config, reading = make_options(EmbedOptions, options), with_settings(IngestOptions, given)
    wanted = None if publish is None else publish == "yes"
    if store is not None and not edges:
        existing_store(store)
    with connection as session:
        if store is not None and not edges and out is None:
            return embed_store(store, config, session, publish=wanted)
        return edges_to_vectors(
            edges or None,
            reading,
            config,
            session,
            out=out,
            store=store,
            publish=wanted,
            overwrite=overwrite,
        )


def _check_usage(
    edges: tuple[str, ...], store: str | None, out: str | None, given: dict[str, Any]
) -> None:
    if not edges and store is None:
        raise click.UsageError(
            "Missing option '--store', or EDGES: figrl embed edges.csv --out vectors.parquet"
        )
    if out is None and store is None:
        raise click.UsageError(
            "Give --out for the vectors of EDGES, or --store to keep graph and vectors."
        )
    chosen = [name for name, value in given.items() if value is not None]
    if chosen and not edges:
        raise click.UsageError(
            f"--{chosen[0].replace('_', '-')} says how EDGES are read, and none are given: the "
            "graph of --store was read by figrl ingest."
        )


@command.render
def _render(report: Report) -> None:
    store, run = report["store"], report["run"]
    if report["already_done"]:
        click.echo("This run was done before: nothing to do.")
    shown = f"{report['nodes']:,} vectors of {report['dim']} dimensions"
    if "out" in report:
        click.echo(f"{shown}: {report['out']}")
    if store is not None:
        state = "published, the current run" if report["published"] else "not published"
        click.echo(f"{shown}: run {run} ({state})")
    read = report.get("ingest", {})
    facts: dict[str, Cell] = {"graph": "{graph}, {nodes:,} nodes, {edges:,} edges"}
    facts |= reading_facts(read)
    facts |= {"certificate": _certificate(report), **_made_by(report)}
    if is_verbose():
        facts |= spectrum_facts(report) | {"certificate": facts["certificate"]}
        facts["memory of a worker"] = (
            "{peak_worker_bytes:bytes} at most, planned {plan[peak_worker_bytes]:bytes}, "
            "limit {plan[memory_limit_bytes]:bytes}"
        )
    print_facts(report, facts)
    if read:
        print_stages(read)
    print_stages(report)
    print_notes(read)
    if store is not None and not report["published"]:
        print_text(_unpublished(report))
    named = "" if report["published"] else f" --run {run}"
    if store is None:
        finish("figrl embed EDGES --store store keeps the graph for fold-in")
    elif "out" in report:
        finish(f"figrl fold-in NEW-EDGES --store {store}{named} --out new-vectors.parquet")
    else:
        finish(f"figrl export --store {store}{named} --out vectors.parquet")


def _certificate(report: Report) -> Cell:
    certificate = report["certificate"]
    if certificate is None:
        return "none: the preset paper measures no accuracy, the others do"
    return lambda _: certificate["meaning"]


def _made_by(report: Report) -> dict[str, Cell]:
    smoothing = ", {smoothing_steps} steps of smoothing" if report["smoothing_steps"] else ""
    prominence = ", prominence {spec[prominence]:g}" if report["spec"]["prominence"] else ""
    return {
        "made by": "{spec[representation]}, width {spec[width]} x depth {spec[depth]} (a sketch of "
        "{sketch_size:,}), degrees + {spec[regularization]:.3g}" + smoothing + prominence
    }


def _unpublished(report: Report) -> str:
    if not report["gated"]:
        return "Not published. --publish yes does that."
    return (
        "Not published: figrl reindex publishes this store. --publish yes publishes through its "
        "gates. The next reindex deletes what is not published, unless it is pinned: figrl pin "
        f"{report['run']} --store {report['store']}"
    )
