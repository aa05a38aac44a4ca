"""Where an experiment works: graphs of a folder in stores of their own, and results that stay.

A part of the study is a list of items. What an item finds is written to a file of its own, so a
study that was stopped goes on with the items that are missing.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

from pipeline.api import Session, run_embed, run_ingest
from pipeline.config import EmbedConfig, IngestConfig, make_config
from pipeline.errors import ConfigError
from pipeline.files import file_digest, read_json, remove, write_json
from pipeline.graph import Graph
from pipeline.job import Monitor, StageResult
from pipeline.recipe import make_recipe
from pipeline.serve.embedding import open_store
from pipeline.store import store_paths
from pipeline.tiles import Floats, open_tiles

Integers = npt.NDArray[np.int64]
Result = dict[str, Any]

GRAPHS = (
    "karate",
    "dolphins",
    "us-football",
    "polblogs",
    "ca-HepTh",
    "ca-CondMat",
    "email-Enron",
    "com-dblp",
)
"""Graphs of the paper, smallest first."""

LARGEST_COMPONENT = ("ca-HepTh", "ca-CondMat")
"""Graphs of which the paper's authors took the largest component."""

PAPER_EPSILON = 0.1
SMALL_NODES, MOST_COLUMNS = 2000, 1000
"""The preset `paper` takes as many columns as its rule asks for at that epsilon; on a graph that is
not small no more than this, the largest sketch that the paper itself measures."""


@dataclass(frozen=True)
class StudyGraph:
    """A graph of the study in a store of its own."""

    name: str
    store: Path
    graph: Graph

    def ids(self) -> Integers:
        """Id of each row."""
        return np.asarray(self.graph.index.ids_of(0, self.graph.nodes).to_numpy(), np.int64)


@dataclass(frozen=True)
class Item:
    """Something to be measured: its name within the part, and the function that does it."""

    key: str
    function: Callable[..., Result]
    args: tuple[Any, ...] = ()


