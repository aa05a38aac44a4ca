"""Folding in new nodes: into a file of their own, or to be served with the published run."""

from __future__ import annotations

import html
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.api import PathLike, Session, ingest_identity, inspect_files
from pipeline.cluster import client_at_hand
from pipeline.config import FoldInConfig, IngestConfig, make_config
from pipeline.costs import RESERVED_BYTES
from pipeline.errors import BadInputError, ResourceError
from pipeline.files import digest, remove
from pipeline.graph import Graph, graph_from_manifest
from pipeline.ingest.build import build_graph
from pipeline.ingest.sources import SourceFile, find_files
from pipeline.measure import human_bytes
from pipeline.recipe import Recipe
from pipeline.run import ClusterJob, ClusterMemory, cluster_memory
from pipeline.serve.embedding import Embedding, open_store
from pipeline.serve.export import (
    check_target,
    deliver,
    forget_delivered,
    parts_beside,
    vectors_schema,
)
from pipeline.serve.fold_in import BLOCK_ROWS, fold_stages
from pipeline.serve.matching import FoldTask
from pipeline.store import store_paths

_INPUT_COUNTS = ("rows_read", "rows_rejected", "self_loops_dropped", "repeated_edges_merged")


@dataclass(frozen=True)
class FoldedNodes:
    """New nodes that were given vectors.

    Attributes
    ----------
    path : Path
        Parquet file or folder with the columns ``id`` and ``vector``.
    counts : dict
        Nodes folded in, and edges and nodes that were left out, by reason.
    """

    path: Path
    counts: dict[str, int]

    def table(self) -> pa.Table:
        """Read the vectors."""
        return pq.read_table(self.path)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" for name, value in self.counts.items()
        )
        return f"<FoldedNodes {self.path}: {shown}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name.replace('_', ' ')}</th><td>{value:,}</td></tr>"
            for name, value in self.counts.items()
        )
        return f"<table><caption>{html.escape(str(self.path))}</caption>{rows}</table>"


