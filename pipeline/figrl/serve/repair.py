"""Recomputes what is damaged in a store, and replaces the damaged files by those.

A graph or a run is computed again in the work folder from what it was made of. Since results are
the same to the last bit, only the damaged files are taken from there; the manifest stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed

from figrl.config import make_options
from figrl.engine.runner import ClusterRunner
from figrl.engine.session import Session
from figrl.errors import BadInputError, DamagedError, FigrlError
from figrl.ingestion.build import build_graph
from figrl.ingestion.ingest import ingest_identity
from figrl.ingestion.inputs import inspect_files
from figrl.ingestion.listing import known_files
from figrl.ingestion.options import IngestOptions
from figrl.learn.plan import plan_embedding
from figrl.learn.spec import EmbedOptions
from figrl.serve.align import align_stages, replace_rotated
from figrl.serve.attempts import attempt_by_history
from figrl.serve.embedding import open_store
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.index import build_index
from figrl.serve.overlay import overlay_version
from figrl.serve.overlay_update import refresh_overlay
from figrl.serve.publish import note_published, pin
from figrl.serve.runs import learn_stages
from figrl.serve.verify import (
    WRITTEN_LATER,
    Finding,
    complete_graphs,
    find_damage,
    published_run,
    verify,
)
from figrl.store import files
from figrl.store.graph import open_graph
from figrl.store.layout import StorePaths, read_contents, read_manifest
from figrl.store.lock import Lock


def run_repair(paths: StorePaths, session: Session) -> dict[str, Any]:
    """Repair a store; return a report as `verify` does, of what is still damaged.

    ``repaired`` lists the files that were damaged before. What could not be repaired has a reason,
    ``cannot``.
    """
    with session.open() as client, paths.locked("verify") as lock:
        before = find_damage(paths)
        reasons: dict[str, str] = {}
        for kind in ("store", "graph", "run", "overlay", "index"):
            # What was repaired may have shown more: a run whose graph could not be read.
            for name in sorted({found.name for found in find_damage(paths) if found.kind == kind}):
                every = [one for one in find_damage(paths) if (one.kind, one.name) == (kind, name)]
                try:
                    _REPAIRS[kind](_Repair(client, paths, session, lock), name, every)
                except FigrlError as error:
                    reasons[f"{kind} {name}".strip()] = error.message
    report = verify(paths.root)
    for found in report["damaged"]:
        found["cannot"] = reasons.get(found["what"], "nothing is left to recompute it from")
    left = {found["file"] for found in report["damaged"]}
    repaired = [found.describe() for found in before if str(found.path) not in left]
    return {**report, "repaired": repaired}


class _Repair:
    """Where repairs are made."""

    def __init__(
        self, client: distributed.Client, paths: StorePaths, session: Session, lock: Lock
    ) -> None:
        self.client, self.paths, self.session, self.lock = client, paths, session, lock

    def scratch(self, name: str) -> Path:
        """A new folder for what is computed again."""
        folder = self.paths.work / f"repair-{name}"
        files.delete(folder)
        return folder

    def runner(self, folder: Path) -> ClusterRunner:
        """Runs stages whose marks lie in a folder."""
        return ClusterRunner(self.client, folder / "work" / "marks", self.session.monitor)


def _manifest(folder: Path, remedy: str) -> dict[str, Any]:
    """The manifest of what is repaired, without which nobody knows how it was made."""
    try:
        return read_manifest(folder)
    except DamagedError as error:
        raise BadInputError(f"its manifest is damaged. Delete {folder}, and {remedy}") from error


def _refuse_migrated(manifest: dict[str, Any], remedy: str) -> None:
    """Refuse what an earlier version made: this one may compute other bytes."""
    if "migrated" in manifest:
        raise BadInputError(
            f"it was made by an earlier version of figrl and migrated, and this version may not "
            f"compute the same bytes. Delete it, and {remedy}"
        )


def _take(scratch: Path, folder: Path, every: list[Finding]) -> None:
    """Replace the damaged files of a folder by those that were computed again."""
    for found in every:
        name = found.path.relative_to(folder)
        arrays = (one for one in (name, *name.parents) if files.exists(scratch / one / "zarr.json"))
        array = next(arrays, None)
        if array is not None and _other_chunks(scratch / array, folder / array):
            # Where the metadata is gone, so may chunks be; those of a sketch depend on the memory
            # of the workers.
            files.delete(folder / array)
            files.copy(scratch / array, folder / array)
        elif files.exists(scratch / name):
            files.copy(scratch / name, folder / name)
    files.make_durable(folder)
    files.delete(scratch)


def _other_chunks(new: Path, old: Path) -> bool:
    described = old / "zarr.json"
    return not files.exists(described) or files.get(new / "zarr.json") != files.get(described)


def _repair_graph(repair: _Repair, name: str, every: list[Finding]) -> None:
    """Ingest the same edge files again, if they are unchanged."""
    folder = repair.paths.graph(name)
    manifest = _manifest(folder, "ingest the edges again: figrl ingest EDGES --store STORE")
    _refuse_migrated(manifest, "ingest its edges again: figrl ingest EDGES --store STORE")
    options = make_options(IngestOptions, manifest["config"])
    if manifest.get("from_memory"):
        raise BadInputError(
            f"its edges were no file, but {manifest['sources'][0]}: ingest them again"
        )
    known = known_files(manifest["sources"], repair.session.storage)
    sources = inspect_files(repair.client, known, options)
    if files.digest(ingest_identity(sources, options)) != name:
        raise BadInputError("its edge files have changed since: figrl ingest makes another graph")
    scratch = repair.scratch(name)
    memory = repair.session.memory(repair.client)
    facts = build_graph(repair.runner(scratch), sources, options, memory, scratch)
    if facts != manifest["graph"]:
        raise BadInputError(
            "the ids are cut in other ranges with this memory. Give the memory of then, as "
            "--memory-limit."
        )
    _take(scratch, folder, every)


def _repair_run(repair: _Repair, name: str, every: list[Finding]) -> None:
    """Learn the same run again, from its graph."""
    folder = repair.paths.run(name)
    manifest = _manifest(folder, "learn the run again: figrl embed --store STORE")
    learnt = []
    for found in every:
        if found.path == folder / "pinned":
            pin(repair.paths.root, name)
        elif found.path.parent.name == "clusters" or found.path.name in WRITTEN_LATER:
            # The next re-indexing measures it again, the next figrl cluster finds them again.
            files.delete(found.path)
            files.delete(found.path.with_suffix(".json"))
        else:
            learnt.append(found)
    if not learnt:
        return
    _refuse_migrated(manifest, "learn a run again: figrl embed --store STORE")
    graph = open_graph(repair.paths, manifest["graph"])
    kept = "sketch" in read_contents(folder)["arrays"]
    options = make_options(EmbedOptions, {**manifest["config"], "keep_sketch": kept})
    plan = plan_embedding(graph, options, repair.session.memory(repair.client))
    scratch = repair.scratch(name)
    runner = repair.runner(scratch)
    learn_stages(runner, plan.in_folder(scratch))
    if "alignment" in manifest:
        reference = open_store(repair.paths.root).embedding(manifest["alignment"]["reference"])
        chunk_rows = plan.setup.geometry.chunk_rows
        rotated = plan.setup.spec.directions
        runner.run(align_stages(scratch, graph, reference, chunk_rows, rotated))
        replace_rotated(scratch)
    _take(scratch, folder, learnt)


def _repair_overlay(repair: _Repair, name: str, every: list[Finding]) -> None:
    """Fold in the edges that are kept with the run again."""
    overlay = repair.paths.run(name) / "overlay"
    broken = [found.path for found in every if found.path.parent.name == "edges"]
    if broken:
        raise BadInputError(
            f"{broken[0].name} holds edges that nobody else keeps. Delete it, and fold in the file "
            "it was copied from: figrl fold-in EDGES --store STORE --publish"
        )
    options, current = overlay / "options.json", overlay / "current"
    if not any(found.path == options for found in every):
        config = files.read_record(options)
    else:
        version = overlay_version(repair.paths.run(name))
        config = read_manifest(version)["config"] if version is not None else {}
        files.write_record(options, config)
    for path in files.list_prefix(overlay, "*/manifest.json"):
        files.delete(path.parent)
    files.delete(current)
    embedding = open_store(repair.paths.root).embedding(name)
    folding = make_options(FoldInOptions, config)
    refresh_overlay(repair.client, repair.paths, embedding, folding, repair.session, [])


def _repair_index(repair: _Repair, name: str, every: list[Finding]) -> None:
    """Build the index again, with shards of the same size if that is known."""
    folder, work = repair.paths.run(name) / "index", repair.scratch(f"index-{name}")
    if not any(found.path.name == "index.json" for found in every):
        rows = files.read_record(folder / "index.json")["shard_rows"]
        files.write_json(work / "shard-rows.json", rows)
    files.delete(folder)
    embedding = open_store(repair.paths.root).embedding(name)
    build_index(repair.client, embedding, work, repair.session)


def _repair_store(repair: _Repair, name: str, every: list[Finding]) -> None:
    """Write the names of the published run and of the latest graph again."""
    paths = repair.paths
    repair.lock.check()
    broken = {found.path.name for found in every}
    if "attempt.json" in broken:
        attempt_by_history(paths)
    if "history.jsonl" in broken:
        _drop_bad_lines(paths.root / "history.jsonl")
        note_published(paths)
    published = published_run(paths)
    if "current" in broken and published in paths.finished_runs():
        paths.publish(str(published))
    if "latest" in broken and complete_graphs(paths):
        newest = max(
            complete_graphs(paths),
            key=lambda graph: files.modified_time(paths.graph(graph) / "manifest.json"),
        )
        paths.set_latest_graph(newest)
    if "nightly.json" in broken:
        raise BadInputError(
            "the gates of re-indexing are told nowhere else: run figrl reindex again"
        )


def _drop_bad_lines(path: Path) -> None:
    """Keep the lines of the history that can be trusted."""
    events, _ = files.read_records(path)
    kept = path.with_name("history.repaired")
    files.delete(kept)
    files.write_text(kept, "")
    for event in events:
        files.append_record(kept, event)
    files.move(kept, path)


_REPAIRS: dict[str, Callable[[_Repair, str, list[Finding]], None]] = {
    "store": _repair_store,
    "graph": _repair_graph,
    "run": _repair_run,
    "overlay": _repair_overlay,
    "index": _repair_index,
}
