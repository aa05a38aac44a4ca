"""Which run is published, which ones were, and which may be deleted."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import BadInputError
from pipeline.files import remove, size_bytes, write_text
from pipeline.lease import not_in_use
from pipeline.lock import Lock
from pipeline.nightly_config import KeepRuns
from pipeline.serve.overlay import hand_over_edges
from pipeline.store import StorePaths, check_finished, existing_store, read_manifest

Action = Literal["published", "rolled back", "refused", "deleted"]


def history(paths: StorePaths) -> list[dict[str, Any]]:
    """What was published, refused and deleted, and when; oldest first."""
    try:
        lines = (paths.root / "history.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            # A machine that lost its power may have left half a line.
            continue
    return events


def record(paths: StorePaths, action: Action, run: str, **facts: Any) -> None:
    """Write one event down."""
    event = {"time": round(time.time(), 3), "action": action, "run": run, **facts}
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(paths.root / "history.jsonl", flags, 0o666)
    try:
        os.write(descriptor, (json.dumps(event, sort_keys=True) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def published_runs(paths: StorePaths) -> list[str]:
    """Runs that were published and are still there, the one published last at the end."""
    order: dict[str, None] = {}
    for event in history(paths):
        if event.get("action") in ("published", "rolled back"):
            order.pop(event["run"], None)
            order[event["run"]] = None
    there = set(paths.finished_runs())
    return [run for run in order if run in there]


def publish_run(
    paths: StorePaths,
    run: str,
    lock: Lock,
    *,
    action: Action = "published",
    hand_over: bool = False,
) -> None:
    """Make a complete run the published one; readers see the old one or the new one.

    Parameters
    ----------
    paths, run, lock
    action : str
        How it is written down.
    hand_over : bool
        Whether edges that were folded into the published run go with it to the new one, so that the
        next fold-in or re-indexing finds them there.
    """
    read_manifest(paths.run(run))
    lock.check()
    before = paths.current_run()
    if before is not None and before != run:
        if hand_over:
            hand_over_edges(paths.run(before), paths.run(run))
        reached("before current")
    if before != run:
        paths.publish(run)
    reached("current")
    note_published(paths, action, **({"before": before} if action == "rolled back" else {}))
    reached("recorded")


def note_published(paths: StorePaths, action: Action = "published", **facts: Any) -> None:
    """See to it that the history knows the published run; a job may have been killed before."""
    current = paths.current_run()
    last = [e["run"] for e in history(paths) if e.get("action") in ("published", "rolled back")]
    if current is not None and last[-1:] != [current]:
        record(paths, action, current, **facts)


def withdrawn_runs(paths: StorePaths) -> set[str]:
    """Runs that somebody went back from, and that were not published again since."""
    found: set[str] = set()
    for event in history(paths):
        if event.get("action") in ("published", "rolled back"):
            found.discard(event["run"])
        if event.get("action") == "rolled back" and event.get("before"):
            found.add(event["before"])
    return found


def reached(step: str) -> None:
    """Do nothing: a place where tests end the process."""


def roll_back(store: str | os.PathLike[str], run: str | None = None) -> dict[str, Any]:
    """Publish an earlier run again; by default the one before the published one."""
    paths = existing_store(store)
    with paths.locked("rollback") as lock:
        note_published(paths)
        before = paths.current_run()
        earlier = _published_before(paths, before)
        if run is None and not earlier:
            raise BadInputError(
                f"There is no earlier run in {paths.root} to go back to. Runs that are kept: "
                f"{', '.join(paths.finished_runs()) or 'none'}."
            )
        chosen = run or earlier[-1]
        check_finished(paths, chosen)
        publish_run(paths, chosen, lock, action="rolled back", hand_over=True)
    return {"store": str(paths.root), "before": before, "current": chosen}


def _published_before(paths: StorePaths, run: str | None) -> list[str]:
    """Runs that were published before another one, so that going back twice goes further back."""
    first = [e["run"] for e in history(paths) if e.get("action") == "published"]
    order = list(dict.fromkeys(reversed(first)))[::-1]
    older = order[: order.index(run)] if run in order else order
    there = set(paths.finished_runs())
    return [name for name in older if name in there]


def pin(store: str | os.PathLike[str], run: str, *, pinned: bool = True) -> dict[str, Any]:
    """Keep a run from ever being deleted, or let it go again."""
    paths = existing_store(store)
    check_finished(paths, run)
    mark = paths.run(run) / "pinned"
    if pinned:
        write_text(mark, "figrl pin\n")
    else:
        remove(mark)
    return {"store": str(paths.root), "run": run, "pinned": pinned}


def is_pinned(paths: StorePaths, run: str) -> bool:
    """Whether a run is never deleted."""
    return (paths.run(run) / "pinned").exists()


def retire(paths: StorePaths, keep: KeepRuns, lock: Lock) -> dict[str, Any]:
    """Delete runs that are no longer kept, and graphs that no run needs; never one that is read.

    Returns
    -------
    dict
        Names of what was deleted, of what would have been but is read, and the bytes freed.
    """
    lock.check()
    kept = _kept_runs(paths, keep)
    deleted: list[str] = []
    in_use: list[str] = []
    freed = 0
    for run in paths.finished_runs():
        if run in kept:
            continue
        with not_in_use(paths.run(run)) as free:
            if not free:
                in_use.append(run)
                continue
            freed += size_bytes(paths.run(run))
            remove(paths.run(run))
        deleted.append(run)
        record(paths, "deleted", run)
        reached("deleted")
    for folder in _abandoned(paths, keep.unfinished_days):
        freed += size_bytes(folder)
        remove(folder)
        deleted.append(str(folder.relative_to(paths.root)))
    return {"deleted": deleted, "in_use": in_use, "freed_bytes": freed}


def _kept_runs(paths: StorePaths, keep: KeepRuns) -> set[str]:
    kept = set(published_runs(paths)[-keep.runs :])
    current = paths.current_run()
    if current is not None:
        kept.add(current)
    refused = [e["run"] for e in history(paths) if e.get("action") == "refused"]
    kept.update(list(dict.fromkeys(reversed(refused)))[: keep.refused])
    return kept | {run for run in paths.finished_runs() if is_pinned(paths, run)}


def _abandoned(paths: StorePaths, days: float) -> list[Path]:
    """Graphs that no run needs, and what was begun long ago and not ended."""
    needed = {read_manifest(paths.run(run))["graph"] for run in paths.finished_runs()}
    needed.add(paths.latest_graph() or "")
    oldest = time.time() - days * 86_400
    found = []
    for folder in [*paths.graphs.glob("*"), *paths.runs.glob("*"), *paths.work.glob("*")]:
        if not folder.is_dir():
            continue
        complete = (folder / "manifest.json").exists()
        if complete:
            gone = folder.parent == paths.graphs and folder.name not in needed
        else:
            # Also what `remove` was at when its process was killed: its name begins with a dot.
            gone = folder.name.startswith(".") or _last_change(folder) < oldest
        if gone:
            found.append(folder)
    return found


def _last_change(folder: Path) -> float:
    """When something in a folder changed last, by its marks and its first level."""
    places = [folder, *folder.glob("*"), *folder.glob("work/marks/*"), *folder.glob("marks/*")]
    return max((place.stat().st_mtime for place in places if place.exists()), default=0.0)