def fold_in(
    store: PathLike,
    edges: PathLike | Sequence[PathLike],
    *,
    out: PathLike,
    run: str | None = None,
    overwrite: bool = False,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> FoldedNodes:
    """Give vectors to new nodes from their edges to known ones; nothing is learnt again.

    Parameters
    ----------
    store : path
    edges : path or sequence of paths
        Files, folders or glob patterns of edges: new node, known node, perhaps weight.
    out : path
        One Parquet file if it ends in ``.parquet``, else a folder of them.
    run : str, optional
        By default the published run.
    overwrite : bool
        Whether `out` may be replaced.
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use.
    **options
        Fields of `pipeline.config.FoldInConfig`: ``source``, ``target``, ``weight``,
        ``on_bad_edges``, ``degrees``, ``known``, ``rounds``.

    Returns
    -------
    FoldedNodes
    """
    session = Session(client, memory_limit)
    config = make_config(FoldInConfig, options)
    report = run_fold_in(store, edges, Path(out), config, session, run=run, overwrite=overwrite)
    return FoldedNodes(Path(out), report["counts"])


def run_fold_in(
    store: PathLike,
    edges: PathLike | Sequence[PathLike],
    out: Path,
    config: FoldInConfig,
    session: Session,
    *,
    run: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Fold in and tell what happened; see `fold_in`."""
    started = time.perf_counter()
    out = out.absolute()
    embedding = open_store(Path(store)).embedding(run)
    files = find_files([edges] if isinstance(edges, str | os.PathLike) else edges)
    with client_at_hand(session.client, session.limit_bytes) as client:
        memory = cluster_memory(client, session.limit_bytes)
        check_fold_memory(embedding, memory)
        sources = inspect_new_edges(client, files, embedding, config)
        reading = _reading(config, embedding)
        identity = digest(
            [ingest_identity(sources, reading), config.significant(), embedding.run, str(out)]
        )
        folder = store_paths(store).work / f"fold-in-{identity}"
        check_target(out, folder, overwrite=overwrite)
        parts = parts_beside(out, folder)
        forget_delivered(folder, parts)
        job = ClusterJob(client, folder / "marks", session.monitor)
        counts, _ = fold_parts(job, client, sources, embedding, config, memory, folder, parts)
        quarantine = keep_quarantine(folder / "graph" / "quarantine", out)
        deliver(job, parts, vectors_schema(embedding.graph, embedding.dim), out)
        remove(folder)
    return {
        "store": str(store_paths(store).root),
        "run": embedding.run,
        "out": str(out),
        "quarantine": quarantine,
        "counts": counts,
        "seconds": round(time.perf_counter() - started, 3),
        **job.describe(),
    }


def _reading(config: FoldInConfig, embedding: Embedding) -> IngestConfig:
    return IngestConfig(
        source=config.source,
        target=config.target,
        weight=config.weight,
        ids=embedding.graph.id_kind,
        on_bad_edges=config.on_bad_edges,
        block_rows=BLOCK_ROWS,
    )


def inspect_new_edges(
    client: distributed.Client, files: Sequence[str], embedding: Embedding, config: FoldInConfig
) -> list[SourceFile]:
    """Look at the heads of files of new edges; their ids have to be of the graph's kind."""
    sources = inspect_files(client, files, _reading(config, embedding))
    _same_ids(embedding.graph, sources)
    return sources


def fold_parts(
    job: ClusterJob,
    client: distributed.Client,
    sources: Sequence[SourceFile],
    embedding: Embedding,
    config: FoldInConfig,
    memory: ClusterMemory,
    folder: Path,
    parts: Path,
) -> tuple[dict[str, int], int]:
    """Write the vectors of new nodes into parts; counts of what was done, and how many parts."""
    reading = _reading(config, embedding)
    graph_marks = folder / "graph" / "work" / "marks"
    graph_job = ClusterJob(client, graph_marks, job.monitor, job.results)
    facts = build_graph(graph_job, sources, reading, memory, folder / "graph")
    task = FoldTask(
        known=embedding.graph,
        new=graph_from_manifest(folder / "graph", {"graph": facts}),
        basis=embedding.path / "basis",
        folder=folder,
        parts=parts,
        extended=config.degrees == "extended",
        recompute=config.known == "recompute",
        recipe=Recipe(**embedding.manifest["recipe"]),
        rounds=config.rounds,
    )
    counts = fold_stages(job, task)
    return counts | {name: facts[name] for name in _INPUT_COUNTS}, task.new.blocks


def keep_quarantine(folder: Path, out: Path) -> str | None:
    """Put bad rows beside the output; where they lie, if there are any."""
    if not folder.exists():
        return None
    target = out.with_name(out.name + ".quarantine")
    remove(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A copy: the job may be killed before it ends, and run again.
    shutil.copytree(folder, target)
    return str(target)


def _same_ids(known: Graph, sources: Sequence[SourceFile]) -> None:
    for source in sources:
        if source.kind == "parquet" and source.id_kind != known.id_kind:
            raise BadInputError(
                f"{source.path}: its ids are {source.id_kind}, but those of the graph are "
                f"{known.id_kind}. Cast the id columns to the type of the graph's."
            )


def check_fold_memory(embedding: Embedding, memory: ClusterMemory) -> None:
    """Refuse workers that are too small for a block of new nodes."""
    chunk_rows = embedding.manifest["plan"]["geometry"]["chunk_rows"]
    task_bytes = 4 * embedding.dim * (2 * chunk_rows + 2 * BLOCK_ROWS) + 200 * (1 << 20)
    needed = RESERVED_BYTES + task_bytes * memory.threads
    if needed > memory.allowed_bytes:
        raise ResourceError(
            f"fold-in needs {human_bytes(needed)} in a worker with {memory.threads} threads; "
            f"{human_bytes(memory.allowed_bytes)} may be used of a limit of "
            f"{human_bytes(memory.limit_bytes)}. Raise --memory-limit, or give the workers fewer "
            "threads in the cluster file."
        )
