"""The call of ingest: from the names of files to the manifest of a stored graph."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import distributed

from figrl.engine.runner import ClusterRunner, map_on_workers
from figrl.engine.session import Session
from figrl.ingestion.build import build_graph
from figrl.ingestion.format import SourceFile
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import find_files, inspect_file
from figrl.store import layout
from figrl.store.files import delete, digest, exists
from figrl.store.layout import PathLike, StorePaths

_READING = 2
"""Counts the rules by which columns are chosen and fields are read; other rules, another graph."""


def run_ingest(
    edges: PathLike | Sequence[PathLike], store: PathLike, options: IngestOptions, session: Session
) -> dict[str, Any]:
    """Ingest and return the report; see `figrl.ingest`."""
    paths = layout.store_paths(store)
    files = find_files(edges)
    with session.open() as client, paths.locked("ingest"):
        sources = inspect_files(client, files, options)
        version, done_before = ingest_graph(client, paths, sources, options, session)
        paths.set_latest_graph(version)
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
        runner = ClusterRunner(client, folder / "work" / "marks", session.monitor)
        facts = build_graph(runner, sources, options, session.memory(client), folder)
        manifest = {
            "graph": facts,
            "config": options.significant(),
            "files": len(sources),
            "sources": [source.path for source in sources],
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


def inspect_files(
    client: distributed.Client, files: Sequence[str], options: IngestOptions
) -> list[SourceFile]:
    """Sniff every file, on the workers."""
    return map_on_workers(client, inspect_file, [(path, options) for path in files])
