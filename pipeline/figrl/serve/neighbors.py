"""Nearest neighbours of nodes, by cosine, or by dot product for the product representation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import distributed
import numpy as np
import pyarrow as pa

from figrl.errors import ConfigError
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.index import search_run
from figrl.serve.lookup import check_side
from figrl.serve.search import Found, Rows, nothing_found, search
from figrl.store.ids import parquet_id_type
from figrl.store.layout import PathLike
from figrl.store.matrix import Floats
from figrl.store.sides import SIDES, Side, other_side

Among = Literal["source", "target", "all"]


def neighbors(
    store: PathLike,
    ids: Sequence[int] | Sequence[str],
    *,
    count: int = 10,
    run: str | None = None,
    side: Side | None = None,
    among: Among | None = None,
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
        Number of neighbours of each.
    run : str, optional
        By default the published run.
    side : "source" or "target", optional
        Side of `ids` in a bipartite or directed graph; may be left out if only one side has them.
    among : "source", "target" or "all", optional
        Nodes that are searched; by default those of the other side, such as the items for a user.
    approximate : bool
        Search the index that re-indexing builds, which may miss some; else all vectors are
        compared.
    client : distributed.Client, optional
        Cluster for the exact search; by default the threads of this process.

    Returns
    -------
    pyarrow.Table
        ``id``, ``rank`` from 1 on, ``neighbor``, and ``cosine`` or, for the product
        representation, ``dot``. Where nodes have sides also ``side`` and ``neighbor_side``.

    Raises
    ------
    KeyError
        If the run has no vector for one of the ids.

    Examples
    --------
    >>> figrl.neighbors("store", ["alice", "bob"], count=5).to_pandas()  # doctest: +SKIP
    """
    embedding = open_store(store).embedding(run)
    chosen: dict[str, Any] = {"side": side, "among": among, "approximate": approximate}
    return find_neighbors(embedding, ids, count=count, client=client, **chosen)


def find_neighbors(
    embedding: Embedding,
    ids: Sequence[int] | Sequence[str],
    *,
    count: int = 10,
    side: Side | None = None,
    among: Among | None = None,
    approximate: bool = False,
    client: distributed.Client | None = None,
) -> pa.Table:
    """Find the nearest nodes in an open run; see `neighbors`."""
    _check(embedding, count, None if among == "all" else among)
    own = embedding.rows_of(ids, side)
    queries = embedding.vectors_at(own)
    found = nothing_found(own.size, count + 1)
    for searched, places in _searches(embedding, own, among):
        part = _search(embedding, queries[places], count + 1, searched, approximate, client)
        found.scores[places], found.rows[places] = part.scores, part.rows
    others = (found.rows != own[:, None]) & (found.rows >= 0)
    # A query that is not among its own results has one too many.
    others &= np.cumsum(others, axis=1) <= count
    query, place = np.nonzero(others)
    near = found.rows[others]
    kind = parquet_id_type(embedding.graph.id_kind)
    names, sides = pa.array(ids, kind).take(pa.array(query)), embedding.sides_at(own[query])
    columns = {
        "id": names,
        "side": sides,
        "rank": pa.array(np.cumsum(others, axis=1)[query, place], pa.int64()),
        "neighbor": pa.array(embedding.ids_at(near), kind),
        "neighbor_side": embedding.sides_at(near),
        embedding.metric: pa.array(found.scores[others], pa.float32()),
    }
    return pa.table({name: values for name, values in columns.items() if values is not None})


def find_nearest(
    embedding: Embedding,
    vectors: Floats,
    *,
    count: int = 10,
    among: Among | None = None,
    approximate: bool = False,
    client: distributed.Client | None = None,
) -> pa.Table:
    """Find the nodes whose vectors lie nearest to some vectors, which need not be of nodes.

    Columns as in `neighbors`, with ``query``, the number of the vector, in place of ``id``.
    """
    searched: Side | None = None if among == "all" else among
    _check(embedding, count, searched)
    found = _search(embedding, vectors, count, searched, approximate, client)
    query, place = np.nonzero(found.rows >= 0)
    near = found.rows[query, place]
    columns = {
        "query": pa.array(query, pa.int64()),
        "rank": pa.array(place + 1, pa.int64()),
        "neighbor": pa.array(embedding.ids_at(near), parquet_id_type(embedding.graph.id_kind)),
        "neighbor_side": embedding.sides_at(near),
        embedding.metric: pa.array(found.scores[query, place], pa.float32()),
    }
    return pa.table({name: values for name, values in columns.items() if values is not None})


def _check(embedding: Embedding, count: object, among: Side | None) -> None:
    """Refuse what cannot be searched for."""
    if not isinstance(count, int | np.integer) or count < 1:
        raise ConfigError(f"--count is {count!r}. It has to be a whole number from 1 on.")
    check_side(embedding.graph, among, "--among")


def _searches(
    embedding: Embedding, own: Rows, among: Among | None
) -> Iterator[tuple[Side | None, Rows]]:
    """What is searched for which queries: a side, or None for all nodes."""
    sides = embedding.sides_at(own)
    if sides is None or among == "all":
        yield None, np.arange(own.size)
    elif among is not None:
        yield among, np.arange(own.size)
    else:
        for side in SIDES:
            places = np.flatnonzero(np.array(sides) == side)
            if places.size:
                yield other_side(side), places


def _search(
    embedding: Embedding,
    queries: Floats,
    count: int,
    side: Side | None,
    approximate: bool,
    client: distributed.Client | None,
) -> Found:
    """Search one side, or all nodes."""
    among = embedding.graph.index.side_range(side)
    overlay = embedding.overlay
    if overlay is not None and side is not None and overlay.side != side:
        overlay = None
    if approximate:
        return search_run(embedding, overlay, queries, count, among)
    vectors, metric = embedding.path / "embedding", embedding.metric
    return search(vectors, overlay, queries, count, metric, client, among=among)
