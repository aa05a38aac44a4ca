"""Other methods for node embeddings: libraries, called as in their documentation, and rivals.

The rivals are those of the paper; two of them are a library's walks, two are in `study.rivals`.
The exception is fastnode2vec: its documentation trains 100 epochs of walks of 100 steps, which
takes too long; here it is 5 epochs of 40 steps. Longer training may give other quality, better or
worse.

Every function takes the graph as a scipy matrix and the vector length, and returns the vectors in
the order of the rows. A library is imported, and called once on a small graph, before its call is
timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from figrl.analyze.adjacency import Adjacency
from figrl.errors import FigrlError
from figrl.serve.embedding import open_store
from figrl.study.graphs import read_adjacency
from figrl.study.process import Measured, ProcessTimeoutError, measure_in_process

Vectors = npt.NDArray[Any]
Call = Callable[[scipy.sparse.csr_matrix, int], Vectors]


def _pycleora(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    import pycleora

    upper = scipy.sparse.triu(matrix).tocoo()
    edges = (f"{a} {b}" for a, b in zip(upper.row, upper.col, strict=True))
    graph = pycleora.SparseMatrix.from_iterator(edges, "complex::reflexive::node")
    found = pycleora.embed(graph, dim)
    vectors = np.zeros((matrix.shape[0], dim), np.float32)
    vectors[np.array(graph.entity_ids, np.int64)] = found
    return vectors


def _fit_transform(
    matrix: scipy.sparse.csr_matrix, dim: int, *, kind: str, dtype: Any = np.float32, **options: Any
) -> Vectors:
    """Call a class, given by its import path, as in scikit-learn."""
    module, _, name = kind.rpartition(".")
    model = getattr(importlib.import_module(module), name)(dim, **options)
    return np.asarray(model.fit_transform(matrix.astype(dtype, copy=False)))


def _node2vec(
    matrix: scipy.sparse.csr_matrix,
    dim: int,
    *,
    walks: int = 5,
    walk_length: int = 40,
    window: int = 5,
    **options: Any,
) -> Vectors:
    """Skip-gram on random walks: so many from each node, one in each epoch."""
    from fastnode2vec import Graph, Node2Vec

    upper = scipy.sparse.triu(matrix).tocoo()
    edges = [(str(a), str(b)) for a, b in zip(upper.row, upper.col, strict=True)]
    graph = Graph(edges, directed=False, weighted=False, verbose=False)
    threads = os.cpu_count() or 1
    model = Node2Vec(graph, dim, walk_length, window, workers=threads, seed=0, **options)
    model.train(epochs=walks, verbose=False)
    vectors = np.zeros((matrix.shape[0], dim), np.float32)
    linked = np.flatnonzero(np.diff(matrix.indptr))
    vectors[linked] = model.wv[[str(row) for row in linked]]
    return vectors


def _line(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from figrl.study.rivals.line import LineOptions, line_vectors

    return line_vectors(_lists(matrix), LineOptions(dim=dim))


def _graphsage(matrix: scipy.sparse.csr_matrix, dim: int) -> Vectors:
    from figrl.study.rivals.graphsage import SageOptions, learn_sage

    return learn_sage(_lists(matrix), SageOptions(dim=dim)).vectors()


def _lists(matrix: scipy.sparse.csr_matrix) -> Adjacency:
    """Neighbour lists of an unweighted graph."""
    return Adjacency(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), None)


_SPECTRAL: dict[str, Any] = {"kind": "sknetwork.embedding.Spectral", "dtype": np.float64}
_PROJECTION: dict[str, Any] = {
    **_SPECTRAL,
    "kind": "sknetwork.embedding.RandomProjection",
    "random_state": 0,
}
PEERS: dict[str, tuple[str, Call]] = {
    "pycleora": ("pycleora", _pycleora),
    "fastrp": ("fastrp", partial(_fit_transform, kind="fastrp.FastRP", seed=0)),
    "nodevectors ProNE": (
        "nodevectors",
        partial(_fit_transform, kind="nodevectors.ProNE", verbose=False),
    ),
    "scikit-network Spectral": ("sknetwork", partial(_fit_transform, **_SPECTRAL)),
    "scikit-network RandomProjection": ("sknetwork", partial(_fit_transform, **_PROJECTION)),
    "fastnode2vec": ("fastnode2vec", _node2vec),
}
"""By name: the module to import, and a function that calls it."""

# Nodes are counted once each by fastnode2vec, so word2vec would leave out most nodes of a small
# graph as frequent words: `sample` is 0.
_NODE2VEC: dict[str, Any] = {"walks": 10, "walk_length": 80, "window": 10, "q": 0.5, "sample": 0}
_DEEPWALK: dict[str, Any] = {"walks": 10, "p": 1.0, "q": 1.0, "sample": 0, "hs": 1, "negative": 0}
RIVALS: dict[str, tuple[str, Call]] = {
    "node2vec": ("fastnode2vec", partial(_node2vec, **_NODE2VEC)),
    "GraphSAGE": ("figrl.study.rivals.graphsage", _graphsage),
    "LINE": ("figrl.study.rivals.line", _line),
    "DeepWalk": ("fastnode2vec", partial(_node2vec, **_DEEPWALK)),
}
"""The paper's rivals, in the order of its table.

