"""``figrl demo``: the whole pipeline on a generated graph.

For example:
  figrl demo
  figrl demo --keep demo-store        then: figrl status --store demo-store
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq

from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.serve.runs import run_embed
from figrl.store.places import local_path
from figrl.study.planted import PlantedGraph
from figrl_jobs.console import Cell, Report, print_facts, print_stages
from figrl_jobs.options import Connection, job, running_options


@job("demo", __doc__)
@click.option("--keep", type=click.Path(file_okay=False), help="Keep the store in this folder.")
@running_options
def command(keep: str | None, connection: Connection) -> Report:
    """Generate a graph with planted communities, embed it, fold in new nodes, and check both."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="figrl-demo-")))
        store = folder / "store" if keep is None else local_path(keep)
        session = stack.enter_context(connection)
        return {**_demonstrate(folder, store, session), "kept": keep}


def _demonstrate(folder: Path, store: Path, session: Session) -> dict[str, Any]:
    # scikit-learn takes a second and 100 MB to import. Worker processes import what this process
    # has imported when they start, and no other job needs it.
    from figrl.analyze.kmeans import kmeans, nearest_center
    from figrl.analyze.metrics import agreement

    started = time.perf_counter()
    planted = PlantedGraph()
    session.monitor.note(
        f"Generating {planted.nodes:,} nodes in {planted.communities} communities as Parquet."
    )
    planted.write_partitions(folder / "edges", partitions=8)
    graph = run_ingest(folder / "edges" / "known", store, IngestOptions(), session)
    run = run_embed(store, EmbedOptions(dim=planted.communities), session)
    new, out = folder / "edges" / "new", folder / "new-vectors.parquet"
    folded = run_fold_in(store, new, out, FoldInOptions(), session)
    session.monitor.note("Clustering the vectors and comparing them with the planted communities.")
    embedding = open_store(store).embedding()
    with session.connected().as_current():
        labels, centers = kmeans(embedding.vectors, planted.communities)
    ids = np.asarray(embedding.ids())
    table = pq.read_table(out)
    new_ids = table.column("id").to_numpy()
    flat = table.column("vector").combine_chunks().flatten().to_numpy()
    new_labels = nearest_center(flat.reshape(len(new_ids), -1), centers)
    return {
        "nodes": graph["nodes"],
        "edges": graph["edges"],
        "communities": planted.communities,
        "agreement": round(agreement(labels, planted.community(ids)), 4),
        "new_nodes": len(new_ids),
        "new_nodes_agreement": round(agreement(new_labels, planted.community(new_ids)), 4),
        "seconds": round(time.perf_counter() - started, 3),
        "ingest": graph,
        "embed": run,
        "fold_in": folded,
    }


@command.render
def _render(report: Report) -> None:
    for name, title in (("ingest", "Ingest"), ("embed", "Embed"), ("fold_in", "Fold-in")):
        click.echo(f"\n{title}")
        print_stages(report[name])
    click.echo()
    facts: dict[str, Cell] = {
        "graph": "{nodes:,} nodes, {edges:,} edges",
        "planted": "{communities} communities",
        "recovered": "{agreement:.1%} agreement (NMI) of k-means clusters with them",
        "new nodes": "{new_nodes:,} folded in, {new_nodes_agreement:.1%} agreement",
        "peak memory": "{embed[peak_worker_bytes]:bytes} in a worker",
        "took": "{seconds:duration}",
    }
    print_facts(report, facts)
    if report["kept"]:
        click.echo(f"Kept: figrl status --store {report['kept']}")
