"""An index for approximate search, built by a job and stored with the run (needs ``figrl[ann]``).

A shard has at most as many vectors as fit the memory of a worker; a search asks all shards.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from figrl.engine.cluster import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.engine.stage import Memory, Stage, Stages, Stats, numbered
from figrl.engine.worker import worker_state
from figrl.errors import BadInputError, ConfigError
from figrl.serve.embedding import Embedding
from figrl.serve.search import Found, Metric, merge_found, prepared, search_vectors
from figrl.store.files import atomic_write, delete, exists, read_json, size_bytes, write_json
from figrl.store.matrix import Floats, open_matrix

_LINK_BYTES = 400
"""Memory of a vector's links in the graph of the index, with room to grow."""

_MIN_SHARD_ROWS = 1 << 14
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
    # Marks of an earlier attempt are valid for shards of the size that it chose.
    if not exists(agreed):
        write_json(agreed, _shard_rows(embedding, session.memory(client)))
    rows = int(read_json(agreed))
    runner = ClusterRunner(client, work / "marks", session.monitor)
    shards = runner.run(index_stages(embedding, folder, rows))
    write_json(folder / "index.json", {"shards": shards, "shard_rows": rows})
    delete(work)


def _row_bytes(dim: int) -> int:
    """Memory of an indexed vector: in float16, with what the index allocates ahead."""
    return 6 * dim + _LINK_BYTES


def _shard_rows(embedding: Embedding, memory: ClusterMemory) -> int:
    fitting = memory.allowed_bytes // (2 * memory.threads * _row_bytes(embedding.dim))
    # One thread builds a shard, so there is a shard for each thread.
    wanted = -(-embedding.graph.nodes // (memory.workers * memory.threads))
    return max(min(fitting, wanted), _MIN_SHARD_ROWS)


def index_stages(embedding: Embedding, folder: Path, shard_rows: int) -> Stages[int]:
    """Build all shards; return their number."""
    vectors, shards = embedding.path / "embedding", -(-embedding.graph.nodes // shard_rows)
    # Besides the shard, a chunk of vectors is held: as read, and normalised.
    chunk_bytes = 2 * 4 * embedding.dim * embedding.chunk_rows
    yield Stage(
        "index",
        build_shard,
        numbered(vectors, shards, folder, shard_rows, embedding.metric),
        memory=Memory(task_bytes=shard_rows * _row_bytes(embedding.dim) + chunk_bytes),
        reads=(vectors,),
    )
    return shards


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


def build_shard(vectors: Path, number: int, folder: Path, shard_rows: int, metric: Metric) -> Stats:
    """Index the vectors of a shard, a chunk at a time."""
    matrix = open_matrix(vectors)
    start = number * shard_rows
    stop = min(start + shard_rows, matrix.shape[0])
    index = _empty(matrix.shape[1], metric)
    height = matrix.chunks[0]
    buffer = np.empty((height, matrix.shape[1]), np.float32)
    for begin in range(start - start % height, stop, height):
        rows = matrix.read((begin, 0), buffer[: min(height, matrix.shape[0] - begin)])
        low, high = max(start - begin, 0), min(stop - begin, len(rows))
        keys = np.arange(begin + low, begin + high, dtype=np.uint64)
        # One thread, so that the order of insertion and hence the index are deterministic.
        index.add(keys, prepared(rows[low:high], metric), threads=1)
    path = shard_path(folder, number)
    with atomic_write(path) as aside:
        index.save(str(aside))
    return {"rows": stop - start, "written_bytes": size_bytes(path)}


def has_index(run: Path) -> bool:
    """Whether a run has an index."""
    return exists(run / "index" / "index.json")


def _open_shard(path: Path, dim: int, metric: Metric) -> Any:
    """A shard, mapped into memory."""
    index = _empty(dim, metric)
    index.view(str(path))
    return index


def search_index(run: Path, queries: Floats, count: int, metric: Metric) -> Found:
    """Search the index of a run, which may miss some of the best rows."""
    parts = []
    for number in range(read_json(run / "index" / "index.json")["shards"]):
        path = shard_path(run / "index", number)
        index = worker_state().opened(path, partial(_open_shard, path, queries.shape[1], metric))
        matches = index.search(queries, count)
        keys = np.atleast_2d(matches.keys).astype(np.int64)
        scores = 1.0 - np.atleast_2d(matches.distances).astype(np.float32)
        # The entries behind the last match of a query are undefined.
        counts = getattr(matches, "counts", np.array([keys.shape[1]]))
        missing = np.arange(keys.shape[1]) >= np.reshape(counts, (-1, 1))
        parts.append(Found(np.where(missing, -np.inf, scores), np.where(missing, -1, keys)))
    return merge_found(parts, count)


def search_run(embedding: Embedding, queries: Floats, count: int) -> Found:
    """Search the index of a run; all nodes folded in since, which are few, are compared."""
    if not has_index(embedding.path):
        raise BadInputError(
            f"Run {embedding.run} has no index. Set 'index: approximate' in the configuration of "
            "figrl reindex, or search exactly."
        )
    metric = embedding.metric
    found = search_index(embedding.path, queries, count, metric)
    if embedding.overlay is None:
        return found
    pieces = embedding.overlay.pieces(first_row=embedding.graph.nodes)
    newer = search_vectors(pieces, prepared(queries, metric), count, metric)
    return merge_found([found, newer], count)
