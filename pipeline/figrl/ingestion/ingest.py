"""The call of ingest: from edges in any form to the manifest of a stored graph."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import distributed

from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.ingestion.build import build_graph
from figrl.ingestion.format import SourceFile
from figrl.ingestion.inputs import Edges, read_input
from figrl.ingestion.options import IngestOptions
from figrl.store import layout
from figrl.store.files import delete, digest, exists
from figrl.store.layout import PathLike, StorePaths

_READING = 2
"""Counts the rules by which columns are chosen and fields are read; other rules, another graph."""


def run_ingest(
    edges: Edges, store: PathLike, options: IngestOptions, session: Session
) -> dict[str, Any]:
    """Ingest and return the report; see `figrl.ingest`."""
    paths = layout.store_paths(store)
    given = read_input(edges, options, session.storage)
    with session.open() as client, paths.locked("ingest") as lock:
        with given.opened(client, paths.work / "edges", session.monitor) as sources:
            version, done_before = ingest_graph(client, paths, sources, options, session)
        paths.set_latest_graph(version)
        lock.note(graph=version, result="nothing to do" if done_before else "done")
    manifest = layout.read_manifest(paths.graph(version))
    return {
        "store": str(paths.root),
        "graph_version": version,
        "already_done": done_before,
        **manifest["graph"],
        **{key: value for key, value in manifest.items() if key not in ("graph", "format")},
    }


def ingest_graph(
    client: distributed.Client,
    paths: StorePaths,
    sources: Sequence[SourceFile],
    options: IngestOptions,
    session: Session,
) -> tuple[str, bool]:
    """Build a graph in a locked store; return its version, and whether it was there before."""
    started = time.perf_counter()
    version = digest(ingest_identity(sources, options))
    folder = paths.graph(version)
    done_before = exists(folder / "manifest.json")
    if not done_before:
        memory = session.memory(client)
        runner = ClusterRunner(client, folder / "work" / "marks", session.monitor, memory)
        facts = build_graph(runner, sources, options, memory, folder)
        manifest = {
            "graph": facts,
            "config": options.significant(),
            "files": len(sources),
            "sources": [source.name for source in sources],
            **({"from_memory": True} if any(source.stands_for for source in sources) else {}),
            "input_bytes": sum(source.size_bytes for source in sources),
            "created": round(time.time(), 3),
            "seconds": round(time.perf_counter() - started, 3),
            **runner.describe(),
        }
        layout.write_manifest(folder, manifest)
    delete(folder / "work")
    return version, done_before


def ingest_identity(sources: Sequence[SourceFile], options: IngestOptions) -> Any:
    """What identifies a stored graph: the input, and how it is read."""
    fingerprints = [source.fingerprint for source in sources]
    return [layout.FORMAT, options.significant(), fingerprints, _READING]
