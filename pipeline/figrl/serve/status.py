"""The status of a store: its graph, runs, attempts, history, submitted jobs, unfinished work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from figrl.engine.submitted import list_jobs
from figrl.errors import BadInputError
from figrl.serve.attempts import last_attempt
from figrl.serve.overlay import open_overlay
from figrl.serve.publish import history, is_pinned
from figrl.store.files import exists, list_prefix, size_bytes
from figrl.store.graph import Graph, open_graph
from figrl.store.jobs import current_owner, last_jobs
from figrl.store.layout import PathLike, StorePaths, existing_store, read_manifest, store_paths

_SHOWN = 20
"""Number of events and jobs in the status, the last ones."""

_RUN_FACTS = ("run", "created", "graph", "dim", "sketch_size", "seconds", "peak_worker_bytes")


def store_status(store: PathLike) -> dict[str, Any]:
    """Describe the graph, the runs and the unfinished work of a store."""
    paths = store_paths(store)
    version, owner = paths.latest_graph(), current_owner(paths.root)
    if version is None and not list_jobs(paths) and not last_jobs(paths.root, 1):
        existing_store(store)
    manifests = []
    for name in paths.finished_runs():
        # A run may be deleted meanwhile.
        with suppress(BadInputError):
            manifests.append(read_manifest(paths.run(name)))
    return {
        "store": str(paths.root),
        "graph": None if version is None else _describe_graph(open_graph(paths, version)),
        "current": paths.current_run(),
        "runs": [
            {
                **{name: manifest[name] for name in _RUN_FACTS},
                "pinned": is_pinned(paths, manifest["run"]),
                "size_bytes": size_bytes(paths.run(manifest["run"])),
                "folded_in": len(open_overlay(paths.run(manifest["run"])) or ()),
            }
            for manifest in manifests
        ],
        "last_attempt": _last_attempt(paths),
        "history": history(paths)[-_SHOWN:],
        "last_jobs": last_jobs(paths.root, _SHOWN),
        "jobs": list_jobs(paths)[-_SHOWN:],
        "in_use_by": owner,
        "unfinished": _unfinished(paths),
        "size_bytes": size_bytes(paths.root),
    }


def _last_attempt(paths: StorePaths) -> dict[str, Any] | None:
    """The last attempt to publish; one that did not end and has no living owner was killed."""
    made = last_attempt(paths)
    if made is not None and made["result"] == "running":
        owner = current_owner(paths.root) or {}
        if owner.get("purpose") != made["job"] or owner["state"] != "alive":
            # It may have ended meanwhile.
            now = last_attempt(paths)
            return {**made, "result": "killed"} if now == made else now
    return made


def _describe_graph(graph: Graph) -> dict[str, Any]:
    return {
        "version": graph.version,
        "kind": graph.kind,
        "nodes": graph.nodes,
        **{f"{side}_nodes": count for side, count in graph.side_nodes().items()},
        "edges": graph.edges,
        "weighted": graph.weighted,
        "ids": graph.id_kind,
    }


def _unfinished(paths: StorePaths) -> list[dict[str, Any]]:
    found = [
        (f"{kind} {folder.name}", folder)
        for kind, root in (("graph", paths.graphs), ("run", paths.runs))
        for folder in list_prefix(root, "*/")
        if not exists(folder / "manifest.json")
    ]
    found += [(folder.name, folder) for folder in list_prefix(paths.work)]
    return [{"what": what, "blocks_done": _marks(folder)} for what, folder in found]


def _marks(folder: Path) -> int:
    """Number of marks of a job; they lie at the top, or in its work folder."""
    count = 0
    for place in ("marks", "work/marks", "graph/work/marks"):
        # Marks may be deleted meanwhile.
        with suppress(FileNotFoundError):
            count += len(list_prefix(folder, f"{place}/*/*.json"))
    return count
