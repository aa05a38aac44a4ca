"""What a store holds, for people and for scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.errors import BadInputError
from pipeline.files import size_bytes
from pipeline.graph import Graph, open_graph
from pipeline.hosting import list_jobs
from pipeline.lock import owner_of
from pipeline.serve.overlay import open_overlay
from pipeline.serve.publish import history, is_pinned
from pipeline.store import StorePaths, existing_store, read_manifest, store_paths

_SHOWN = 20
"""Events and jobs that are shown, the last ones."""

_RUN_FACTS = ("run", "created", "graph", "dim", "sketch_size", "seconds", "peak_worker_bytes")


def store_status(store: str | os.PathLike[str]) -> dict[str, Any]:
    """Tell the graph, the runs and the unfinished work of a store."""
    paths = store_paths(store)
    known = paths.latest_graph()
    if known is None and not list_jobs(paths) and owner_of(paths.root) is None:
        existing_store(store)
    manifests = []
    for name in paths.finished_runs():
        # A run may be deleted while we look.
        with suppress(BadInputError):
            manifests.append(read_manifest(paths.run(name)))
    return {
        "store": str(paths.root),
        "graph": None if known is None else _graph_facts(open_graph(paths, known)),
        "current": paths.current_run(),
        "runs": [
            {
                **{name: manifest[name] for name in _RUN_FACTS},
                "pinned": is_pinned(paths, manifest["run"]),
                "folded_in": len(open_overlay(paths.run(manifest["run"])) or ()),
            }
            for manifest in manifests
        ],
        "history": history(paths)[-_SHOWN:],
        "jobs": list_jobs(paths)[-_SHOWN:],
        "in_use_by": owner_of(paths.root),
        "unfinished": _unfinished(paths),
        "size_bytes": size_bytes(paths.root),
    }


def _graph_facts(graph: Graph) -> dict[str, Any]:
    return {
        "version": graph.version,
        "nodes": graph.nodes,
        "edges": graph.edges,
        "weighted": graph.weighted,
        "ids": graph.id_kind,
    }


def _unfinished(paths: StorePaths) -> list[dict[str, Any]]:
    folders: list[tuple[str, Path]] = []
    for what, root in (("graph", paths.graphs), ("run", paths.runs)):
        for folder in sorted(root.glob("*")):
            begun = folder.is_dir() and not (folder / "manifest.json").exists()
            folders += [(f"{what} {folder.name}", folder)] * begun
    folders += [(folder.name, folder) for folder in sorted(paths.work.glob("*"))]
    return [
        {"what": what, "blocks_done": sum(1 for _ in _marks(folder))} for what, folder in folders
    ]


def _marks(folder: Path) -> Iterator[Path]:
    """Marks of a job; they lie at the top, or in its work folder."""
    for pattern in ("marks/*/*.json", "work/marks/*/*.json", "graph/work/marks/*/*.json"):
        with suppress(FileNotFoundError):
            yield from folder.glob(pattern)
