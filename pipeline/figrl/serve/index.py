"""An index for approximate search, built by a job and stored with the run (needs ``figrl[ann]``).

A shard has at most as many vectors as fit the memory of a worker, all of one side where nodes have
sides; a search asks the shards of the nodes that are searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.stage import Block, Memory, Stage, Stages, Stats
from figrl.engine.worker import worker_state
from figrl.errors import BadInputError, ConfigError, DamagedError
from figrl.serve.embedding import Embedding
from figrl.serve.overlay import Overlay
from figrl.serve.search import Found, Metric, merge_found, prepared, search_vectors
from figrl.store.checksums import append_checksum, check_file, damage_reported
from figrl.store.contents import Damage
from figrl.store.files import (
    atomic_write,
    delete,
    exists,
    make_durable,
    modified_time,
    read_json,
    read_record,
    size_bytes,
    write_json,
    write_record,
)
from figrl.store.graph import Graph
from figrl.store.matrix import Floats, open_matrix

_LINK_BYTES = 400
"""Memory of a vector's links in the graph of the index, with room to grow."""

_MIN_SHARD_ROWS = 1 << 14
Shard = tuple[int, int]
"""Rows that are indexed together: the first, and the one after the last."""

_CONNECTIVITY, _EFFORT_BUILD, _EFFORT_SEARCH = 16, 128, 1024


def import_usearch() -> Any:
    """Import the package for approximate search, an optional dependency."""
    try:
        from usearch import index
    except ImportError as error:
        raise ConfigError(
            "Approximate search needs the package usearch: pip install 'figrl[ann]'."
        ) from error
    return index


def build_index(
    client: distributed.Client, embedding: Embedding, work: Path, session: Session
) -> None:
    """Build the index of a run, unless there is one; marks of finished shards lie in `work`."""
    import_usearch()
    folder, agreed = embedding.path / "index", work / "shard-rows.json"
    if has_index(embedding.path):
        return
    # Marks of an earlier attempt vouch for shards of the size that it chose.
    if not exists(agreed):
        write_json(agreed, _shard_rows(embedding, session.memory(client)))
    rows = int(read_json(agreed))
    runner = ClusterRunner(client, work / "marks", session.monitor)
    shards = runner.run(index_stages(embedding, folder, rows))
    make_durable(folder)
    write_record(folder / "index.json", {"shards": shards, "shard_rows": rows}, durable=True)
    delete(work)


def _row_bytes(dim: int) -> int:
    """Memory of an indexed vector: in float16, with what the index allocates ahead."""
    return 6 * dim + _LINK_BYTES