class Workbench:
    """A folder of graphs, a folder of results, and a cluster.

    Parameters
    ----------
    data, out : Path
        Folder of ``NAME.txt.gz``, and the folder that all results go to.
    session : Session
        The cluster, and whoever watches.
    quick : bool
        Small graphs, few repeats and few runs: to see that everything works.
    repeats : int
        Random draws of everything that is random.
    """

    def __init__(
        self, data: Path, out: Path, session: Session, *, quick: bool = False, repeats: int = 10
    ) -> None:
        self.data = data
        self.out = out
        self.quick = quick
        self.repeats = min(repeats, 2) if quick else repeats
        self._session = session
        self._opened: dict[tuple[str, bool], StudyGraph] = {}
        self._check_same_files()

    def _check_same_files(self) -> None:
        """Refuse a folder whose results are of other files with the same names."""
        known = self.out / "graphs.json"
        before: dict[str, str] = read_json(known) if known.exists() else {}
        now = {name: file_digest(self.data / f"{name}.txt.gz") for name in self.graphs}
        changed = [name for name in now if before.get(name, now[name]) != now[name]]
        if changed:
            raise ConfigError(
                f"The results in {self.out} are of another {changed[0]}.txt.gz than the one in "
                f"{self.data}. Give another --out, or delete that folder."
            )
        write_json(known, before | now)

    @cached_property
    def client(self) -> distributed.Client:
        """The cluster."""
        return self._session.connected()

    @property
    def quiet(self) -> Session:
        """A session for jobs within an item: the progress shown is that of items."""
        return Session(self.client, self._session.memory_limit)

    @property
    def graphs(self) -> list[str]:
        """Graphs of the paper that are in the folder of data; in quick mode the small ones."""
        names = [name for name in GRAPHS if (self.data / f"{name}.txt.gz").exists()]
        return [name for name in names if GRAPHS.index(name) < 3] if self.quick else names

    def graph(self, name: str, *, connected: bool = False) -> StudyGraph:
        """Ingest a graph, once; of some, or where it is asked for, the largest component."""
        largest = connected or name in LARGEST_COMPONENT
        if (name, largest) not in self._opened:
            store = self.out / "stores" / (f"{name}-component" if largest else name)
            if store_paths(store).latest_graph() is None:
                edges: Path = self.data / f"{name}.txt.gz"
                if largest:
                    edges = write_pairs(
                        store / "edges.parquet", largest_component(self.pairs(name))
                    )
                run_ingest(edges, store, IngestConfig(), self.quiet)
            self._opened[name, largest] = StudyGraph(name, store, open_store(store).graph)
        return self._opened[name, largest]

    def pairs(self, name: str) -> Integers:
        """Edges of a graph as they stand in its file."""
        with gzip.open(self.data / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
            return np.loadtxt(lines, np.int64, comments="#", ndmin=2)

    def classes(self, study: StudyGraph) -> list[str] | None:
        """Class of each row, "" where it has none; None if the graph has no labels."""
        path = self.data / f"{study.name}.labels.tsv.gz"
        if not path.exists():
            return None
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            pairs = (line.rstrip("\n").split("\t") for line in lines if not line.startswith("#"))
            found = {int(node): label for node, label in pairs}
        return [found.get(int(node), "") for node in study.ids()]

    def embed(self, study: StudyGraph, **options: Any) -> tuple[Floats, Result]:
        """Learn vectors, read them into memory, and delete the run; with its report."""
        report = run_embed(study.store, make_config(EmbedConfig, options), self.quiet)
        folder = store_paths(study.store).run(report["run"])
        tiles = open_tiles(folder / "embedding")
        vectors = tiles.read((0, 0), np.empty(tiles.shape, np.float32))
        (study.store / "current").unlink(missing_ok=True)
        remove(folder)
        return vectors, report

    def run(self, part: str, items: Sequence[Item]) -> dict[str, Result]:
        """Do the items of a part that are missing; what all of them found, by key."""
        folder = self.out / "results" / part
        monitor: Monitor = self._session.monitor
        progress = StageResult(part, len(items))
        progress.stats = {item.key: {} for item in items if (folder / f"{item.key}.json").exists()}
        progress.reused = len(progress.stats)
        started = time.perf_counter()
        monitor.started(progress)
        for item in items:
            if item.key not in progress.stats:
                write_json(folder / f"{item.key}.json", item.function(*item.args))
                progress.stats[item.key] = {}
                progress.seconds = time.perf_counter() - started
                monitor.advanced(progress)
        monitor.finished(progress)
        return {item.key: read_json(folder / f"{item.key}.json") for item in items}


def paper_options(nodes: int, dim: int) -> dict[str, Any]:
    """Options of the preset `paper` in this study."""
    asked = EmbedConfig(preset="paper", dim=dim, epsilon=PAPER_EPSILON)
    size = make_recipe(asked, nodes=nodes, mean_degree=1.0).sketch_size
    if nodes > SMALL_NODES:
        size = max(min(size, MOST_COLUMNS), dim)
    return {"preset": "paper", "dim": dim, "sketch_size": size}


def preset_options(preset: str, nodes: int, dim: int) -> dict[str, Any]:
    """Options of a preset in this study, by its name."""
    if preset == "paper":
        return paper_options(nodes, dim)
    # What 1.5 k comes to for two or three dimensions is no sketch at all.
    size = max(-(-3 * dim // 8) * 4, 32)
    if preset == "paper+powers":
        return {"preset": "paper", "dim": dim, "sketch_size": size, "power_iterations": 5}
    return {"preset": preset, "dim": dim, "sketch_size": size}


def largest_component(pairs: Integers) -> Integers:
    """Edges of the largest connected component."""
    nodes, places = np.unique(pairs, return_inverse=True)
    ends = places.reshape(pairs.shape)
    shape = (nodes.size, nodes.size)
    matrix = scipy.sparse.coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=shape)
    _, component = scipy.sparse.csgraph.connected_components(matrix, directed=False)
    largest = np.bincount(component).argmax()
    kept: Integers = pairs[component[ends[:, 0]] == largest]
    return kept


def write_pairs(path: Path, pairs: Integers) -> Path:
    """Write edges as Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"source": pairs[:, 0], "target": pairs[:, 1]}), path)
    return path
