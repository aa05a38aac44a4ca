"""From edges to a file of vectors in one job."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.inputs import Edges, read_input
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.embed import embed_store
from figrl.serve.embedding import open_store
from figrl.serve.export import export_to
from figrl.serve.output import Place, check_output, output_locked, space_of
from figrl.store.files import delete
from figrl.store.layout import PathLike, existing_store

Report = dict[str, Any]


def edges_to_vectors(
    edges: Edges | None,
    read: IngestOptions,
    learn: EmbedOptions,
    session: Session,
    *,
    out: PathLike | None = None,
    store: PathLike | None = None,
    publish: bool | None = None,
    overwrite: bool = False,
) -> Report:
    """Ingest, learn, and write the vectors; return the report of `embed`, with those of the others.

    Parameters
    ----------
    edges : Edges or None
        None for the graph that the store has.
    read, learn : IngestOptions, EmbedOptions
    session : Session
    out : path, optional
        Parquet file or folder of the vectors.
    store : path, optional
        Store that is kept; by default one in the hidden folder beside `out`, which is deleted when
        the vectors are written. A job that was stopped goes on from it.
    publish : bool, optional
        As of `embed`.
    overwrite : bool
        Whether `out` may be replaced, if figrl wrote it.
    """
    started = time.perf_counter()
    if out is None:
        if store is None:
            raise ConfigError("Give --out for the vectors, or --store to keep graph and vectors.")
        return _learn(edges, Path(store), read, learn, session, publish)
    given = None if edges is None else read_input(edges, read, session.storage)
    inputs = [] if given is None else [*given.given, *given.files]
    place_of_store = space_of(Path(out).resolve()) / "store" if store is None else Path(store)
    path = check_output(out, store=place_of_store, inputs=inputs)
    with output_locked(path, "embed", overwrite=overwrite) as place, session.open() as client:
        place.check_before()
        session = replace(session, client=client)
        try:
            report = _learn(edges, place_of_store, read, learn, session, publish)
        except (BadInputError, ConfigError):
            # The same command would end in the same way, so there is nothing to go on from.
            if store is None:
                delete(place_of_store)
            raise
        exported = _export(place, place_of_store, report["run"], session)
    return {
        **report,
        "store": None if store is None else report["store"],
        "out": exported["out"],
        "rows": exported["rows"],
        "export": exported,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _learn(
    edges: Edges | None,
    store: Path,
    read: IngestOptions,
    learn: EmbedOptions,
    session: Session,
    publish: bool | None,
) -> Report:
    if edges is None:
        existing_store(store)
        return embed_store(store, learn, session, publish=publish)
    with session.open() as client:
        used = replace(session, client=client)
        graph = run_ingest(edges, store, read, used)
        version = graph["graph_version"]
        report = embed_store(store, learn, used, publish=publish, version=version)
    return {**report, "ingest": graph}


def _export(place: Place, store: Path, run: str, session: Session) -> Report:
    embedding = open_store(store).embedding(run)
    rows = embedding.graph.block_rows
    return export_to(
        place, embedding, session, shard_rows=rows, keep=space_of(place.path) / "store"
    )
