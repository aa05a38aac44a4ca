"""``figrl demo``: the whole pipeline on a generated graph.

For example:
  figrl demo
  figrl demo --keep demo-store        then: figrl status --store demo-store
  figrl demo --picture map.png

It draws the vectors of some nodes in the plane (t-SNE), known and new ones, and writes the picture
to the folder where it is called.
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
from figrl.store.matrix import Floats
from figrl.store.places import local_path
from figrl.study.planted import Integers, PlantedGraph
from figrl_jobs.console import (
    Cell,
    Report,
    finish,
    is_verbose,
    print_facts,
    print_stages,
    print_text,
)
from figrl_jobs.options import Connection, job, running_options


@job("demo", __doc__)
@click.option("--keep", type=click.Path(file_okay=False), help="Keep the store in this folder.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True),
    default="figrl-demo.png",
    show_default=True,
    help="PNG to write; one that is there is replaced.",
)
@running_options
def command(keep: str | None, picture: str, connection: Connection) -> Report:
    """Embed a graph made here, fold in new nodes, and check both."""
    target = Path(picture).absolute()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="figrl-demo-")))
        store = folder / "store" if keep is None else local_path(keep)
        session = stack.enter_context(connection)
        return {**_demonstrate(folder, store, target, session), "kept": keep}


def _demonstrate(folder: Path, store: Path, picture: Path, session: Session) -> dict[str, Any]:
    # scikit-learn takes a second and 100 MB to import. Worker processes import what this process
    # has imported when they start, and no other job needs it.
    from figrl.analyze.kmeans import kmeans_in_memory, nearest_center
    from figrl.analyze.metrics import agreement
    from figrl.study.map import draw_map

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
    vectors, ids = np.asarray(embedding.vectors), np.asarray(embedding.ids())
    labels, centers = kmeans_in_memory(vectors, planted.communities)
    table = pq.read_table(out)
    new_ids = table.column("id").to_numpy()
    flat = table.column("vector").combine_chunks().flatten().to_numpy()
    new_vectors = flat.reshape(len(new_ids), -1)
    new_labels = nearest_center(new_vectors, centers)
    session.monitor.note("Drawing a map of the vectors.")
    draw_map(
        picture,
        _sample(vectors, planted.community(ids), 1500),
        _sample(new_vectors, planted.community(new_ids), 300),
    )
    return {
        "nodes": graph["nodes"],
        "edges": graph["edges"],
        "communities": planted.communities,
        "agreement": round(agreement(labels, planted.community(ids)), 4),
        "new_nodes": len(new_ids),
        "new_nodes_agreement": round(agreement(new_labels, planted.community(new_ids)), 4),
        "picture": str(picture),
        "seconds": round(time.perf_counter() - started, 3),
        "ingest": graph,
        "embed": run,
        "fold_in": folded,
    }


def _sample(vectors: Floats, communities: Integers, count: int) -> tuple[Floats, Integers]:
    """Vectors of some nodes, without the last dimension: new nodes have fewer edges."""
    rows = np.random.default_rng(0).choice(len(vectors), min(count, len(vectors)), replace=False)
    places = vectors[rows, :-1]
    return places / np.linalg.norm(places, axis=1, keepdims=True).clip(1e-9), communities[rows]


@command.render
def _render(report: Report) -> None:
    print_text(
        f"The vectors tell the {report['communities']} planted communities apart: k-means clusters "
        f"agree with them to {report['agreement']:.1%} (NMI), and of {report['new_nodes']:,} nodes "
        f"that were folded in afterwards to {report['new_nodes_agreement']:.1%}."
    )
    click.echo(f"Picture: {report['picture']}")
    facts: dict[str, Cell] = {
        "graph": "{nodes:,} nodes, {edges:,} edges, generated",
        "times": "ingest {ingest[seconds]:duration}, embed {embed[seconds]:duration}, "
        "fold-in {fold_in[seconds]:duration}",
        "memory": "at most {embed[peak_worker_bytes]:bytes} in a worker",
    }
    print_facts(report, facts)
    for name, title in (("ingest", "Ingest"), ("embed", "Embed"), ("fold_in", "Fold-in")):
        if is_verbose():
            click.echo(f"\n{title}")
        print_stages(report[name])
    kept = report["kept"]
    own = "figrl embed YOUR-EDGES.csv --out vectors.parquet"
    finish(f"figrl status --store {kept}" if kept else own)
