"""Exporting vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import distributed

from pipeline.api import PathLike, Session
from pipeline.cluster import client_at_hand
from pipeline.files import digest, remove
from pipeline.job import Block
from pipeline.run import ClusterJob
from pipeline.serve.embedding import open_store
from pipeline.serve.export import (
    ExportTask,
    check_target,
    deliver,
    export_block,
    forget_delivered,
    parts_beside,
    vectors_schema,
)
from pipeline.store import existing_store


def export(
    store: PathLike,
    *,
    out: PathLike,
    run: str | None = None,
    overwrite: bool = False,
    client: distributed.Client | None = None,
) -> Path:
    """Write the vectors of a run as Parquet: ``id``, ``vector``.

    Parameters
    ----------
    store : path
    out : path
        One Parquet file if it ends in ``.parquet``, else a folder of them.
    run : str, optional
        By default the published run.
    overwrite : bool
        Whether `out` may be replaced.
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    """
    report = run_export(store, Path(out), Session(client), run=run, overwrite=overwrite)
    return Path(report["out"])


def run_export(
    store: PathLike,
    out: Path,
    session: Session,
    *,
    run: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Export and tell what happened; see `export`."""
    started = time.perf_counter()
    out = out.absolute()
    paths = existing_store(store)
    embedding = open_store(Path(store)).embedding(run)
    graph = embedding.graph
    work = paths.work / f"export-{digest([embedding.run, str(out)])}"
    check_target(out, work, overwrite=overwrite)
    task = ExportTask(graph, embedding.path / "embedding", parts_beside(out, work))
    blocks = [Block(f"{block:06d}", (task, block)) for block in range(graph.blocks)]
    with client_at_hand(session.client, session.limit_bytes) as client:
        forget_delivered(work, task.out)
        job = ClusterJob(client, work / "marks", session.monitor)
        written = job.run("export", export_block, blocks)
        deliver(job, task.out, vectors_schema(graph, embedding.dim), out)
        remove(work)
    return {
        "store": str(paths.root),
        "run": embedding.run,
        "out": str(out),
        "rows": written.total("rows"),
        "dim": embedding.dim,
        "seconds": round(time.perf_counter() - started, 3),
        **job.describe(),
    }
