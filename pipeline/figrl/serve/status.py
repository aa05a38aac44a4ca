"""The status of a store: its graph, runs, attempts, history, submitted jobs, unfinished work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from figrl.engine.submitted import list_jobs
from figrl.errors import BadInputError, DamagedError
from figrl.serve.attempts import last_attempt
from figrl.serve.overlay import open_overlay
from figrl.serve.publish import history, is_pinned, refused_runs
from figrl.store.files import exists, list_prefix, size_bytes
from figrl.store.graph import open_graph
from figrl.store.jobs import current_owner, last_jobs
from figrl.store.layout import PathLike, StorePaths, existing_store, read_manifest, store_paths

Part = TypeVar("Part")

_CLOCK_SECONDS = 60.0
"""By which clocks may differ."""

_SHOWN = 20
"""Number of events and jobs in the status, the last ones."""

_RUN_FACTS = ("run", "created", "graph", "dim", "sketch_size", "seconds", "peak_worker_bytes")


class _Look:
    """Looks at parts of a store, and goes on where one is damaged."""

    def __init__(self) -> None:
        self.damaged: list[str] = []

    def __call__(self, look: Callable[[], Part], otherwise: Part) -> Part:
        """What `look` returns; `otherwise` if that is damaged."""
        try:
            return look()
        except BadInputError as error:
            if error.message not in self.damaged:
                self.damaged.append(error.message)
            return otherwise


def store_status(store: PathLike) -> dict[str, Any]:
    """Describe the graph, the runs and the unfinished work of a store.

    What is ``damaged`` is named there, with what to do, and left out.
    """
    paths, look = store_paths(store), _Look()
    owner = current_owner(paths.root)
    version = look(paths.latest_graph, None)
    if version is None and not look.damaged:
        _check_there(paths, look)
    current = look(paths.current_run, None)
    runs = [look(partial(_describe_run, paths, name), None) for name in paths.finished_runs()]
    known = [run for run in runs if run is not None]
    return {
        "store": str(paths.root),
        "graph": None if version is None else look(partial(_describe_graph, paths, version), None),
        "current": current,
        "runs": known,
        "last_attempt": look(lambda: _last_attempt(paths), None),
        "history": history(paths)[-_SHOWN:],
        "last_jobs": last_jobs(paths.root, _SHOWN),
        "jobs": list_jobs(paths)[-_SHOWN:],
        "in_use_by": owner,
        "unfinished": _unfinished(paths),
        "size_bytes": size_bytes(paths.root),
        "notes": list(_notes(known)),
        "damaged": look.damaged,
    }


def _check_there(paths: StorePaths, look: _Look) -> None:
    """Raise if there is no graph, and none that jobs failed to make."""
    try:
        existing_store(paths.root)
    except DamagedError as error:
        look.damaged.append(error.message)
    except BadInputError as error:
        if not list_jobs(paths) and not last_jobs(paths.root, 1):
            raise BadInputError(
                f"{error.message}, or the whole of it, as every night: figrl reindex CONFIG.yaml"
            ) from error


def _describe_run(paths: StorePaths, name: str) -> dict[str, Any] | None:
    """A run in a few facts; None if it was deleted meanwhile."""
    folder = paths.run(name)
    try:
        manifest = read_manifest(folder)
        return {
            **{fact: manifest[fact] for fact in _RUN_FACTS},
            "pinned": is_pinned(paths, name),
            "refused_by": refused_runs(paths).get(name),
            "size_bytes": size_bytes(folder),
            "folded_in": len(open_overlay(folder) or ()),
        }
    except BadInputError:
        if exists(folder):
            raise
        return None


def _notes(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What makes no sense, though nothing is damaged."""
    late = [run for run in runs if run["created"] > time.time() + _CLOCK_SECONDS]
    if late:
        made = datetime.fromtimestamp(late[-1]["created"]).isoformat(" ", "minutes")
        yield (
            f"Run {late[-1]['run']} was made at {made}, which is later than now: the clock of this "
            "machine was set back, or that of another one is ahead. Set them alike."
        )


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


def _describe_graph(paths: StorePaths, version: str) -> dict[str, Any]:
    graph = open_graph(paths, version)
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
