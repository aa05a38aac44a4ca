"""Nearest neighbours by cosine: exact, a chunk of vectors at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import distributed
import numpy as np
import numpy.typing as npt
from dask.system import CPU_COUNT

from pipeline.run import map_once
from pipeline.serve.overlay import Overlay
from pipeline.tiles import Floats, open_tiles

Rows = npt.NDArray[np.int64]
_CHUNKS_OF_A_TASK = 16
_TASKS_AT_A_TIME = 64
_QUERIES_AT_A_TIME = 256
_COSINES_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class Found:
    """The best rows for each query, best first; row -1 where there are fewer than asked for."""

    cosines: Floats
    rows: Rows


def normalised(vectors: Floats) -> Floats:
    """Rows of length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def search_vectors(pieces: Iterable[tuple[int, Floats]], queries: Floats, count: int) -> Found:
    """Best rows of some pieces of vectors, each with the number of its first row."""
    best = _nothing(queries.shape[0], count)
    for first, vectors in _cut(pieces, max(_COSINES_AT_A_TIME // len(queries), 1)):
        cosines = queries @ normalised(vectors).T
        kept = min(count, cosines.shape[1])
        # What is as good as the last one kept is kept too: which of them is decided by the row.
        chosen = np.argpartition(-cosines, kept - 1, axis=1)[:, :kept]
        lowest = np.take_along_axis(cosines, chosen, axis=1).min(axis=1, keepdims=True)
        best = _merge_ties(best, cosines, lowest, first, count)
    return best


def _cut(pieces: Iterable[tuple[int, Floats]], rows: int) -> Iterator[tuple[int, Floats]]:
    """Pieces of no more than so many rows."""
    for first, vectors in pieces:
        for begin in range(0, len(vectors), rows):
            yield first + begin, vectors[begin : begin + rows]


def _nothing(queries: int, count: int) -> Found:
    return Found(
        np.full((queries, count), -np.inf, np.float32), np.full((queries, count), -1, np.int64)
    )


def _merge_ties(best: Found, cosines: Floats, lowest: Floats, first: int, count: int) -> Found:
    """Put the candidates of a piece, those not below `lowest`, among the best so far."""
    merged = _nothing(*best.rows.shape)
    for query in range(cosines.shape[0]):
        here = np.flatnonzero(cosines[query] >= lowest[query])
        values = np.concatenate([best.cosines[query], cosines[query, here]])
        rows = np.concatenate([best.rows[query], here + first])
        order = np.lexsort((rows, -values))[:count]
        merged.cosines[query], merged.rows[query] = values[order], rows[order]
    return merged


def merge_found(parts: Iterable[Found], count: int) -> Found:
    """The best of all parts."""
    found = list(parts)
    values = np.concatenate([part.cosines for part in found], axis=1)
    rows = np.concatenate([part.rows for part in found], axis=1)
    order = np.lexsort((rows, -values))[:, :count]
    return Found(np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1))


def search_rows(path: Path, start: int, stop: int, queries: Floats, count: int) -> Found:
    """Best rows of a stretch of a stored matrix."""
    return search_vectors(_chunks(path, start, stop), queries, count)


def _chunks(path: Path, start: int, stop: int) -> Iterator[tuple[int, Floats]]:
    tiles = open_tiles(path)
    buffer = np.empty((tiles.chunks[0], tiles.shape[1]), np.float32)
    for begin in range(start, stop, tiles.chunks[0]):
        yield begin, tiles.read((begin, 0), buffer[: min(tiles.chunks[0], stop - begin)])


def search(
    path: Path,
    overlay: Overlay | None,
    queries: Floats,
    count: int,
    client: distributed.Client | None = None,
) -> Found:
    """Search all vectors of a run, and those that were folded in since.

    Without a client the threads of this process do it, a chunk of vectors each at a time.
    """
    if not len(queries):
        return _nothing(0, count)
    wanted = normalised(queries)
    parts = [
        _search_some(path, overlay, wanted[begin : begin + _QUERIES_AT_A_TIME], count, client)
        for begin in range(0, len(wanted), _QUERIES_AT_A_TIME)
    ]
    return Found(
        np.concatenate([part.cosines for part in parts]),
        np.concatenate([part.rows for part in parts]),
    )


def _search_some(
    path: Path,
    overlay: Overlay | None,
    queries: Floats,
    count: int,
    client: distributed.Client | None,
) -> Found:
    tiles = open_tiles(path)
    nodes, step = tiles.shape[0], _CHUNKS_OF_A_TASK * tiles.chunks[0]
    starts = range(0, nodes, step)
    best = _nothing(len(queries), count)
    for begin in range(0, len(starts), _TASKS_AT_A_TIME):
        calls = [
            (path, start, min(start + step, nodes), queries, count)
            for start in starts[begin : begin + _TASKS_AT_A_TIME]
        ]
        if client is not None:
            found = map_once(client, search_rows, calls)
        else:
            with ThreadPoolExecutor(CPU_COUNT) as threads:
                found = list(threads.map(lambda call: search_rows(*call), calls))
        best = merge_found([best, *found], count)
    if overlay is not None:
        newer = search_vectors(overlay.pieces(first_row=nodes), queries, count)
        best = merge_found([best, newer], count)
    return best
