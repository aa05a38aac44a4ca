"""Reads all that a store holds, and names the files that are missing or were changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from figrl.errors import DamagedError
from figrl.serve.index import check_index
from figrl.serve.overlay import edge_damage, kept_edges, overlay_version
from figrl.serve.publish import PUBLICATIONS, history
from figrl.store import files
from figrl.store.checksums import file_crc
from figrl.store.contents import LABELS_CRC, Damage, check_contents
from figrl.store.layout import (
    PathLike,
    StorePaths,
    read_contents,
    read_manifest,
    read_name,
    store_paths,
)
from figrl.store.lease import Lease

Kind = Literal["store", "graph", "run", "overlay", "index"]

WRITTEN_LATER = ("checks.json", "gates.json", "map.json")
"""Records that are written after a run is committed."""


@dataclass(frozen=True)
class Finding:
    """A damaged file: the kind and the name of what it belongs to, its path, what is wrong."""

    kind: Kind
    name: str
    path: Path
    problem: str

    def describe(self) -> dict[str, str]:
        """Return it as JSON can hold it."""
        return {
            "what": f"{self.kind} {self.name}".strip(),
            "file": str(self.path),
            "problem": self.problem,
        }


def verify(store: PathLike) -> dict[str, Any]:
    """Check the graphs, runs, overlays and indexes of a store; nothing is changed.

    Parameters
    ----------
    store : path

    Returns
    -------
    dict
        ``store``, ``graphs`` and ``runs`` that were read, and ``damaged``: for each damaged file
        ``what`` it belongs to, the ``file`` and the ``problem``.

    Examples
    --------
    >>> figrl.verify("store")["damaged"]  # doctest: +SKIP
    []
    """
    paths = store_paths(store)
    found = [finding.describe() for finding in find_damage(paths)]
    return {
        "store": str(paths.root),
        "graphs": len(complete_graphs(paths)),
        "runs": len(paths.finished_runs()),
        "damaged": found,
    }


def find_damage(paths: StorePaths) -> list[Finding]:
    """Everything that is damaged in a store."""
    found = list(_store_damage(paths))
    for name in sorted({*complete_graphs(paths), *_named_graphs(paths)}):
        found += _findings("graph", name, _folder_damage(paths.graph(name)))
    for name in sorted({*paths.finished_runs(), *_named_runs(paths)}):
        # Another job may delete a run while we look at it.
        with suppress(FileNotFoundError):
            lease = Lease(paths.run(name)) if name in paths.finished_runs() else None
            folder = paths.run(name)
            found += _findings("run", name, _run_damage(folder))
            found += _findings("overlay", name, _overlay_damage(folder))
            found += _findings("index", name, check_index(folder))
            del lease
    return found


def complete_graphs(paths: StorePaths) -> list[str]:
    """Names of the graphs that have a manifest."""
    return [path.parent.name for path in files.list_prefix(paths.graphs, "*/manifest.json")]


def _findings(kind: Kind, name: str, damage: Iterator[Damage]) -> Iterator[Finding]:
    """Findings of a part; an error on the way is one too."""
    try:
        for path, problem in damage:
            yield Finding(kind, name, path, problem)
    except DamagedError as error:
        yield Finding(kind, name, Path(error.message.split()[1]), error.message)


def published_run(paths: StorePaths) -> str | None:
    """The run that was published last, by the history."""
    events = history(paths, *PUBLICATIONS)
    return str(events[-1]["run"]) if events else None


def _store_damage(paths: StorePaths) -> Iterator[Finding]:
    """Damage of the files that name the published run and the latest graph, and of the history."""
    latest, current = paths.graphs / "latest", paths.root / "current"
    yield from _findings("store", "", _pointer(latest, paths.graphs, bool(complete_graphs(paths))))
    published = published_run(paths)
    wanted = published is not None and published in paths.finished_runs()
    yield from _findings("store", "", _pointer(current, paths.runs, wanted))
    log = paths.root / "history.jsonl"
    for line in files.read_records(log)[1]:
        yield Finding("store", "", log, f"line {line} does not match its checksum")
    if published is None and files.exists(current):
        yield Finding("store", "", log, "does not say that a run was published")
    events = history(paths)
    expected = {
        "attempt.json": any(event["action"] == "published" for event in events),
        "nightly.json": any(event.get("by") == "reindex" for event in events),
    }
    for name, wanted in expected.items():
        if wanted or files.exists(paths.root / name):
            damage = _record_damage(paths.root / name)
            yield from _findings("store", "", damage)


def _pointer(path: Path, folder: Path, wanted: bool) -> Iterator[Damage]:
    name = read_name(path)
    if name is None and wanted:
        yield path, "is missing"
    if name is not None and not files.exists(folder / name / "manifest.json"):
        yield path, f"names {name}, which is not there, or not complete"


def _named_runs(paths: StorePaths) -> set[str]:
    """Runs that the history says are there: published or refused, and not deleted since."""
    named: set[str] = set()
    for event in history(paths, *PUBLICATIONS, "refused", "deleted"):
        (named.discard if event["action"] == "deleted" else named.add)(event["run"])
    return named


def _named_graphs(paths: StorePaths) -> set[str]:
    """Graphs that runs were learnt from."""
    named = set()
    for run in paths.finished_runs():
        with suppress(DamagedError):
            named.add(str(read_manifest(paths.run(run))["graph"]))
    return named


def _folder_damage(folder: Path) -> Iterator[Damage]:
    yield from check_contents(folder, read_contents(folder))


def _run_damage(folder: Path) -> Iterator[Damage]:
    yield from _folder_damage(folder)
    for name in WRITTEN_LATER:
        if files.exists(folder / name):
            yield from _record_damage(folder / name)
    for path in files.list_prefix(folder / "clusters", "*.json"):
        yield from _record_damage(path)
        yield from _labels_damage(path)
    pinned = folder / "pinned"
    if files.exists(pinned) and files.get(pinned) != b"figrl pin\n":
        yield pinned, "is not what figrl pin wrote"


def _record_damage(path: Path) -> Iterator[Damage]:
    try:
        files.read_record(path)
    except DamagedError as error:
        yield path, error.message


def _labels_damage(report: Path) -> Iterator[Damage]:
    """Damage of the labels of clusters, whose checksum is in their report."""
    labels = report.with_suffix(".npy")
    with suppress(DamagedError):
        wanted = files.read_record(report)[LABELS_CRC]
        try:
            found = file_crc(labels)
        except DamagedError as error:
            yield labels, error.message
        else:
            if found != wanted:
                yield labels, "does not match its checksum"


def _overlay_damage(run: Path) -> Iterator[Damage]:
    """Damage of the version in use, of the edges that it was made of, and of their options."""
    version = overlay_version(run)
    if kept_edges(run):
        yield from _record_damage(run / "overlay" / "options.json")
    if version is None:
        yield from edge_damage(run, None)
        return
    if not files.exists(version / "manifest.json"):
        yield run / "overlay" / "current", f"names {version.name}, which is not there"
        return
    if not files.exists(run / "overlay" / "current"):
        yield run / "overlay" / "current", "is missing"
    yield from edge_damage(run, read_manifest(version)["files"])
    yield from _folder_damage(version)
