"""The calls of a notebook: ingest, embed and fold_in.

Each uses the Dask client it is given, or Dask's current one, or starts a local cluster. Each can be
interrupted at any moment and called again: finished blocks are kept. The options of each are the
fields of its model (`IngestOptions`, `EmbedOptions`, `FoldInOptions`), with the same defaults;
those that are not given may be set in ``dask.config``, section ``figrl`` (`figrl.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import distributed

from figrl.api.embedding import Embedding
from figrl.api.folding import FoldedNodes, fold_into
from figrl.api.graphs import embed_graph, ingest_into, known_graph, store_at
from figrl.api.progress import showing
from figrl.api.words import in_python
from figrl.config import Model, make_options
from figrl.engine.session import Session
from figrl.ingestion.inputs import Edges
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions, Representation
from figrl.serve import embedding as serve
from figrl.serve.fold_in import FoldInOptions
from figrl.settings import configured, with_settings
from figrl.store.graph import Graph
from figrl.store.layout import PathLike
from figrl.store.sides import GraphKind, Side


@in_python
@configured(IngestOptions)
def ingest(
    edges: Edges,
    *,
    store: PathLike | None = None,
    kind: GraphKind = "undirected",
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    time: str | None = None,
    half_life: str | float | None = None,
    as_of: str | float | None = None,
    ids: Literal["auto", "int", "string"] = "auto",
    csv_header: Literal["auto", "yes", "no"] = "auto",
    on_bad_edges: Literal["fail", "quarantine"] = "fail",
    block_rows: int | None = None,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    progress: bool | None = None,
) -> Graph:
    """Turn edges into a stored graph.

    Parameters
    ----------
    edges : path, sequence of paths, frame, graph, matrix, array or pairs
        Files, folders or glob patterns of Parquet, CSV or text, also behind URLs (``s3://``,
        ``gs://``, ``az://``, ``https://``); a frame of pandas, Polars, Arrow or
        Dask, whose partitions are read by the workers; a graph of networkx, with the attribute
        ``weight`` of its edges if they have it; a sparse adjacency matrix of scipy, whose entries
        are weights unless all are 1, and whose rows are numbered from 0; an array of shape
        (edges, 2), or (edges, 3) with ``weight=3``; an iterable of pairs. Nodes without edges, of a
        graph or a matrix, are kept.
    store : path, optional
        Folder of the store, on a file system that all workers share; by default a temporary folder
        of this machine, which lives as long as the graph and what is made of it.
    kind : {"undirected", "bipartite", "directed"}
        What an edge is. A DiGraph is directed only if that is said here.
    source, target : str or int, optional
        Columns of the ends; by default by their names, else the first two that may hold ids.
        Columns without names are numbered from 1.
    weight : str or int, optional
        Column, or attribute of edges, of the weights, or ``"none"``.
    time : str, optional
        Column of times, for `half_life`.
    half_life : str or float, optional
        Weights halve with each such age of an edge: ``"30d"``.
    as_of : str or float, optional
        Time up to which ages are counted; by default the latest in the input.
    ids : {"auto", "int", "string"}
        How ids in text files are read.
    csv_header : {"auto", "yes", "no"}
        Whether CSV begins with names.
    on_bad_edges : {"fail", "quarantine"}
        Stop at the first bad row, or set bad rows aside.
    block_rows : int, optional
        Nodes in a row block, a power of two.
    client : distributed.Client, optional
        By default Dask's current client, or that of a new local cluster.
    memory_limit : str or int, optional
        Memory that each worker process may use, such as ``"2GB"``; by default the worker's own.
    progress : bool, optional
        Whether a progress bar is shown; by default in notebooks.

    Returns
    -------
    Graph

    Examples
    --------
    >>> figrl.ingest([(1, 2), (2, 3), (3, 1)]).edges
    3
    >>> import pandas as pd
    >>> plays = pd.DataFrame({"user": [1, 1, 2], "item": [7, 8, 8], "times": [3, 1, 2]})
    >>> graph = figrl.ingest(plays, kind="bipartite", weight="times")
    >>> graph.side_nodes()
    {'source': 2, 'target': 2}
    """
    options = _options(IngestOptions, locals())
    with showing(progress, "ingest") as monitor, store_at(store, client) as (place, keep):
        return ingest_into(edges, place, options, Session(client, memory_limit, monitor), keep)


@in_python
@configured(EmbedOptions)
def embed(
    graph: Graph | serve.StoreView | Edges | None = None,
    *,
    store: PathLike | None = None,
    publish: bool | None = None,
    preset: Literal["accurate", "fast", "paper"] = "accurate",
    dim: int = 128,
    width: int | None = None,
    depth: int | None = None,
    sketch_size: int | None = None,
    epsilon: float | None = None,
    regularization: str | float | None = None,
    representation: Representation | None = None,
    smoothing: str | int | None = None,
    prominence: str | float | None = None,
    seed: int = 0,
    keep_sketch: bool = False,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    progress: bool | None = None,
) -> Embedding:
    """Learn one vector per node of a graph, and publish them in its store.

    Parameters
    ----------
    graph : Graph, store, or edges
        A graph of `ingest`; a store, by its path, whose graph that was ingested last is taken; or
        edges in any form that `ingest` takes, read with its defaults.
    store : path, optional
        Where edges are ingested to; by default a temporary folder of this machine, which lives as
        long as the embedding.
    publish : bool, optional
        Whether the run becomes the current one; by default it does, but not where ``figrl
        reindex`` has published. There ``True`` publishes through its gates (`GateError`).
    preset : {"accurate", "fast", "paper"}
        What the options that are left out are.
    dim : int
        Length of each vector; it has to be below the number of nodes.
    width, depth : int, optional
        Columns that are multiplied with the graph at once, and products of each.
    sketch_size : int, optional
        ``width * depth``, in place of the width.
    epsilon : float, optional
        Accuracy from which the paper's rule finds the sketch size.
    regularization : "auto" or float, optional
        Added to every degree.
    representation : {"unit", "product", "degree"}, optional
        What the vectors are for: cosines, dot products, or as in the paper.
    smoothing : "auto" or int, optional
        Products of the low-pass filter.
    prominence : "auto" or float, optional
        Weight of the last dimension, which says how well linked a node is.
    seed : int
        Seed of the random projection.
    keep_sketch : bool
        Whether the sketch stays in the store, several times as large as the vectors.
    client, memory_limit, progress : optional
        As of `ingest`.

    Returns
    -------
    Embedding

    Examples
    --------
    >>> run = figrl.embed([("ann", "bob"), ("bob", "cem"), ("cem", "ann"), ("cem", "dee")], dim=2)
    >>> run["ann"].shape
    (2,)
    >>> run.neighbors("ann", 2)["neighbor"].tolist()
    ['bob', 'cem']
    """
    options = _options(EmbedOptions, locals())
    if graph is None and store is None:
        raise TypeError("embed needs a graph, a store or edges, such as embed('store').")
    known = known_graph(graph, store)
    call = "ingest and embed" if known is None else "embed"
    with showing(progress, call) as monitor:
        if known is not None:
            session = Session(client, memory_limit, monitor)
            return embed_graph(*known, options, session, publish=publish)
        session = Session(client, memory_limit, monitor)
        with store_at(store, client) as (place, keep), session.open() as used:
            session = replace(session, client=used)
            made = ingest_into(graph, place, with_settings(IngestOptions, {}), session, keep)
            return embed_graph(place, made, options, session, publish=publish)


@in_python
@configured(FoldInOptions)
def fold_in(
    store: PathLike | serve.StoreView | serve.Embedding,
    edges: Edges,
    *,
    out: PathLike | None = None,
    run: str | None = None,
    overwrite: bool = False,
    side: Side | None = None,
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    ids: Literal["auto", "int", "string"] = "auto",
    csv_header: Literal["auto", "yes", "no"] = "auto",
    on_bad_edges: Literal["fail", "quarantine"] = "fail",
    degrees: Literal["extended", "stored"] = "extended",
    known: Literal["skip", "recompute"] = "skip",
    rounds: int = 3,
    client: distributed.Client | None = None,
    memory_limit: str | int | None = None,
    progress: bool | None = None,
) -> FoldedNodes:
    """Compute vectors of new nodes from their edges to known ones; nothing is learnt again.

    In each edge the new node comes first, and the known one second.

    Parameters
    ----------
    store : path, StoreView or Embedding
    edges : path, sequence of paths, frame, graph, matrix, array or pairs
        New node, known node, and optionally a weight, in any form that `ingest` takes. Of a graph
        or a symmetric matrix without directions, nodes that are known are skipped.
    out : path, optional
        One Parquet file if it ends in ``.parquet``, else a folder of them; by default a temporary
        folder that lives as long as the result.
    run : str, optional
        By default the published run, or that of the embedding.
    overwrite : bool
        Whether `out` may be replaced, if figrl wrote it.
    side : {"source", "target"}, optional
        Side of the new nodes in a bipartite or directed graph; by default source.
    source, target, weight : str or int, optional
        Columns of new nodes, known nodes and weights.
    ids : {"auto", "int", "string"}
        Ids are read as those of the graph; another kind is an error.
    csv_header : {"auto", "yes", "no"}
        Whether CSV begins with names.
    on_bad_edges : {"fail", "quarantine"}
        Stop at the first bad row, or set bad rows aside.
    degrees : {"extended", "stored"}
        Degrees of known nodes: with the new edges, or as stored.
    known : {"skip", "recompute"}
        What happens to a "new" node that the graph has.
    rounds : int
        Rounds in which linked new nodes pass their vectors on to each other.
    client, memory_limit, progress : optional
        As of `ingest`.

    Returns
    -------
    FoldedNodes

    Warns
    -----
    UserWarning
        If new nodes have no edge to a known one: their vectors are zeros.

    Examples
    --------
    >>> run = figrl.embed([(1, 2), (2, 3), (3, 1), (3, 4)], dim=2)
    >>> new = figrl.fold_in(run, [(9, 1), (9, 2)])
    >>> new.ids, new.vectors.shape, new[9].shape
    ([9], (1, 2), (2,))
    """
    options = _options(FoldInOptions, locals())
    if isinstance(store, serve.Embedding):
        run, store = run or store.run, store.graph.store
    elif isinstance(store, serve.StoreView):
        store = store.paths.root
    with showing(progress, "fold_in") as monitor:
        session = Session(client, memory_limit, monitor)
        return fold_into(store, run, edges, out, options, session, overwrite=overwrite)


def _options(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Options of a call, from its arguments."""
    return make_options(model, {name: given[name] for name in model.model_fields})
