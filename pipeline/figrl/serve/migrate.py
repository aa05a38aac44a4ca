"""Brings a store of an older layout to the present one, or says what has to be made again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from figrl.engine.stage import Monitor, Silent
from figrl.errors import BadInputError, DamagedError, ResourceError, StoreInUseError
from figrl.learn.spec import EmbedSpec
from figrl.serve.attempts import attempt_by_history
from figrl.store import files, migration
from figrl.store.jobs import recorded_lock
from figrl.store.layout import FORMAT, PathLike, StorePaths, migrating_path
from figrl.store.lease import not_in_use
from figrl.store.leftovers import delete_temporary
from figrl.store.places import local_path
from figrl.units import human_bytes

_BEFORE = {
    1: "its products and vectors are stored in another way",
    2: "its runs were learnt by another method, which this version does not have",
}
"""Why stores of a layout cannot be migrated."""


def migrate(store: PathLike, monitor: Monitor | None = None) -> dict[str, Any]:
    """Bring a store to the present layout; ids, vectors and the published run stay as they are.

    Nothing is changed where a part of the store cannot be migrated. Killed at any moment, the same
    call goes on where it was.

    Returns
    -------
    dict
        ``store``, ``already_done``, ``from_format``, ``format``, names of ``graphs`` and ``runs``
        that were migrated, ``written_bytes``, ``seconds``.

    Raises
    ------
    BadInputError
        If something cannot be migrated; the message names it, and what to do.
    """
    root, started = local_path(store).absolute(), time.perf_counter()
    paths, told = StorePaths(root), monitor or Silent()
    if not files.list_prefix(paths.graphs, "*/"):
        raise BadInputError(f"There is no store in {root}: it has no graph.")
    report: dict[str, Any] = {"store": str(root), "format": FORMAT}
    if not files.exists(migrating_path(root)) and not list(_old_folders(paths)):
        nothing = {"from_format": FORMAT, "graphs": [], "runs": [], "written_bytes": 0}
        return {**report, **nothing, "already_done": True, "seconds": 0.0}
    with recorded_lock(root, "migrate") as lock:
        aside = paths.work / "migrate"
        for place in (paths.graphs, paths.runs):
            for done in files.list_prefix(aside, f"{place.name}-*.complete"):
                name = done.name.removeprefix(f"{place.name}-").removesuffix(".complete")
                migration.finish_begun(aside / f"{place.name}-{name}", place / name)
        every = list(_old_folders(paths))
        for folder, manifest in every:
            _check(folder, manifest)
        _check_space(paths, [folder for folder, _ in every])
        # From here on, no other job touches the store until all of it is migrated.
        files.write_text(migrating_path(root), "figrl migrate\n", durable=True)
        written = 0
        for folder, _ in every:
            lock.check()
            written += _migrate(folder, aside / f"{folder.parent.name}-{folder.name}")
            told.note(f"{folder.relative_to(root)} has layout {FORMAT}")
        migration.migrate_log(root / "history.jsonl")
        attempt_by_history(paths)
        for place in (paths.graphs, paths.runs):
            delete_temporary(place)
        files.delete(aside)
        files.delete(migrating_path(root))
    names = {
        kind: [folder.name for folder, _ in every if folder.parent == place]
        for kind, place in (("graphs", paths.graphs), ("runs", paths.runs))
    }
    facts = {"from_format": migration.OLD_FORMAT, "already_done": False, "written_bytes": written}
    return {**report, **facts, **names, "seconds": round(time.perf_counter() - started, 3)}


def _old_folders(paths: StorePaths) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Graphs, then runs, of an older layout with their manifests, in the order they were made."""
    for place in (paths.graphs, paths.runs):
        every = files.list_prefix(place, "*/manifest.json")
        for path in sorted(every, key=files.modified_time):
            manifest = migration.old_manifest(path.parent)
            if manifest is not None:
                yield path.parent, manifest


def _check(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse what cannot be migrated truthfully, before anything is changed."""
    found = manifest["format"]
    again = "Make it again in a new store: figrl ingest EDGES --store NEW; figrl embed --store NEW"
    if found > FORMAT:
        raise BadInputError(
            f"{folder} has layout {found}, which a later version of figrl wrote; this one reads "
            f"layout {FORMAT}. Use that version."
        )
    if found != migration.OLD_FORMAT:
        raise _refused(folder, f"it has layout {found}: {_BEFORE.get(found, 'unknown')}", again)
    spec = manifest.get("spec")
    if spec is None:
        return
    needed = {one.name for one in fields(EmbedSpec)} - {"prominence"}
    same_method = manifest.get("smoothing_steps") == 0 or "local_weight" in manifest
    if not needed <= set(spec) <= needed | {"prominence"} or not same_method:
        raise _refused(
            folder,
            "it was learnt by a method that this version does not have, so new nodes could not be "
            "folded in",
            f"{again}. Or delete this folder, if the run is not the published one",
        )


def _refused(folder: Path, why: str, remedy: str) -> BadInputError:
    return BadInputError(f"{folder} cannot be migrated: {why}. {remedy}. Nothing was changed.")


def _check_space(paths: StorePaths, every: list[Path]) -> None:
    """Refuse where the largest folder does not fit the disk twice."""
    needed = max((files.size_bytes(folder) for folder in every), default=0)
    free = files.free_bytes(paths.root) + files.size_bytes(paths.work / "migrate")
    if needed > free:
        raise ResourceError(
            f"Migrating {paths.root} takes {human_bytes(needed)} of disk for a while, and "
            f"{human_bytes(free)} are free. Free some space and try again. Nothing was changed."
        )


def _migrate(folder: Path, aside: Path) -> int:
    with not_in_use(folder) as free:
        if not free:
            raise StoreInUseError(
                f"{folder} is being read by an earlier version of figrl. End that, and run figrl "
                "migrate again: what is done is kept."
            )
        try:
            return migration.migrate_folder(folder, aside)
        except DamagedError as error:
            found = error.message.removeprefix("damaged: ").partition(". Find and")[0]
            raise BadInputError(
                f"damaged: {found}. Layout {migration.OLD_FORMAT} has no checksums to repair it "
                f"by. If {folder} can be spared, delete it and run figrl migrate again; otherwise "
                "make the store again with figrl ingest and figrl embed."
            ) from error