node2vec and DeepWalk have the defaults of their authors' programs: 10 walks of 80 nodes and a
window of 10; and 10 walks of 40 nodes, a window of 5 and a hierarchical softmax. node2vec has the
p = 1 and q = 0.5 with which its authors find communities; DeepWalk is p = q = 1.
"""

METHODS = PEERS | RIVALS
"""All that `run_peer` knows."""


class SkippedError(FigrlError):
    """A method could not be measured: it is not installed, takes too long, or fails."""


def is_installed(name: str) -> bool:
    """Whether a peer can be imported."""
    return importlib.util.find_spec(METHODS[name][0]) is not None


def run_peer(name: str, store: str, dim: int, out: str, timeout_seconds: float) -> Measured:
    """Learn vectors with one of `METHODS` in a process of its own; write them to the file `out`."""
    if not is_installed(name):
        raise SkippedError(f"{METHODS[name][0]} is not installed")
    return run_or_skip(learn, timeout_seconds, name=name, store=store, dim=dim, out=out)


def run_or_skip(
    function: Callable[..., Mapping[str, Any] | None], timeout_seconds: float, **arguments: Any
) -> Measured:
    """Call a function in a process of its own; one that takes too long or fails is skipped."""
    try:
        return measure_in_process(function, timeout_seconds=timeout_seconds, **arguments)
    except ProcessTimeoutError as error:
        raise SkippedError(f"took more than {timeout_seconds:.0f} s") from error
    except FigrlError as error:
        raise SkippedError(error.message) from error


def learn(name: str, store: str, dim: int, out: str) -> dict[str, Any]:
    """Learn vectors and write them to a file; return the seconds of the call alone."""
    warnings.simplefilter("ignore")
    matrix = read_adjacency(open_store(store).graph)
    module, call = METHODS[name]
    importlib.import_module(module)
    call(warm_up_graph(), dim)
    started = time.perf_counter()
    vectors = call(matrix, dim)
    seconds = time.perf_counter() - started
    np.save(Path(out), np.asarray(vectors, np.float32))
    return {"seconds": seconds}


def warm_up_graph(nodes: int = 1000) -> scipy.sparse.csr_matrix:
    """A random graph for the first call, in which a library loads and compiles its code."""
    rng = np.random.default_rng(0)
    ring = np.arange(nodes)
    rows = np.concatenate([ring, rng.integers(0, nodes, 3 * nodes)])
    columns = np.concatenate([(ring + 1) % nodes, rng.integers(0, nodes, 3 * nodes)])
    kept = rows != columns
    entries = np.ones(kept.sum(), np.float32)
    matrix = scipy.sparse.coo_matrix((entries, (rows[kept], columns[kept])))
    both = scipy.sparse.csr_matrix(matrix + matrix.T)
    both.data[:] = 1.0
    return both
