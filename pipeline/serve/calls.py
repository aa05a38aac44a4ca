"""The calls that use an embedding: exporting vectors, and finding neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed
import pyarrow as pa

from pipeline.api import PathLike, Session
from pipeline.cluster import client_at_hand, parse_memory
from pipeline.files import digest, remove
from pipeline.ingest.arrow import parquet_id_type
from pipeline.ingest.ids import range_path
from pipeline.job import Block
from pipeline.run import ClusterJob
from pipeline.serve.embedding import Embedding, open_store
from pipeline.serve.export import (
    ExportTask,
    check_target,
    deliver,
    export_shard,
    export_table,
    forget_delivered,
    parts_beside,
    vectors_schema,
)
from pipeline.serve.neighbors import search
from pipeline.serve.overlay import Overlay, vectors_path
from pipeline.store import existing_store


def export(
    store: PathLike,
    *,
    out: PathLike,
    run: str | None = None,
    overwrite: bool = False,
    shard_size: str | int | None = None,
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
    shard_size : str or int, optional
        Size of the files of a folder, such as ``"256MB"``; by default one for each row block.
    client : distributed.Client, optional
        By default the client at hand, or a local cluster.
    """
    report = run_export(
        store, Path(out), Session(client), run=run, overwrite=overwrite, shard_size=shard_size
    )
    return Path(report["out"])


def run_export(
    store: PathLike,
    out: Path,
    session: Session,
    *,
    run: str | None = None,
    overwrite: bool = False,
    shard_size: str | int | None = None,
) -> dict[str, Any]:
    """Export and tell what happened; see `export`."""
    started = time.perf_counter()
    out = out.absolute()
    paths = existing_store(store)
    embedding = open_store(Path(store)).embedding(run)
    graph = embedding.graph
    rows = _shard_rows(embedding, shard_size)
    overlay = embedding.overlay
    version = None if overlay is None else overlay.path.name
    work = paths.work / f"export-{digest([embedding.run, version, rows, str(out)])}"
    check_target(out, work, overwrite=overwrite)
    task = ExportTask(graph, embedding.path / "embedding", parts_beside(out, work), rows)
    shards = [Block(f"{shard:06d}", (task, shard)) for shard in range(task.shards)]
    newer = [] if overlay is None else _overlay_blocks(task, overlay)
    with client_at_hand(session.client, session.limit_bytes) as client:
        forget_delivered(work, task.out)
        job = ClusterJob(client, work / "marks", session.monitor)
        written = job.run("export", export_shard, shards).total("rows")
        if newer:
            written += job.run("export-overlay", export_table, newer).total("rows")
        deliver(job, task.out, vectors_schema(graph, embedding.dim), out)
        remove(work)
    return {
        "store": str(paths.root),
        "run": embedding.run,
        "out": str(out),
        "rows": written,
        "dim": embedding.dim,
        "seconds": round(time.perf_counter() - started, 3),
        **job.describe(),
    }


def _shard_rows(embedding: Embedding, shard_size: str | int | None) -> int:
    """Rows of a file, in whole chunks."""
    if shard_size is None:
        return embedding.graph.block_rows
    size = parse_memory(shard_size) if isinstance(shard_size, str) else shard_size
    chunk = int(embedding.manifest["plan"]["geometry"]["chunk_rows"])
    return chunk * max(size // (4 * embedding.dim * chunk), 1)


def _overlay_blocks(task: ExportTask, overlay: Overlay) -> list[Block]:
    """Parts of an overlay that hold something; their files come after those of the graph."""
    filled = [
        p for p in range(len(overlay.starts) - 1) if overlay.starts[p] < overlay.starts[p + 1]
    ]
    return [
        Block(
            f"{part:06d}",
            (
                task,
                task.shards + place,
                range_path(overlay.path / "ids", part),
                vectors_path(overlay.path, part),
            ),
        )
        for place, part in enumerate(filled)
    ]


def neighbors(
    store: PathLike,
    ids: Sequence[int] | Sequence[str],
    *,
    count: int = 10,
    run: str | None = None,
    approximate: bool = False,
    client: distributed.Client | None = None,
) -> pa.Table:
    """Find the nodes whose vectors lie nearest, by cosine.

    Parameters
    ----------
    store : path
    ids : sequence of int or str
        Nodes to search for; they are not among their own neighbours.
    count : int
        Neighbours of each.
    run : str, optional
        By default the published run.
    approximate : bool
        Ask the index that re-indexing built, which may miss some; else all vectors are compared.
    client : distributed.Client, optional
        Cluster that compares; by default the threads of this process.

    Returns
    -------
    pyarrow.Table
        ``id``, ``rank`` from 1 on, ``neighbor``, ``cosine``.
    """
    embedding = open_store(Path(store)).embedding(run)
    queries = embedding.lookup(ids)
    if approximate:
        from pipeline.serve.index import search_run

        found = search_run(embedding, queries, count + 1)
    else:
        vectors = embedding.path / "embedding"
        found = search(vectors, embedding.overlay, queries, count + 1, client)
    own = embedding.rows_of(ids)
    columns: dict[str, list[Any]] = {"id": [], "rank": [], "neighbor": [], "cosine": []}
    for query, node in enumerate(ids):
        others = (found.rows[query] != own[query]) & (found.rows[query] >= 0)
        rows = found.rows[query][others][:count]
        columns["id"] += [node] * rows.size
        columns["rank"] += list(range(1, rows.size + 1))
        columns["neighbor"] += embedding.ids_at(rows)
        columns["cosine"] += found.cosines[query][others][:count].tolist()
    kind = parquet_id_type(embedding.graph.id_kind)
    types = {"id": kind, "rank": pa.int64(), "neighbor": kind, "cosine": pa.float32()}
    return pa.table(columns, pa.schema(types))
