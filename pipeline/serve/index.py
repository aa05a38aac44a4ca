"""An index for approximate search, built by a job and kept with the run (needs ``figrl[ann]``).

Every shard holds as many vectors as fit a worker; a search asks all of them and keeps the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from pipeline.api import Session
from pipeline.blocks import Stats
from pipeline.errors import BadInputError, ConfigError
from pipeline.files import read_json, remove, write_json, written_aside
from pipeline.job import Block
from pipeline.run import ClusterJob, cluster_memory
from pipeline.serve.embedding import Embedding
from pipeline.serve.neighbors import Found, merge_found, normalised, search_vectors
from pipeline.tiles import Floats, open_tiles

_BYTES_BESIDE_A_VECTOR = 400
"""Links between vectors, and room to grow."""

_FEW_ROWS = 1 << 14
_CONNECTIVITY, _EFFORT_BUILD, _EFFORT_SEARCH = 16, 128, 1024


def _usearch() -> Any:
    try:
        from usearch import index
    except ImportError as error:
        raise ConfigError(
            "Approximate search needs the package usearch: pip install 'figrl[ann]'."
        ) from error
    return index


@dataclass(frozen=True)
class IndexTask:
    """What every shard has to know."""

    vectors: Path
    out: Path
    shard_rows: int


def build_index(
    client: distributed.Client, embedding: Embedding, work: Path, session: Session
) -> None:
    """Build the index of a run, unless it is there; `work` keeps what is done of it."""
    check_installed()
    folder = embedding.path / "index"
    if (folder / "index.json").exists():
        return
    memory = cluster_memory(client, session.limit_bytes)
    per_row = 6 * embedding.dim + _BYTES_BESIDE_A_VECTOR
    fitting = max(memory.allowed_bytes // (2 * memory.threads * per_row), _FEW_ROWS)
    # A shard for each thread: one is built by a single one.
    wanted = max(-(-embedding.graph.nodes // (memory.workers * memory.threads)), _FEW_ROWS)
    rows = _agreed_rows(work, min(fitting, wanted))
    task = IndexTask(embedding.path / "embedding", folder, rows)
    shards = -(-embedding.graph.nodes // task.shard_rows)
    job = ClusterJob(client, work / "marks", session.monitor)
    job.run("index", build_shard, [Block(f"{s:06d}", (task, s)) for s in range(shards)])
    write_json(folder / "index.json", {"shards": shards, "shard_rows": task.shard_rows})
    remove(work)


def _agreed_rows(work: Path, rows: int) -> int:
    """Rows of a shard as the attempt before had them: its marks stand for shards of that size."""
    path = work / "shard-rows.json"
    if not path.exists():
        write_json(path, rows)
    return int(read_json(path))


def check_installed() -> None:
    """Raise an error if the package that does the search is missing."""
    _usearch()


def _empty(dim: int) -> Any:
    return _usearch().Index(
        ndim=dim,
        metric="cos",
        dtype="f16",
        connectivity=_CONNECTIVITY,
        expansion_add=_EFFORT_BUILD,
        expansion_search=_EFFORT_SEARCH,
    )


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard lies."""
    return folder / f"{number:06d}.usearch"


def build_shard(task: IndexTask, number: int) -> Stats:
    """Index the vectors of a shard, a chunk at a time."""
    tiles = open_tiles(task.vectors)
    start = number * task.shard_rows
    stop = min(start + task.shard_rows, tiles.shape[0])
    index = _empty(tiles.shape[1])
    height = tiles.chunks[0]
    buffer = np.empty((height, tiles.shape[1]), np.float32)
    first = start - start % height
    for begin in range(first, stop, height):
        rows = tiles.read((begin, 0), buffer[: min(height, tiles.shape[0] - begin)])
        low, high = max(start - begin, 0), min(stop - begin, len(rows))
        keys = np.arange(begin + low, begin + high, dtype=np.uint64)
        # One thread: the order of insertion, and so the index, is then always the same.
        index.add(keys, normalised(rows[low:high]), threads=1)
    with written_aside(shard_path(task.out, number)) as aside:
        index.save(str(aside))
    size = shard_path(task.out, number).stat().st_size
    return {"rows": stop - start, "written_bytes": size}


def has_index(run: Path) -> bool:
    """Whether a run has an index."""
    return (run / "index" / "index.json").exists()


@lru_cache(maxsize=1024)
def _opened(path: Path, dim: int) -> Any:
    """A shard, mapped into memory."""
    index = _empty(dim)
    index.view(str(path))
    return index


def search_index(run: Path, queries: Floats, count: int) -> Found:
    """Search the index of a run; the best it finds, which need not be all."""
    folder = run / "index"
    shards = read_json(folder / "index.json")["shards"]
    parts = []
    for number in range(shards):
        index = _opened(shard_path(folder, number), queries.shape[1])
        matches = index.search(queries, count)
        keys = np.atleast_2d(matches.keys).astype(np.int64)
        cosines = 1.0 - np.atleast_2d(matches.distances).astype(np.float32)
        # A shard that has fewer than asked for leaves rubbish behind them.
        counts = getattr(matches, "counts", np.array([keys.shape[1]]))
        missing = np.arange(keys.shape[1]) >= np.reshape(counts, (-1, 1))
        parts.append(Found(np.where(missing, -np.inf, cosines), np.where(missing, -1, keys)))
    return merge_found(parts, count)


def search_run(embedding: Embedding, queries: Floats, count: int) -> Found:
    """Search the index of a run; nodes folded in since, which are few, are all compared."""
    if not has_index(embedding.path):
        raise BadInputError(
            f"Run {embedding.run} has no index. Set 'index: approximate' in the configuration of "
            "figrl reindex, or search exactly."
        )
    found = search_index(embedding.path, queries, count)
    if embedding.overlay is None:
        return found
    pieces = embedding.overlay.pieces(first_row=embedding.graph.nodes)
    return merge_found([found, search_vectors(pieces, normalised(queries), count)], count)