def _shard_rows(embedding: Embedding, memory: ClusterMemory) -> int:
    fitting = memory.allowed_bytes // (2 * memory.threads * _row_bytes(embedding.dim))
    # One thread builds a shard, so there is a shard for each thread.
    wanted = -(-embedding.graph.nodes // (memory.workers * memory.threads))
    return max(min(fitting, wanted), _MIN_SHARD_ROWS)


def shard_cuts(graph: Graph, shard_rows: int) -> list[Shard]:
    """Rows of each shard."""
    return [
        (start, min(start + shard_rows, stop))
        for _, first, stop in graph.index.cut_by_side(0, graph.nodes)
        for start in range(first, stop, shard_rows)
    ]


def index_stages(embedding: Embedding, folder: Path, shard_rows: int) -> Stages[int]:
    """Build all shards; return their number."""
    vectors, shards = embedding.path / "embedding", shard_cuts(embedding.graph, shard_rows)
    # Besides the shard, a chunk of vectors is held: as read, and normalised.
    chunk_bytes = 2 * 4 * embedding.dim * embedding.chunk_rows
    yield Stage(
        "index",
        build_shard,
        tuple(
            Block(f"{number:06d}", (vectors, shard, shard_path(folder, number), embedding.metric))
            for number, shard in enumerate(shards)
        ),
        memory=Memory(task_bytes=shard_rows * _row_bytes(embedding.dim) + chunk_bytes),
        reads=(vectors,),
    )
    return len(shards)


def _empty(dim: int, metric: Metric) -> Any:
    return import_usearch().Index(
        ndim=dim,
        metric="cos" if metric == "cosine" else "ip",
        dtype="f16",
        connectivity=_CONNECTIVITY,
        expansion_add=_EFFORT_BUILD,
        expansion_search=_EFFORT_SEARCH,
    )


def shard_path(folder: Path, number: int) -> Path:
    """Path of a shard."""
    return folder / f"{number:06d}.usearch"


def build_shard(vectors: Path, shard: Shard, path: Path, metric: Metric) -> Stats:
    """Index the vectors of a shard, a chunk at a time."""
    matrix = open_matrix(vectors)
    start, stop = shard
    index = _empty(matrix.shape[1], metric)
    height = matrix.chunks[0]
    buffer = np.empty((height, matrix.shape[1]), np.float32)
    for begin in range(start - start % height, stop, height):
        rows = matrix.read((begin, 0), buffer[: min(height, matrix.shape[0] - begin)])
        low, high = max(start - begin, 0), min(stop - begin, len(rows))
        keys = np.arange(begin + low, begin + high, dtype=np.uint64)
        # One thread, so that the order of insertion and hence the index are deterministic.
        index.add(keys, prepared(rows[low:high], metric), threads=1)
    with atomic_write(path) as aside:
        index.save(str(aside))
        append_checksum(aside)
    return {"rows": stop - start, "written_bytes": size_bytes(path)}


def has_index(run: Path) -> bool:
    """Whether a run has an index."""
    return exists(run / "index" / "index.json")


def check_index(run: Path) -> Iterator[Damage]:
    """Damaged files of the index of a run, if it has one."""
    folder = run / "index"
    if not exists(folder):
        return
    count = read_record(folder / "index.json")["shards"]
    for number in range(count):
        try:
            check_file(shard_path(folder, number))
        except DamagedError as error:
            yield shard_path(folder, number), error.message


def _open_shard(path: Path, dim: int, metric: Metric) -> Any:
    """A shard, mapped into memory."""
    check_file(path)
    index = _empty(dim, metric)
    with damage_reported(path):
        index.view(str(path))
    return index


def search_index(
    run: Path, queries: Floats, count: int, metric: Metric, shards: Sequence[int] | None = None
) -> Found:
    """Search some shards of a run's index, by default all; some of the best rows may be missed."""
    parts = []
    every = range(read_record(run / "index" / "index.json")["shards"])
    for number in every if shards is None else shards:
        path = shard_path(run / "index", number)
        with damage_reported(path):
            key = (path, modified_time(path))
        index = worker_state().opened(key, partial(_open_shard, path, queries.shape[1], metric))
        matches = index.search(queries, count)
        keys = np.atleast_2d(matches.keys).astype(np.int64)
        scores = 1.0 - np.atleast_2d(matches.distances).astype(np.float32)
        # The entries behind the last match of a query are undefined.
        counts = getattr(matches, "counts", np.array([keys.shape[1]]))
        missing = np.arange(keys.shape[1]) >= np.reshape(counts, (-1, 1))
        parts.append(Found(np.where(missing, -np.inf, scores), np.where(missing, -1, keys)))
    return merge_found(parts, count)


def search_run(
    embedding: Embedding, overlay: Overlay | None, queries: Floats, count: int, among: Shard
) -> Found:
    """Search the index of a run; the nodes of an overlay, which are few, are all compared.

    `among`: rows that are searched, those of whole sides.
    """
    if not has_index(embedding.path):
        raise BadInputError(
            f"Run {embedding.run} has no index. Set 'index: approximate' in the configuration of "
            "figrl reindex, or search exactly."
        )
    rows = read_record(embedding.path / "index" / "index.json")["shard_rows"]
    cuts = shard_cuts(embedding.graph, rows)
    shards = [i for i, (start, stop) in enumerate(cuts) if among[0] <= start < stop <= among[1]]
    metric = embedding.metric
    found = search_index(embedding.path, queries, count, metric, shards)
    if overlay is None:
        return found
    pieces = overlay.pieces(first_row=embedding.graph.nodes)
    newer = search_vectors(pieces, prepared(queries, metric), count, metric)
    return merge_found([found, newer], count)
