"""The calls of a notebook that write a graph or a run: ingest and embed.

Each uses the Dask client it is given, or Dask's current one, or starts a local cluster. Each can be
interrupted at any moment and called again: finished blocks are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed

from figrl.config import make_options
from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.embed import embed_store
from figrl.serve.embedding import Embedding, open_store
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import PathLike, existing_store


def ingest(
    edges: PathLike | Sequence[PathLike],
    *,
    store: PathLike,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> Graph:
    """Turn edge lists into a stored graph.

    Parameters
    ----------
    edges : path or sequence of paths
        Files, folders or glob patterns of Parquet, CSV or text.
    store : path
        Folder of the store, on a file system that all workers share.
    client : distributed.Client, optional
        By default Dask's current client, or that of a new local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.
    **options
        Fields of `figrl.ingestion.options.IngestOptions`: ``kind`` ("undirected", "bipartite" or
        "directed"), ``source``, ``target``, ``weight``, ``time``, ``half_life``, ``as_of``,
        ``ids``, ``csv_header``, ``on_bad_edges``, ``block_rows``.

    Returns
    -------
    Graph

    Examples
    --------
    >>> figrl.ingest("edges/*.parquet", store="store", weight="score")  # doctest: +SKIP
    >>> figrl.ingest("plays.parquet", store="store", kind="bipartite")  # doctest: +SKIP
    >>> figrl.ingest("calls.csv", store="store", time="at", half_life="30d")  # doctest: +SKIP
    """
    session = Session(client, memory_limit)
    report = run_ingest(edges, store, make_options(IngestOptions, options), session)
    return open_graph(existing_store(store), report["graph_version"])


def embed(
    store: PathLike,
    *,
    publish: bool | None = None,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    **options: Any,
) -> Embedding:
    """Learn one vector per node of the graph that was ingested last, and publish them.

    Parameters
    ----------
    store : path
    publish : bool, optional
        Whether the run becomes the current one; by default it does, but not where ``figrl
        reindex`` has published. There ``True`` publishes through its gates (`GateError`).
    client : distributed.Client, optional
        By default Dask's current client, or that of a new local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.
    **options
        Fields of `figrl.learn.spec.EmbedOptions`: ``preset``, ``dim``, ``sketch_size``,
        ``width``, ``depth``, ``epsilon``, ``regularization``, ``representation``, ``smoothing``,
        ``seed``.

    Returns
    -------
    Embedding

    Examples
    --------
    >>> run = figrl.embed("store", dim=64)  # doctest: +SKIP
    >>> run.lookup(["alice", "bob"])  # doctest: +SKIP
    """
    session = Session(client, memory_limit)
    report = embed_store(store, make_options(EmbedOptions, options), session, publish=publish)
    return open_store(Path(store)).embedding(report["run"])
