"""The store: where graphs and runs are kept, which one is current, and who may write.

    STORE/
      graph/VERSION/   nodes, ids, edges, degrees, keys, manifest.json
      graph/latest     names the graph that was ingested last
      runs/RUN/        sketch, factor, basis, embedding, manifest.json
      current          names the published run
      history.jsonl    what was published, refused and deleted, and when
      work/            blocks of jobs that are not finished

A graph or a run exists when its manifest does; the manifest is written last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadInputError, ConfigError
from pipeline.files import read_json, write_json, write_text
from pipeline.lock import Lock, locked

FORMAT = 2
"""Version of the layout on disk; part of what identifies a graph and a run."""


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
        """Folder of unfinished work that is not part of a run."""
        return self.root / "work"

    def graph(self, version: str) -> Path:
        """Folder of one graph."""
        return self.graphs / version

    def run(self, name: str) -> Path:
        """Folder of one run."""
        return self.runs / name

    def latest_graph(self) -> str | None:
        """Name of the graph that was ingested last."""
        return _read_name(self.graphs / "latest")

    def set_latest_graph(self, version: str) -> None:
        """Make a complete graph the one that `embed` uses."""
        write_text(self.graphs / "latest", version + "\n", durable=True)

    def current_run(self) -> str | None:
        """Name of the published run."""
        return _read_name(self.root / "current")

    def publish(self, name: str) -> None:
        """Make a complete run the published one, in one atomic step."""
        write_text(self.root / "current", name + "\n", durable=True)

    def finished_runs(self) -> list[str]:
        """Names of all complete runs, oldest first."""
        found = []
        for folder in self.runs.glob("*"):
            # One with a dot is being deleted, and any may go while we look.
            with suppress(FileNotFoundError, NotADirectoryError):
                if not folder.name.startswith("."):
                    found.append(((folder / "manifest.json").stat().st_mtime, folder.name))
        return [name for _, name in sorted(found)]

    @contextmanager
    def locked(self, purpose: str) -> Iterator[Lock]:
        """Keep other jobs from writing to the store while this one does."""
        with locked(self.root, purpose) as lock:
            yield lock


def _read_name(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def store_paths(store: str | os.PathLike[str]) -> StorePaths:
    """Name the paths of a store; the folder need not exist yet."""
    path = Path(store).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"The store {path} is a file. Give a folder.")
    return StorePaths(path)


def existing_store(store: str | os.PathLike[str]) -> StorePaths:
    """Name the paths of a store that holds at least one graph."""
    paths = store_paths(store)
    if paths.latest_graph() is None:
        raise BadInputError(
            f"There is no graph in {paths.root}. Make one first: figrl ingest EDGES --store "
            f"{paths.root}"
        )
    return paths


def check_finished(paths: StorePaths, run: str) -> None:
    """Refuse the name of a run that is not there, and say which ones are."""
    there = paths.finished_runs()
    if run not in there:
        raise BadInputError(
            f"There is no finished run '{run}' in {paths.root}. Finished runs: "
            f"{', '.join(there) or 'none'}."
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a graph or a run."""
    try:
        manifest = read_json(folder / "manifest.json")
    except FileNotFoundError as error:
        raise BadInputError(f"{folder} is not complete: it has no manifest.json.") from error
    except ValueError as error:
        raise BadInputError(f"{folder / 'manifest.json'} is damaged: {error}.") from error
    if not isinstance(manifest, dict):
        raise BadInputError(f"{folder / 'manifest.json'} is damaged: it holds no object.")
    if manifest.get("format") != FORMAT:
        raise BadInputError(
            f"{folder} has layout {manifest.get('format')}; this version of figrl reads layout "
            f"{FORMAT}. Make it again with this version."
        )
    return manifest


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, and with it declare the folder complete."""
    write_json(folder / "manifest.json", {"format": FORMAT, **manifest}, durable=True)
