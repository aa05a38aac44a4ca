"""Exact search for the nearest vectors by cosine or dot product, a chunk of vectors at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import distributed
import numpy as np
import numpy.typing as npt
from dask.system import CPU_COUNT

from figrl.engine.runner import map_on_workers
from figrl.serve.overlay import Overlay
from figrl.store.matrix import Floats, open_matrix

Rows = npt.NDArray[np.int64]
_CHUNKS_PER_TASK = 16
_TASKS_AT_A_TIME = 64
_QUERIES_AT_A_TIME = 256
_SCORES_AT_A_TIME = 1 << 22

Metric = Literal["cosine", "dot"]
"""What says how near two vectors are: the cosine of their angle, or their dot product."""


@dataclass(frozen=True)
class Found:
    """The best rows for each query, best first; row -1 where there are fewer than `count`."""

    scores: Floats
    rows: Rows


def row_lengths(vectors: Floats) -> npt.NDArray[np.float64]:
    """Lengths of rows; squares in float64, since those of 1e20 or 1e-23 are no float32."""
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.asarray(np.sqrt(squares))


def normalised(vectors: Floats) -> Floats:
    """Normalised rows; zeros stay zeros."""
    lengths = row_lengths(vectors)[:, None]
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def prepared(vectors: Floats, metric: Metric) -> Floats:
    """Vectors whose dot products are scores of the metric."""
    return normalised(vectors) if metric == "cosine" else vectors


def search_vectors(
    pieces: Iterable[tuple[int, Floats]], queries: Floats, count: int, metric: Metric
) -> Found:
    """Search pieces of vectors, each with the number of its first row, for prepared queries."""
    best = nothing_found(len(queries), count)
    for first, vectors in _cut(pieces, max(_SCORES_AT_A_TIME // len(queries), 1)):
        scores = queries @ prepared(vectors, metric).T
        last = min(count, scores.shape[1]) - 1
        # All ties of the last candidate are candidates: the row number decides between them.
        lowest = -np.partition(-scores, last, axis=1)[:, last]
        for query, found in enumerate(scores):
            here = np.flatnonzero(found >= lowest[query])
            values = np.concatenate([best.scores[query], found[here]])
            rows = np.concatenate([best.rows[query], here + first])
            order = np.lexsort((rows, -values))[:count]
            best.scores[query], best.rows[query] = values[order], rows[order]
    return best


def _cut(pieces: Iterable[tuple[int, Floats]], rows: int) -> Iterator[tuple[int, Floats]]:
    """Cut pieces so that none has more than `rows` rows."""
    for first, vectors in pieces:
        for begin in range(0, len(vectors), rows):
            yield first + begin, vectors[begin : begin + rows]


def nothing_found(queries: int, count: int) -> Found:
    """Result of a search that has found nothing yet."""
    shape = (queries, count)
    return Found(np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64))


def merge_found(parts: Sequence[Found], count: int) -> Found:
    """The best rows of all parts."""
    values = np.concatenate([part.scores for part in parts], axis=1)
    rows = np.concatenate([part.rows for part in parts], axis=1)
    order = np.lexsort((rows, -values))[:, :count]
    return Found(np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1))


def search_rows(
    path: Path, start: int, stop: int, queries: Floats, count: int, metric: Metric
) -> Found:
    """Search consecutive rows of a stored matrix; a task."""
    matrix = open_matrix(path)
    height = matrix.chunks[0]
    buffer = np.empty((height, matrix.shape[1]), np.float32)
    # The first row may lie within a chunk; the pieces after it are whole chunks.
    cuts = pairwise([start, *range(start - start % height + height, stop, height), stop])
    chunks = ((begin, matrix.read((begin, 0), buffer[: end - begin])) for begin, end in cuts)
    return search_vectors(chunks, queries, count, metric)


def search(
    path: Path,
    overlay: Overlay | None,
    queries: Floats,
    count: int,
    metric: Metric,
    client: distributed.Client | None = None,
    *,
    among: tuple[int, int] | None = None,
) -> Found:
    """Search vectors of a run, and those folded in since; without a client in threads.

    `among`: first row that is searched, and the row after the last; by default all.
    """
    among = among or (0, open_matrix(path).shape[0])
    wanted = prepared(queries, metric)
    best = nothing_found(len(wanted), count)
    for begin in range(0, len(wanted), _QUERIES_AT_A_TIME):
        batch = slice(begin, begin + _QUERIES_AT_A_TIME)
        found = _search_batch(path, overlay, wanted[batch], count, metric, client, among)
        best.scores[batch], best.rows[batch] = found.scores, found.rows
    return best


def _search_batch(
    path: Path,
    overlay: Overlay | None,
    queries: Floats,
    count: int,
    metric: Metric,
    client: distributed.Client | None,
    among: tuple[int, int],
) -> Found:
    matrix = open_matrix(path)
    nodes, step = matrix.shape[0], _CHUNKS_PER_TASK * matrix.chunks[0]
    starts = range(*among, step)
    best = nothing_found(len(queries), count)
    for begin in range(0, len(starts), _TASKS_AT_A_TIME):
        calls = [
            (path, start, min(start + step, among[1]), queries, count, metric)
            for start in starts[begin : begin + _TASKS_AT_A_TIME]
        ]
        if client is not None:
            found = map_on_workers(client, search_rows, calls)
        else:
            with ThreadPoolExecutor(CPU_COUNT) as threads:
                found = list(threads.map(lambda call: search_rows(*call), calls))
        best = merge_found([best, *found], count)
    if overlay is not None:
        newer = search_vectors(overlay.pieces(first_row=nodes), queries, count, metric)
        best = merge_found([best, newer], count)
    return best
