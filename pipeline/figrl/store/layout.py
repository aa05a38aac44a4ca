"""The layout of a store: paths of graphs and runs, which of them are current, manifests.

    STORE/
      graph/VERSION/   nodes, ids, edges, degrees, keys, manifest.json
      graph/latest     names the graph that was ingested last
      runs/RUN/        sketch, factor, basis, embedding, manifest.json
      current          names the published run
      history.jsonl    what was published, refused and deleted, and when
      work/            blocks of unfinished jobs
      migrating        is there while `figrl migrate` is at work, or was killed

A graph or a run is complete when it has a manifest, which is written last, when all it vouches for
is on disk. Every file has a checksum (`checksums`).
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figrl.errors import BadInputError, ConfigError, DamagedError
from figrl.store.checksums import damage_reported, damaged, unsealed_json
from figrl.store.contents import list_contents
from figrl.store.files import (
    exists,
    get,
    list_prefix,
    make_durable,
    modified_time,
    write_record,
    write_text,
)
from figrl.store.jobs import recorded_lock
from figrl.store.leftovers import delete_temporary
from figrl.store.lock import Lock
from figrl.store.places import PathLike as PathLike
from figrl.store.places import local_path

FORMAT = 4
"""Version of the layout on disk; part of the identity of graphs and runs."""

_NAME = re.compile(rb"[0-9a-z-]+\n")
"""Name of a graph, a run or an overlay in the file that points to it: a digest, never a path."""


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store on a file system that all workers share."""

    root: Path

    @property
    def graphs(self) -> Path:
        """Folder of all graph versions."""
        return self.root / "graph"

    @property
    def runs(self) -> Path:
        """Folder of all runs."""
        return self.root / "runs"

    @property
    def work(self) -> Path:
        """Folder of unfinished work outside runs."""
        return self.root / "work"

    def graph(self, version: str) -> Path:
        """Folder of one graph."""
        return self.graphs / version

    def run(self, name: str) -> Path:
        """Folder of one run."""
        return self.runs / name

    def latest_graph(self) -> str | None:
        """Name of the graph that was ingested last."""
        return read_name(self.graphs / "latest")

    def set_latest_graph(self, version: str) -> None:
        """Make a complete graph the one that `embed` uses."""
        write_text(self.graphs / "latest", version + "\n", durable=True)

    def current_run(self) -> str | None:
        """Name of the published run."""
        return read_name(self.root / "current")

    def publish(self, name: str) -> None:
        """Make a complete run the published one, atomically."""
        write_text(self.root / "current", name + "\n", durable=True)

    def finished_runs(self) -> list[str]:
        """Names of all complete runs, oldest first."""
        found = []
        for folder in list_prefix(self.runs):
            # Another job may delete a run while we list them.
            with suppress(FileNotFoundError, NotADirectoryError):
                found.append((modified_time(folder / "manifest.json"), folder.name))
        return [name for _, name in sorted(found)]

    def locked(self, purpose: str) -> AbstractContextManager[Lock]:
        """Hold the store's write lock; how the job ends is recorded."""
        return recorded_lock(self.root, purpose)


def read_name(path: Path) -> str | None:
    """The name in a file that points to a graph, a run or an overlay; None if there is none."""
    try:
        content = get(path)
    except FileNotFoundError:
        return None
    if not _NAME.fullmatch(content):
        raise damaged(path, f"holds no name but {content[:40]!r}")
    return content.decode().strip()


def store_paths(store: PathLike) -> StorePaths:
    """Paths of a store, whose folder need not exist yet."""
    path = local_path(store).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"The store {path} is a file. Give a folder.")
    paths = StorePaths(path)
    _check_layout(paths)
    return paths


def migrating_path(root: Path) -> Path:
    """File that is there from the beginning of a migration to its end."""
    return root / "migrating"


def _check_layout(paths: StorePaths) -> None:
    """Refuse a store of an earlier layout, judged by its latest graph and its published run."""
    if exists(migrating_path(paths.root)):
        raise BadInputError(
            f"The store {paths.root} is being migrated, or that was interrupted. Wait, or go on "
            f"with it: figrl migrate --store {paths.root}"
        )
    for pointer, place in ((paths.graphs / "latest", paths.graphs), ("current", paths.runs)):
        # What is damaged is told where it is used.
        with suppress(DamagedError, OSError):
            name = read_name(paths.root / pointer)
            if name is not None:
                _check_format(place / name, get(place / name / "manifest.json"))


def existing_store(store: PathLike) -> StorePaths:
    """Paths of a store that holds at least one graph."""
    paths = store_paths(store)
    if paths.latest_graph() is None:
        if list_prefix(paths.graphs, "*/manifest.json") and list_prefix(paths.runs):
            raise damaged(paths.graphs / "latest", "is missing")
        raise BadInputError(
            f"There is no graph in {paths.root}. Make one first: figrl ingest EDGES --store "
            f"{paths.root}"
        )
    return paths


def check_finished(paths: StorePaths, run: str) -> None:
    """Raise if a run is not among the finished ones."""
    finished = paths.finished_runs()
    if run not in finished:
        raise BadInputError(
            f"There is no finished run '{run}' in {paths.root}. Finished runs: "
            f"{', '.join(finished) or 'none'}."
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a graph or a run, without the list of its contents."""
    manifest = _whole_manifest(folder)
    del manifest["contents"]
    return manifest


def read_contents(folder: Path) -> dict[str, Any]:
    """What was in the folder of a graph or a run when it was committed."""
    return dict(_whole_manifest(folder)["contents"])


def _whole_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not exists(path):
        raise damaged(folder, "is not complete: it has no manifest.json")
    with damage_reported(path):
        content = get(path)
        _check_format(folder, content)
        return unsealed_json(content)


def _check_format(folder: Path, content: bytes) -> None:
    """Refuse a manifest of an earlier layout; one without a checksum is no other."""
    if b'"checksum"' in content:
        return
    with suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
            raise BadInputError(
                f"{folder} has layout {found['format']}; this version of figrl reads layout "
                f"{FORMAT}. Bring the store to it: figrl migrate --store {folder.parents[1]}"
            )


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, which makes the folder complete, when all else is on disk.

    What killed processes left in the folder is deleted.
    """
    delete_temporary(folder)
    contents = list_contents(folder)
    make_durable(folder)
    whole = {"format": FORMAT, **manifest, "contents": contents}
    write_record(folder / "manifest.json", whole, durable=True)
