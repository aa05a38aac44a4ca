"""Which run is published, which ones were, and which may be deleted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from figrl.config import Options
from figrl.errors import BadInputError
from figrl.serve.overlay import hand_over_edges
from figrl.store import files
from figrl.store.layout import PathLike, StorePaths, check_finished, existing_store, read_manifest
from figrl.store.lease import not_in_use
from figrl.store.leftovers import list_temporary
from figrl.store.lock import Lock
from figrl.store.reserve import tell

Action = Literal["published", "rolled back", "refused", "failed", "deleted"]

PUBLICATIONS: tuple[Action, ...] = ("published", "rolled back")
"""Actions that make a run the current one."""


class KeepRuns(Options):
    """What stays on disk."""

    runs: int = Field(7, ge=1, description="Published runs, with the current one.")
    refused: int = Field(2, ge=0, description="Runs that a gate refused.")
    unfinished_days: float = Field(
        3.0, ge=0, description="Days after which unfinished work that nobody resumed is deleted."
    )


def history(paths: StorePaths, *actions: Action) -> list[dict[str, Any]]:
    """Events of a store, oldest first; of some actions, or of all."""
    # A power failure may leave half a line.
    events, _ = files.read_records(paths.root / "history.jsonl")
    return [event for event in events if not actions or event.get("action") in actions]


def record(paths: StorePaths, action: Action, run: str | None, **facts: Any) -> None:
    """Append an event to the history."""
    event = {"time": round(time.time(), 3), "action": action, "run": run, **facts}
    tell(paths.root, lambda: files.append_record(paths.root / "history.jsonl", event))


def runs_by_event(paths: StorePaths, *actions: Action) -> list[str]:
    """Existing runs that had an event of some actions, in the order of the last such event."""
    existing = set(paths.finished_runs())
    newest_first = reversed(history(paths, *actions))
    order = list(dict.fromkeys(event["run"] for event in newest_first))[::-1]
    return [run for run in order if run in existing]


def publish_run(
    paths: StorePaths,
    run: str,
    lock: Lock,
    *,
    by: str = "embed",
    action: Action = "published",
    hand_over: bool = False,
) -> None:
    """Make a complete run the published one; readers see the old one or the new one.

    `by`: the job. `hand_over`: copy the edges that were folded into the old one, so that the next
    fold-in or re-indexing finds them in the new one.
    """
    read_manifest(paths.run(run))
    lock.check()
    before = paths.current_run()
    if before is not None and before != run:
        if hand_over:
            hand_over_edges(paths.run(before), paths.run(run))
        failpoint("before current")
    if before != run:
        paths.publish(run)
    failpoint("current")
    back = {"before": before} if action == "rolled back" else {}
    note_published(paths, action, by=by, **back)
    failpoint("recorded")


def note_published(paths: StorePaths, action: Action = "published", **facts: Any) -> None:
    """Record the published run, unless it is recorded: a job may have been killed in between."""
    current = paths.current_run()
    events = history(paths, *PUBLICATIONS)
    if current is not None and (not events or events[-1]["run"] != current):
        record(paths, action, current, **facts)


def is_reindexed(paths: StorePaths) -> bool:
    """Whether `reindex` has published a run of this store, so that its gates protect readers."""
    if any(event.get("by") == "reindex" for event in history(paths, *PUBLICATIONS)):
        return True
    current = paths.current_run()
    # A run that is gone serves nobody, and a new one mends that.
    if current is None or not files.exists(paths.run(current) / "manifest.json"):
        return False
    # Its job may have been killed before it recorded that; older versions did not say who it was.
    return "night" in read_manifest(paths.run(current))


def withdrawn_runs(paths: StorePaths) -> set[str]:
    """Runs that were rolled back, and not published again since."""
    found: set[str] = set()
    for event in history(paths, *PUBLICATIONS):
        found.discard(event["run"])
        if event["action"] == "rolled back" and event.get("before"):
            found.add(event["before"])
    return found


def refused_runs(paths: StorePaths) -> dict[str, list[str]]:
    """Runs that gates refused and that nobody published since, and these gates."""
    found: dict[str, list[str]] = {}
    for event in history(paths, *PUBLICATIONS, "refused"):
        found.pop(event["run"], None)
        if event["action"] == "refused":
            found[event["run"]] = event.get("gates") or []
    return found


def failpoint(step: str) -> None:
    """Test hook without effect: fault tests replace it to kill the process at `step`."""


def roll_back(store: PathLike, run: str | None = None) -> dict[str, Any]:
    """Publish an earlier run again; by default the one published before the current one.

    ``refused_by``: gates that refused it, if they did and it was not published since; or None.
    """
    paths = existing_store(store)
    with paths.locked("rollback") as lock:
        note_published(paths)
        before = paths.current_run()
        # Rollbacks do not count, so that a second one goes further back.
        order = runs_by_event(paths, "published")
        earlier = order[: order.index(before)] if before in order else order
        if run is None and not earlier:
            raise BadInputError(
                f"There is no earlier run in {paths.root} to go back to. Runs that are kept: "
                f"{', '.join(paths.finished_runs()) or 'none'}."
            )
        chosen = run or earlier[-1]
        check_finished(paths, chosen)
        refused = refused_runs(paths).get(chosen)
        publish_run(paths, chosen, lock, by="rollback", action="rolled back", hand_over=True)
        lock.note(run=chosen, result="published")
    return {"store": str(paths.root), "before": before, "current": chosen, "refused_by": refused}


def pin(store: PathLike, run: str, *, pinned: bool = True) -> dict[str, Any]:
    """Protect a run from deletion, or end the protection."""
    paths = existing_store(store)
    check_finished(paths, run)
    mark = paths.run(run) / "pinned"
    if pinned:
        files.write_text(mark, "figrl pin\n")
    else:
        files.delete(mark)
    return {"store": str(paths.root), "run": run, "pinned": pinned}


def is_pinned(paths: StorePaths, run: str) -> bool:
    """Whether a run is protected from deletion."""
    return files.exists(paths.run(run) / "pinned")


def retire(paths: StorePaths, keep: KeepRuns, lock: Lock) -> dict[str, Any]:
    """Delete runs that are no longer kept, unless they are read, and graphs that no run needs.

    Returns ``deleted`` names, names of runs that stay because they are ``in_use``, ``freed_bytes``.
    """
    lock.check()
    kept = {
        *runs_by_event(paths, *PUBLICATIONS)[-keep.runs :],
        *runs_by_event(paths, "refused")[::-1][: keep.refused],
        paths.current_run(),
    }
    deleted: list[str] = []
    in_use: list[str] = []
    freed = 0
    for run in paths.finished_runs():
        if run in kept or is_pinned(paths, run):
            continue
        with not_in_use(paths.run(run)) as free:
            if not free:
                in_use.append(run)
                continue
            freed += files.size_bytes(paths.run(run))
            # Said before it is done: a run that is gone without a word counts as damage.
            record(paths, "deleted", run)
            files.delete(paths.run(run))
        deleted.append(run)
        failpoint("deleted")
    for folder in _abandoned(paths, keep.unfinished_days):
        freed += files.size_bytes(folder)
        files.delete(folder)
        deleted.append(str(folder.relative_to(paths.root)))
    return {"deleted": deleted, "in_use": in_use, "freed_bytes": freed}


def _abandoned(paths: StorePaths, days: float) -> list[Path]:
    """Graphs that no run needs, old unfinished work, and what killed processes left."""
    manifests = [read_manifest(paths.run(run)) for run in paths.finished_runs()]
    needed = {paths.latest_graph(), *(manifest["graph"] for manifest in manifests)}
    oldest = time.time() - days * 86_400
    found = []
    for parent in (paths.graphs, paths.runs, paths.work):
        for folder in files.list_prefix(parent, "*/"):
            if files.exists(folder / "manifest.json"):
                gone = parent == paths.graphs and folder.name not in needed
            else:
                gone = _last_change(folder) < oldest
            found += [folder] * gone
        found += list_temporary(parent)
    # In the other folders somebody may be writing just now: a cluster, a pin, metrics.
    left = [*list_temporary(paths.root), *list_temporary(paths.root / "logs")]
    for run in paths.finished_runs():
        left += list_temporary(paths.run(run), deep=True)
    return found + [path for path in left if _last_change(path) < oldest]


def _last_change(folder: Path) -> float:
    """Time of the last change in a folder, judged by its marks and its first level."""
    patterns = ("*", "work/marks/*", "marks/*")
    places = [
        folder,
        *(path for pattern in patterns for path in files.list_prefix(folder, pattern)),
    ]
    times = [files.modified_time(place) for place in places if files.exists(place)]
    # What is gone meanwhile is not left.
    return max(times, default=float("inf"))
