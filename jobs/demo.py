"""``figrl demo``: the whole pipeline on a graph it makes itself."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq

from jobs.console import emit, facts, stages_table
from jobs.options import running_options, session
from pipeline.api import Session, run_embed, run_ingest
from pipeline.config import EmbedConfig, FoldInConfig, IngestConfig
from pipeline.measure import human_bytes, human_seconds
from pipeline.serve.embedding import open_store
from pipeline.serve.fold_calls import run_fold_in
from pipeline.study.planted import PlantedGraph


@click.command(
    "demo",
    epilog="""
\b
Examples:
  figrl demo
  figrl demo --keep demo-store        and look at it afterwards: figrl status --store demo-store
""",
)
@click.option("--keep", type=click.Path(file_okay=False), help="Keep the store in this folder.")
@running_options
def command(keep: str | None, as_json: bool, cluster: str | None, memory_limit: str | None) -> None:
    """Make a graph with planted communities, embed it, fold in new nodes, and check both."""
    with ExitStack() as stack:
        root = Path(keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="figrl-demo-")))
        running = stack.enter_context(session(cluster, memory_limit))
        report = _demonstrate(root, running)
    report["kept"] = keep
    emit(report, as_json=as_json, render=_render)


def _demonstrate(root: Path, running: Session) -> dict[str, Any]:
    # scikit-learn takes a second and 100 MB to load. Worker processes load what this process has
    # loaded when they start, and no other job needs it.
    from pipeline.study.clustering import agreement, kmeans, nearest_center

    started = time.perf_counter()
    planted = PlantedGraph()
    running.monitor.note(
        f"Making {planted.nodes:,} nodes in {planted.communities} communities as Parquet."
    )
    planted.write_partitions(root / "edges", partitions=8)
    graph = run_ingest(root / "edges" / "known", root, IngestConfig(), running)
    config = EmbedConfig(dim=planted.communities)
    run = run_embed(root, config, running)
    folded = run_fold_in(
        root,
        root / "edges" / "new",
        root / "new-vectors.parquet",
        FoldInConfig(),
        running,
        overwrite=True,
    )
    running.monitor.note("Clustering the vectors and comparing with what was planted.")
    embedding = open_store(root).embedding()
    with running.connected().as_current():
        labels, centers = kmeans(embedding.vectors, planted.communities)
    ids = np.asarray(embedding.ids())
    table = pq.read_table(root / "new-vectors.parquet")
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


def _render(report: dict[str, Any]) -> None:
    for name, title in (("ingest", "Ingest"), ("embed", "Embed"), ("fold_in", "Fold-in")):
        click.echo(f"\n{title}")
        stages_table(report[name])
    click.echo()
    facts(
        {
            "graph": f"{report['nodes']:,} nodes, {report['edges']:,} edges",
            "planted": f"{report['communities']} communities",
            "recovered": f"{report['agreement']:.1%} agreement (NMI) of k-means clusters with them",
            "new nodes": (
                f"{report['new_nodes']:,} folded in, {report['new_nodes_agreement']:.1%} agreement"
            ),
            "peak memory": f"{human_bytes(report['embed']['peak_worker_bytes'])} in a worker",
            "took": human_seconds(report["seconds"]),
        }
    )
    if report["kept"]:
        click.echo(f"Kept: figrl status --store {report['kept']}")
