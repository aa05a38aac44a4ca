"""Other libraries that learn vectors of nodes, each called as its own documentation does.

Every function takes the graph as a scipy matrix and the length of vectors, and returns the
vectors, in the order of the rows. A library is imported, and called once on a small graph, before
the clock starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from pipeline.serve.embedding import open_store

Vectors = npt.NDArray[Any]


@dataclass(frozen=True)
class Peer:
    """A library: the name of its module, and how it is called."""

    module: str
    call: Callable[[scipy.sparse.csr_matrix, int], Vectors]


def _pycleora(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    import pycleora

    upper = scipy.sparse.triu(matrix).tocoo()
    edges = (f"{a} {b}" for a, b in zip(upper.row, upper.col, strict=True))
    graph = pycleora.SparseMatrix.from_iterator(edges, "complex::reflexive::node")
    found = pycleora.embed(graph, dim)
    vectors = np.zeros((matrix.shape[0], dim), np.float32)
    vectors[np.array(graph.entity_ids, np.int64)] = found
    return vectors


def _fastrp(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    import fastrp

    return np.asarray(fastrp.FastRP(dim, seed=0).fit_transform(matrix))


def _prone(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from nodevectors import ProNE

    return np.asarray(ProNE(dim, verbose=False).fit_transform(matrix))


def _spectral(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from sknetwork.embedding import Spectral

    return np.asarray(Spectral(dim).fit_transform(matrix.astype(np.float64)))


def _random_projection(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from sknetwork.embedding import RandomProjection

    projection = RandomProjection(dim, random_state=0)
    return np.asarray(projection.fit_transform(matrix.astype(np.float64)))


def _node2vec(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from fastnode2vec import Graph, Node2Vec

    upper = scipy.sparse.triu(matrix).tocoo()
    edges = [(str(a), str(b)) for a, b in zip(upper.row, upper.col, strict=True)]
    graph = Graph(edges, directed=False, weighted=False, verbose=False)
    model = Node2Vec(graph, dim, walk_length=40, window=5, workers=os.cpu_count() or 1, seed=0)
    model.train(epochs=5, verbose=False)
    vectors = np.zeros((matrix.shape[0], dim), np.float32)
    linked = np.flatnonzero(np.diff(matrix.indptr))
    vectors[linked] = model.wv[[str(row) for row in linked]]
    return vectors


PEERS: dict[str, Peer] = {
    "pycleora": Peer("pycleora", _pycleora),
    "fastrp": Peer("fastrp", _fastrp),
    "nodevectors ProNE": Peer("nodevectors", _prone),
    "scikit-network Spectral": Peer("sknetwork", _spectral),
    "scikit-network RandomProjection": Peer("sknetwork", _random_projection),
    "fastnode2vec": Peer("fastnode2vec", _node2vec),
}


def is_installed(name: str) -> bool:
    """Whether a peer can be imported."""
    return importlib.util.find_spec(PEERS[name].module) is not None


def learn(name: str, store: str, dim: int, out: str) -> dict[str, Any]:
    """Learn vectors with a peer, write them to a file, and tell the seconds of the call alone."""
    warnings.simplefilter("ignore")
    matrix = adjacency(store)
    importlib.import_module(PEERS[name].module)
    PEERS[name].call(warm_up_graph(), dim)
    started = time.perf_counter()
    vectors = PEERS[name].call(matrix, dim)
    seconds = time.perf_counter() - started
    np.save(Path(out), np.asarray(vectors, np.float32))
    return {"seconds": seconds}


def warm_up_graph(nodes: int = 1000) -> scipy.sparse.csr_matrix:
    """A random graph for a first call, in which a library loads and compiles what it needs."""
    rng = np.random.default_rng(0)
    ring = np.arange(nodes)
    rows = np.concatenate([ring, rng.integers(0, nodes, 3 * nodes)])
    columns = np.concatenate([(ring + 1) % nodes, rng.integers(0, nodes, 3 * nodes)])
    apart = rows != columns
    rows, columns = rows[apart], columns[apart]
    matrix = scipy.sparse.coo_matrix((np.ones(rows.size, np.float32), (rows, columns)))
    both = scipy.sparse.csr_matrix(matrix + matrix.T)
    both.data[:] = 1.0
    return both


def adjacency(store: str) -> scipy.sparse.csr_matrix:
    """The stored graph in memory."""
    graph = open_store(store).graph
    runs = [run for block in range(graph.blocks) for run in graph.edge_runs(block)]
    rows, columns = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    shape = (graph.nodes, graph.nodes)
    return scipy.sparse.csr_matrix((np.ones(rows.size, np.float32), (rows, columns)), shape=shape)
