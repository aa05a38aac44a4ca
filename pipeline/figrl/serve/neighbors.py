"""Nearest neighbours of nodes: by cosine, or by dot product for the product representation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import distributed
import numpy as np
import pyarrow as pa

from figrl.serve.embedding import open_store
from figrl.serve.index import search_run
from figrl.serve.search import search
from figrl.store.ids import parquet_id_type
from figrl.store.layout import PathLike


def neighbors(
    store: PathLike,
    ids: Sequence[int] | Sequence[str],
    *,
    count: int = 10,
    run: str | None = None,
    approximate: bool = False,
    client: distributed.Client | None = None,
) -> pa.Table:
    """Find the nodes whose vectors lie nearest.

    By cosine; for vectors of the product representation by dot product.

    Parameters
    ----------
    store : path
    ids : sequence of int or str
        Nodes to search for; they are not among their own neighbours.
    count : int
        Number of neighbours of each.
    run : str, optional
        By default the published run.
    approximate : bool
        Search the index that re-indexing builds, which may miss some; else all vectors are
        compared.
    client : distributed.Client, optional
        Cluster for the exact search; by default the threads of this process.

    Returns
    -------
    pyarrow.Table
        ``id``, ``rank`` from 1 on, ``neighbor``, and ``cosine`` or ``dot``.

    Raises
    ------
    KeyError
        If the run has no vector for one of the ids.

    Examples
    --------
    >>> figrl.neighbors("store", ["alice", "bob"], count=5).to_pandas()  # doctest: +SKIP
    """
    embedding = open_store(Path(store)).embedding(run)
    own = embedding.rows_of(ids)
    queries, metric = embedding.vectors_at(own), embedding.metric
    if approximate:
        found = search_run(embedding, queries, count + 1)
    else:
        vectors = embedding.path / "embedding"
        found = search(vectors, embedding.overlay, queries, count + 1, metric, client)
    others = (found.rows != own[:, None]) & (found.rows >= 0)
    # A query that is not among its own results has one too many.
    others &= np.cumsum(others, axis=1) <= count
    query, place = np.nonzero(others)
    kind = parquet_id_type(embedding.graph.id_kind)
    columns = {
        "id": pa.array(ids, kind).take(pa.array(query)),
        "rank": np.cumsum(others, axis=1)[query, place],
        "neighbor": pa.array(embedding.ids_at(found.rows[others]), kind),
        metric: found.scores[others],
    }
    types = {"id": kind, "rank": pa.int64(), "neighbor": kind, metric: pa.float32()}
    return pa.table(columns, pa.schema(types))
