"""Graphs of the paper: files of edges and classes, and their stores."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import scipy.sparse.csgraph

from figrl.analyze.adjacency import Adjacency, open_adjacency, write_adjacency
from figrl.analyze.metrics import agreement
from figrl.store.graph import Graph

Integers = npt.NDArray[np.int64]
Classes = npt.NDArray[np.str_]

_SMALL = ("karate", "dolphins", "us-football", "polblogs")
GRAPHS = (*_SMALL, "ca-HepTh", "ca-CondMat", "email-Enron", "com-dblp")
"""Graphs of the paper, smallest first."""

LARGEST_COMPONENT = ("ca-HepTh", "ca-CondMat")
"""Graphs of which the paper's authors took the largest component."""


@dataclass(frozen=True)
class StudyGraph:
    """A graph of the study in a store of its own."""

    name: str
    store: Path
    graph: Graph

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.graph.nodes

    def ids(self) -> Integers:
        """Id of each row."""
        return graph_ids(self.graph)

    def adjacency_path(self) -> Path:
        """Folder of the adjacency lists, which are written once."""
        return write_adjacency(self.graph, self.store / "adjacency")

    def adjacency(self) -> Adjacency:
        """Adjacency lists of the graph."""
        return open_adjacency(self.adjacency_path())


def graph_ids(graph: Graph) -> Integers:
    """Id of each row of a graph with integer ids."""
    return np.asarray(graph.index.ids_of(0, graph.nodes).to_numpy(), np.int64)


def read_adjacency(graph: Graph) -> scipy.sparse.csr_matrix:
    """Adjacency matrix of an unweighted stored graph, in memory."""
    runs = [run for block in range(graph.blocks) for run in graph.row_groups(block)]
    rows, columns = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    shape = (graph.nodes, graph.nodes)
    return scipy.sparse.csr_matrix((np.ones(rows.size, np.float32), (rows, columns)), shape=shape)


def read_pairs(path: Path) -> Integers:
    """Edges of a gzipped text file, as they are in it."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return np.loadtxt(lines, np.int64, comments="#", ndmin=2)


def write_pairs(path: Path, pairs: Integers) -> Path:
    """Write edges as Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"source": pairs[:, 0], "target": pairs[:, 1]}), path)
    return path


def read_classes(path: Path, ids: Integers) -> Classes | None:
    """Class of each node from a ``.labels.tsv.gz``, "" if it has none; None without a file."""
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").split("\t") for line in lines if not line.startswith("#"))
        found = {int(node): label for node, label in pairs}
    return np.array([found.get(int(node), "") for node in ids])


def class_agreement(labels: npt.NDArray[Any], classes: Classes) -> float:
    """Normalised mutual information of clusters and classes, over the nodes that have a class."""
    known = classes != ""
    _, truth = np.unique(classes, return_inverse=True)
    return agreement(labels[known], truth[known].astype(np.int64))


def largest_component(pairs: Integers) -> Integers:
    """Edges of the largest connected component."""
    nodes, places = np.unique(pairs, return_inverse=True)
    ends = places.reshape(pairs.shape)
    matrix = scipy.sparse.coo_matrix((np.ones(len(ends)), tuple(ends.T)), (nodes.size, nodes.size))
    _, component = scipy.sparse.csgraph.connected_components(matrix, directed=False)
    kept: Integers = pairs[component[ends[:, 0]] == np.bincount(component).argmax()]
    return kept
