"""Vectors as Parquet: id, side where nodes have sides, and the vector as a list of floats."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats, numbered
from figrl.serve.delivery import deliver, rows_of_parts
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.output import Place, check_output, marked, output_locked, part_path
from figrl.serve.overlay import vectors_path
from figrl.store.arrays import open_zarr
from figrl.store.files import atomic_write, digest, load_array, size_bytes
from figrl.store.graph import Graph
from figrl.store.ids import map_ids, range_path
from figrl.store.layout import PathLike, existing_store
from figrl.store.matrix import Floats
from figrl.store.places import local_path
from figrl.store.sides import Side, node_columns
from figrl.units import parse_memory

_ID_BYTES = 64
"""Memory for an id while it is written."""


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

    Of a bipartite or directed graph: ``id``, ``side``, ``vector``.

    Parameters
    ----------
    store : path
    out : path
        One Parquet file if it ends in ``.parquet``, else a folder of them.
    run : str, optional
        By default the published run.
    overwrite : bool
        Whether `out` may be replaced, if figrl wrote it.
    shard_size : str or int, optional
        Size of the files of a folder, such as ``"256MB"``; by default one file per row block.
    client : distributed.Client, optional
        By default Dask's current client, or that of a new local cluster.

    Returns
    -------
    Path
        Of the file or the folder.

    Examples
    --------
    >>> figrl.export("store", out="vectors", shard_size="256MB")  # doctest: +SKIP
    """
    report = run_export(
        store, local_path(out), Session(client), run=run, overwrite=overwrite, shard_size=shard_size
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
    """Export vectors and return a report; see `export`."""
    paths = existing_store(store)
    out = check_output(out, store=paths.root)
    embedding = open_store(store).embedding(run)
    rows = _shard_rows(embedding, shard_size)
    with output_locked(out, "export", overwrite=overwrite) as place:
        return export_to(place, embedding, session, shard_rows=rows)


def export_to(
    place: Place,
    embedding: Embedding,
    session: Session,
    *,
    shard_rows: int,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Export vectors to a place that is locked; `keep` is not deleted there. Returns a report."""
    started = time.perf_counter()
    version = None if embedding.overlay is None else embedding.overlay.path.name
    schema = vectors_schema(embedding.graph, embedding.dim)
    work = place.space / f"export-{digest([embedding.run, version, shard_rows])}"
    task = ExportTask(embedding.graph, embedding.path / "embedding", work / "parts", shard_rows)
    place.begin(work, task.parts, keep=keep)
    with session.open() as client:
        runner = ClusterRunner(client, work / "marks", session.monitor)
        written = runner.run(export_stages(task, embedding))
        deliver(runner, place, task.parts, schema, written)
    return {
        "store": str(embedding.graph.store),
        "run": embedding.run,
        "out": str(place.path),
        "rows": sum(written),
        "dim": embedding.dim,
        "seconds": round(time.perf_counter() - started, 3),
        **runner.describe(),
    }


def _shard_rows(embedding: Embedding, shard_size: str | int | None) -> int:
    """Rows of a file, in whole chunks."""
    if shard_size is None:
        return embedding.graph.block_rows
    size = parse_memory(shard_size) if isinstance(shard_size, str) else shard_size
    return embedding.chunk_rows * max(size // (4 * embedding.dim * embedding.chunk_rows), 1)


@dataclass(frozen=True)
class ExportTask:
    """Parameters shared by all shards; `shard_rows` is a multiple of a chunk's."""

    graph: Graph
    embedding: Path
    parts: Path
    shard_rows: int


def export_stages(task: ExportTask, embedding: Embedding) -> Stages[list[int]]:
    """Export the learnt vectors, then those folded in since; return the rows of each part."""
    shards = -(-embedding.graph.nodes // task.shard_rows)
    learnt = yield Stage(
        "export",
        export_shard,
        numbered(task, shards),
        memory=_memory(embedding.chunk_rows, embedding.dim),
        reads=(task.embedding,),
    )
    overlay = embedding.overlay
    # Files of an overlay come after those of the graph. A task is not sent the overlay, which lists
    # all its parts: the open run keeps it.
    newer_blocks = (
        []
        if overlay is None
        else [
            Block(f"{part:06d}", (task, number, overlay.path, overlay.side, part))
            for number, part in enumerate(overlay.filled_parts, shards)
        ]
    )
    largest = 0 if overlay is None else int(np.diff(overlay.starts).max(initial=0))
    newer = yield Stage(
        "export-overlay",
        export_part,
        newer_blocks,
        memory=_memory(largest, embedding.dim),
        reads=() if overlay is None else (overlay.path,),
    )
    return [*rows_of_parts(learnt), *rows_of_parts(newer)]


def _memory(rows: int, dim: int) -> Memory:
    """Memory for rows that are written together: as read, encoded and compressed."""
    return Memory(task_bytes=rows * (3 * 4 * dim + _ID_BYTES))


def export_shard(task: ExportTask, number: int) -> Stats:
    """Write ids and vectors of consecutive rows, a Zarr chunk at a time."""
    embedding = open_zarr(task.embedding)
    height, dim = embedding.chunks
    start = number * task.shard_rows
    stop = min(start + task.shard_rows, task.graph.nodes)
    cuts = pairwise([*range(start, stop, height), stop])
    pieces = ((task.graph.node_columns(a, b), np.asarray(embedding[a:b])) for a, b in cuts)
    return write_vectors(part_path(task.parts, number), task.graph, dim, pieces)


def export_part(
    task: ExportTask, number: int, overlay: Path, side: Side | None, part: int
) -> Stats:
    """Write ids and vectors of a part of an overlay."""
    names = node_columns(map_ids(range_path(overlay / "ids", part)), side)
    vectors = load_array(vectors_path(overlay, part), mapped=True)
    path = part_path(task.parts, number)
    return write_vectors(path, task.graph, vectors.shape[1], [(names, vectors)])


def vectors_schema(graph: Graph, dim: int) -> pa.Schema:
    """Columns of exported vectors."""
    columns = {**graph.node_fields, "vector": pa.list_(pa.float32(), dim)}
    return marked(pa.schema(columns), "vectors")


def write_vectors(
    path: Path, graph: Graph, dim: int, pieces: Iterable[tuple[list[pa.Array], Floats]]
) -> Stats:
    """Write names and vectors of nodes to a Parquet file, a row group for each piece."""
    schema, rows = vectors_schema(graph, dim), 0
    with atomic_write(path) as aside, pq.ParquetWriter(aside, schema, use_dictionary=False) as out:
        for (ids, *sides), vectors in pieces:
            flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(flat, dim)
            out.write_table(pa.table([ids.cast(schema.field("id").type), *sides, column], schema))
            rows += len(ids)
    return {"rows": rows, "read_bytes": rows * dim * 4, "written_bytes": size_bytes(path)}
