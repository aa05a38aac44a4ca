"""The frame of the study: graphs and results on disk, and experiments that measure one key each.

The result of each key is written to a file of its own, so that an interrupted study resumes with
the keys that are missing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from figrl.config import make_options
from figrl.engine.session import Session
from figrl.engine.stage import StageResult
from figrl.errors import ConfigError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.files import delete, exists, file_digest, read_json, write_json
from figrl.store.layout import store_paths
from figrl.store.matrix import Floats, open_matrix
from figrl.study import graphs
from figrl.study.graphs import GRAPHS, StudyGraph
from figrl.study.page import Section

Result = dict[str, Any]
Key = tuple[str | int | float, ...]
Results = dict[Key, Result]

PAPER_EPSILON = 0.1
SMALL_NODES, MAX_COLUMNS = 2000, 1000
"""The preset `paper` takes as many columns as its rule asks for at that epsilon; above that many
nodes no more than this, the largest sketch that the paper itself measures."""


class Study:
    """A folder `data` of graphs (``NAME.txt.gz``), a folder `out` of results, and a cluster."""

    def __init__(
        self, data: Path, out: Path, session: Session, *, quick: bool = False, repeats: int = 10
    ) -> None:
        self.data, self.out, self.quick = data, out, quick
        self.repeats = min(repeats, 2) if quick else repeats
        self.monitor = session.monitor
        # Jobs within an experiment are not shown: the progress is that of its keys.
        self.session = Session(session.connected(), session.memory_limit)
        self._graphs: dict[tuple[str, bool], StudyGraph] = {}
        known = self.out / "graphs.json"
        before: dict[str, str] = read_json(known) if exists(known) else {}
        now = {name: file_digest(self.path(name)) for name in self.graphs}
        changed = [name for name in now if before.get(name, now[name]) != now[name]]
        if changed:
            raise ConfigError(
                f"The results in {self.out} are of another {changed[0]}.txt.gz than the one in "
                f"{self.data}. Give another --out, or delete that folder."
            )
        write_json(known, before | now)

    @property
    def graphs(self) -> list[str]:
        """Graphs of the paper that are in the data folder; in quick mode the small ones."""
        return [name for name in GRAPHS[: 3 if self.quick else None] if self.path(name).exists()]

    def path(self, name: str) -> Path:
        """File of the edges of a graph."""
        return self.data / f"{name}.txt.gz"

    def graph(self, name: str, *, connected: bool = False) -> StudyGraph:
        """Ingest a graph, once; of some, or on request, only the largest component."""
        largest = connected or name in graphs.LARGEST_COMPONENT
        if (name, largest) not in self._graphs:
            store = self.out / "stores" / (f"{name}-component" if largest else name)
            if store_paths(store).latest_graph() is None:
                edges = self.path(name)
                if largest:
                    pairs = graphs.largest_component(graphs.read_pairs(edges))
                    edges = graphs.write_pairs(store / "edges.parquet", pairs)
                run_ingest(edges, store, IngestOptions(), self.session)
            self._graphs[name, largest] = StudyGraph(name, store, open_store(store).graph)
        return self._graphs[name, largest]

    def embed(self, graph: StudyGraph, **options: Any) -> tuple[Floats, Result]:
        """Learn vectors, read them into memory, and delete the run; return them and the report."""
        report = run_embed(graph.store, make_options(EmbedOptions, options), self.session)
        folder = store_paths(graph.store).run(report["run"])
        stored = open_matrix(folder / "embedding")
        vectors = stored.read((0, 0), np.empty(stored.shape, np.float32))
        delete(graph.store / "current")
        delete(folder)
        return vectors, report


class Experiment(ABC):
    """One experiment of the paper: keys to measure, and a section of the page."""

    name: ClassVar[str]
    title: ClassVar[str]
    covers: ClassVar[tuple[str, ...]] = GRAPHS

    def __init__(self, study: Study) -> None:
        self.study = study
        self.folder = study.out / "results" / self.name

    @property
    def graphs(self) -> list[str]:
        """Graphs of the study that the experiment measures."""
        return [name for name in self.study.graphs if name in self.covers]

    @abstractmethod
    def keys(self) -> list[Key]:
        """Keys of all measurements, in the order of the tables."""

    @abstractmethod
    def measure(self, *key: Any) -> Result:
        """Measure one key."""

    @abstractmethod
    def section(self, results: Results) -> Section:
        """Tables and figures of all results."""

    def run(self) -> Section | None:
        """Measure the keys that have no result yet; None if there are no graphs to measure."""
        paths = {key: self._path(key) for key in self.keys()}
        if not paths:
            return None
        monitor, progress = self.study.monitor, StageResult(self.name, len(paths))
        progress.stats = {path.stem: {} for path in paths.values() if exists(path)}
        progress.reused = len(progress.stats)
        started = time.perf_counter()
        monitor.started(progress)
        for key, path in paths.items():
            if path.stem not in progress.stats:
                write_json(path, self.measure(*key))
                progress.stats[path.stem] = {}
                progress.seconds = time.perf_counter() - started
                monitor.advanced(progress)
        monitor.finished(progress)
        return self.section({key: read_json(path) for key, path in paths.items()})

    def _path(self, key: Key) -> Path:
        parts = (f"{part:.2f}" if isinstance(part, float) else str(part) for part in key)
        return self.folder / f"{'-'.join(parts).replace(' ', '-')}.json"


STUDY_DEPTH = 8
"""Depth of the sketches that are compared with the paper's single pass."""


def study_width(dim: int) -> int:
    """Width of such a sketch: 3/4 k, and enough for two or three dimensions."""
    return max(-(-3 * dim // 16) * 4, 16)


def preset_options(preset: str, nodes: int, dim: int) -> dict[str, Any]:
    """Options of a preset in this study, by its name."""
    if preset == "paper":
        asked = EmbedOptions(preset="paper", dim=dim, epsilon=PAPER_EPSILON)
        size = make_spec(asked, nodes=nodes, mean_degree=1.0).sketch_size
        if nodes > SMALL_NODES:
            size = max(min(size, MAX_COLUMNS), dim)
        return {"preset": "paper", "dim": dim, "sketch_size": size}
    if preset == "paper+depth":
        return {"preset": "paper", "dim": dim, "width": study_width(dim), "depth": STUDY_DEPTH}
    return {"preset": preset, "dim": dim}
