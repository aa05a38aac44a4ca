"""What the calls are made of: which graph is meant, where it is stored, how it is learnt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed

from figrl.api.embedding import Embedding, open_store
from figrl.api.temporary import TemporaryFolder
from figrl.api.words import STOPPED_WITHOUT_STORE
from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.embed import embed_store
from figrl.serve import embedding as serve
from figrl.store.files import exists
from figrl.store.graph import Graph, open_graph
from figrl.store.layout import PathLike, existing_store
from figrl.store.places import local_path, remote_url


def known_graph(graph: Any, store: PathLike | None) -> tuple[Path, Graph] | None:
    """Store and graph of what was given; None if it is edges."""
    if isinstance(graph, serve.Embedding):
        raise TypeError("This is learnt already. To learn its graph again give run.graph.")
    if isinstance(graph, str | os.PathLike):
        _check_there(graph)
    if isinstance(graph, Graph):
        place, known = graph.store, graph
    elif isinstance(graph, serve.StoreView):
        place, known = graph.paths.root, graph.graph
    elif graph is None or (isinstance(graph, str | os.PathLike) and _is_store(graph)):
        paths = existing_store(store if graph is None else graph)  # type: ignore[arg-type]
        return paths.root, open_graph(paths)
    else:
        return None
    if store is not None:
        raise ConfigError(f"The graph is in a store, {place}: leave --store out.")
    return place, known


def _is_store(path: PathLike) -> bool:
    """Whether a path is that of a store, and not of edge files."""
    return remote_url(path) is None and exists(local_path(path) / "graph")


def _check_there(path: PathLike) -> None:
    """Refuse a path at which there is nothing; a pattern stands for several."""
    if remote_url(path) is not None:
        return
    place = local_path(path)
    if exists(place) or any(sign in os.fspath(path) for sign in "*?["):
        return
    if place.suffix:
        raise BadInputError(
            f"The file {os.fspath(path)} does not exist. Correct its path; a relative one is "
            f"looked for in {Path.cwd()}."
        )
    raise BadInputError(
        f"{os.fspath(path)} does not exist: there are neither edges nor a store. Correct the path, "
        f"or make a store: figrl ingest EDGES --store {place}"
    )


@contextmanager
def store_at(
    store: PathLike | None, client: distributed.Client | None
) -> Iterator[tuple[Path, TemporaryFolder | None]]:
    """The store that was given, or a temporary one, with what keeps it."""
    if store is not None:
        yield local_path(store), None
        return
    keep = TemporaryFolder()
    keep.check_seen_by(client)
    try:
        yield keep.path, keep
    except KeyboardInterrupt:
        raise KeyboardInterrupt(STOPPED_WITHOUT_STORE) from None


def ingest_into(
    edges: Any,
    store: Path,
    options: IngestOptions,
    session: Session,
    keep: TemporaryFolder | None,
) -> Graph:
    """Ingest edges; the graph keeps its temporary store, if it has one."""
    report = run_ingest(edges, store, options, session)
    return replace(open_graph(existing_store(store), report["graph_version"]), keep=keep)


def embed_graph(
    store: Path, graph: Graph, options: EmbedOptions, session: Session, *, publish: bool | None
) -> Embedding:
    """Learn a run of a graph; it keeps what the graph keeps."""
    report = embed_store(store, options, session, publish=publish, version=graph.version)
    run = open_store(store).embedding(report["run"])
    return replace(run, graph=replace(run.graph, keep=graph.keep))
