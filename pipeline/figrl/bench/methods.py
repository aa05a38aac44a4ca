"""Methods that are measured: rows of figrl's options, other libraries, and a reference.

Every method learns in a process of its own, from a stored graph. The second call in the process is
measured: libraries are imported, kernels are loaded, and figrl's cluster is running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from figrl.bench.harness import ingest_edges, local_session, scratch
from figrl.bench.problems import Problem
from figrl.bench.tasks import Floats, Metric
from figrl.config import make_options
from figrl.engine.session import Session
from figrl.errors import ConfigError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.files import delete
from figrl.study.graphs import graph_ids, read_adjacency, write_pairs
from figrl.study.peers import PEERS, SkippedError, run_or_skip, run_peer, warm_up_graph
from figrl.study.process import Measured, measure_in_process


@dataclass(frozen=True)
class Method:
    """A way to learn vectors, and the metric by which they are compared.

    `options` are those of ``figrl embed``; other kinds of methods have none.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric = "cosine"
    kind: Literal["figrl", "peer", "reference"] = "figrl"

    def fits(self, problem: Problem) -> bool:
        """Whether the method is meant for the problem: the reference is for recommendations."""
        return self.kind != "reference" or problem.learnt == "users and items"


OWN = (
    Method("figrl", {}, "cosine"),
    Method("figrl fast", {"preset": "fast"}, "cosine"),
    Method("figrl product", {"representation": "product"}, "dot"),
)
_TRAINED_ON_DOT = ("fastnode2vec",)
"""Peers whose vectors are trained on dot products: by the cosine they would look far worse."""

OTHERS = tuple(
    Method(name, metric="dot" if name in _TRAINED_ON_DOT else "cosine", kind="peer")
    for name in PEERS
)
REFERENCE = Method("low-pass SVD", metric="dot", kind="reference")
"""The exact linear recommender; only for users and items, and not counted as a peer."""

METHODS = (*OWN, *OTHERS, REFERENCE)


@dataclass(frozen=True)
class StoredProblem:
    """A problem whose edges are in a temporary store."""

    problem: Problem
    folder: str

    @property
    def store(self) -> str:
        """The store."""
        return f"{self.folder}/store"

    def learn(self, method: Method, timeout_seconds: float) -> tuple[Floats, Measured]:
        """Learn a vector of every node, or raise a `SkippedError`; return what it took too."""
        out = f"{self.folder}/vectors.npy"
        where: dict[str, Any] = {"store": self.store, "dim": self.problem.dim, "out": out}
        if method.kind == "peer":
            measured = run_peer(method.name, timeout_seconds=timeout_seconds, **where)
        elif method.kind == "reference":
            users = {"users": self.problem.sources}
            measured = run_or_skip(low_pass, timeout_seconds, **users, **where)
        else:
            _check(method)
            measured = run_or_skip(embed, timeout_seconds, options=dict(method.options), **where)
        learnt = np.load(out)
        vectors = np.zeros_like(learnt)
        vectors[graph_ids(open_store(self.store).graph)] = learnt
        return vectors, measured


@contextmanager
def stored(problem: Problem) -> Iterator[StoredProblem]:
    """Ingest the edges of a problem into a temporary store."""
    with scratch() as folder:
        edges = write_pairs(Path(folder, "edges.parquet"), problem.pairs)
        found = StoredProblem(problem, folder)
        measure_in_process(ingest_edges, edges=str(edges), store=found.store)
        yield found


def _check(method: Method) -> None:
    """Skip options that this version of figrl does not have."""
    try:
        make_options(EmbedOptions, dict(method.options))
    except ConfigError as error:
        raise SkippedError(error.message) from error


def embed(store: str, dim: int, out: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Embed with figrl; return the seconds from the stored graph to the stored vectors."""
    config = EmbedOptions(dim=dim, **options)
    with local_session() as session:
        _warm_up(session, config)
        started = time.perf_counter()
        report = run_embed(store, config, session)
        seconds = time.perf_counter() - started
    embedding = open_store(store).embedding(report["run"])
    np.save(out, np.asarray(embedding.vectors))
    # Other options may resolve to the same run, which would then be reused.
    delete(embedding.path)
    return {"seconds": seconds}


def _warm_up(session: Session, config: EmbedOptions) -> None:
    """Embed a small graph, so that the workers load their kernels, as peers do."""
    edges = scipy.sparse.triu(warm_up_graph()).tocoo()
    with scratch() as folder:
        pairs = np.stack([edges.row, edges.col], axis=1).astype(np.int64)
        path = write_pairs(Path(folder, "edges.parquet"), pairs)
        run_ingest(path, Path(folder, "store"), IngestOptions(), session)
        run_embed(Path(folder, "store"), config, session)


def low_pass(store: str, dim: int, out: str, users: int) -> dict[str, Any]:
    """Write the vectors of the exact low-pass recommender: R V for users, V for items.

    V are the right singular vectors of ``D_u^-1/2 R D_i^-1/2``, so the dot product of a user and
    an item is an entry of ``R V V^t``.
    """
    graph = open_store(store).graph
    ids = graph_ids(graph)
    is_user = ids < users
    taken = scipy.sparse.csr_array(read_adjacency(graph))[is_user][:, ~is_user].astype(np.float64)
    started = time.perf_counter()
    of_user, of_item = (1 / np.sqrt(taken.sum(axis=axis)) for axis in (1, 0))
    scaled = scipy.sparse.diags_array(of_user) @ taken @ scipy.sparse.diags_array(of_item)
    dim = min(dim, min(scaled.shape) - 1)
    right: Floats = scipy.sparse.linalg.svds(scaled, dim, rng=np.random.default_rng(0))[2].T
    seconds = time.perf_counter() - started
    vectors = np.empty((ids.size, dim), np.float32)
    vectors[is_user], vectors[~is_user] = taken @ right, right
    np.save(out, vectors)
    return {"seconds": seconds}
