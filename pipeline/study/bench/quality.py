"""Quality: figrl and its peers on real graphs, by what k-means makes of their vectors.

Every method learns in a process of its own, from a graph that is stored already; what is measured
is the call itself, the second one in its process: libraries are imported, kernels loaded, and
figrl's cluster runs already. Its vectors are
clustered as they come (k-means++, 25 rounds, seed 0): with one start, and the small graphs that
have labels with ten, for there one start is mostly luck.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

from pipeline.api import Session, run_embed, run_ingest
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig, IngestConfig
from pipeline.errors import FigrlError
from pipeline.files import remove
from pipeline.graph import Graph
from pipeline.serve.embedding import open_store
from pipeline.study.bench.lines import Figure, Score
from pipeline.study.bench.peers import PEERS, is_installed, warm_up_graph
from pipeline.study.bench.process import Measured, TookTooLongError, run_apart, run_within
from pipeline.study.clustering import agreement, kmeans_in_memory
from pipeline.study.metrics import Labels, modularity

CLUSTERED = ("ca-HepTh", "ca-CondMat", "email-Enron", "com-dblp")
LABELLED = {"us-football": 16, "polblogs": 16}
"""Graphs with labels, and the length of vectors for them: they have few nodes."""

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"power_iterations": 2},
    {"power_iterations": 8},
    {"sketch_size": 256},
    {"regularization": 0},
    {"exponent": 0.0},
    {"smoothing": 0},
    {"smoothing": 6},
    {"smoothing": 20},
    {"projection": "sparse-sign"},
)
"""One thing changed at a time."""

_DIM, _CLUSTERS = 128, 100
LABELLED_STARTS = 10
_AT_MOST = 120.0
"""Seconds that a peer may take for a graph."""
_OURS = "figrl"


def bench_quality(
    data: Path, *, graphs: Sequence[str] = (*CLUSTERED, *LABELLED)
) -> list[Figure | Score]:
    """Score every method on every graph, and hold figrl against the best of the others."""
    lines: list[Figure | Score] = []
    for name in graphs:
        scores = _score_graph(data, name)
        lines += scores
        lines += _judge(name, [score for score in scores if score.skipped is None])
    return lines


def bench_options(
    data: Path,
    *,
    graphs: Sequence[str] = CLUSTERED,
    options: Sequence[dict[str, Any]] = OPTIONS,
) -> list[Score]:
    """Score figrl by its options: the table from which the preset was chosen."""
    scores = []
    for name in graphs:
        with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
            graph, truth = _stored(data, name, folder)
            sizes = {"store": f"{folder}/store", "dim": LABELLED.get(name, _DIM)}
            out = f"{folder}/vectors.npy"
            for chosen in options:
                words = [f"--{key.replace('_', '-')} {value}" for key, value in chosen.items()]
                measured = run_apart(f"{__name__}:ours", out=out, **sizes, **chosen)
                method = " ".join(words) or "the preset"
                scores.append(_score(name, method, graph, np.load(out), truth, measured))
    return scores


def _stored(data: Path, name: str, folder: str) -> tuple[Graph, Labels | None]:
    """Ingest a graph into a folder; with the class of each node, where they are known."""
    edges, store = str(data / f"{name}.txt.gz"), f"{folder}/store"
    run_apart("pipeline.study.bench.embed:prepare", edges=edges, store=store)
    graph = open_store(store).graph
    return graph, read_labels(data / f"{name}.labels.tsv.gz", graph)


def _score_graph(data: Path, name: str) -> list[Score]:
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        graph, truth = _stored(data, name, folder)
        return [_score_method(name, method, graph, truth, folder) for method in (_OURS, *PEERS)]


def _score_method(name: str, method: str, graph: Graph, truth: Labels | None, folder: str) -> Score:
    if method != _OURS and not is_installed(method):
        return Score(name, method, skipped=f"{PEERS[method].module} is not installed")
    sizes = {"store": f"{folder}/store", "dim": LABELLED.get(name, _DIM)}
    out = f"{folder}/vectors.npy"
    try:
        if method == _OURS:
            measured = run_apart(f"{__name__}:ours", out=out, **sizes)
        else:
            learn = "pipeline.study.bench.peers:learn"
            measured = run_within(_AT_MOST, learn, name=method, out=out, **sizes)
    except TookTooLongError:
        return Score(name, method, skipped=f"took more than {_AT_MOST:.0f} s")
    except FigrlError as error:
        if method == _OURS:
            raise
        return Score(name, method, skipped=str(error))
    return _score(name, method, graph, np.load(out), truth, measured)


def _score(
    name: str,
    method: str,
    graph: Graph,
    vectors: Any,
    truth: Labels | None,
    measured: Measured,
) -> Score:
    clusters = _CLUSTERS if truth is None else int(truth.max()) + 1
    starts = 1 if truth is None else LABELLED_STARTS
    labels, _ = kmeans_in_memory(vectors, clusters, starts=starts)
    known = None if truth is None else truth >= 0
    return Score(
        graph=name,
        method=method,
        seconds=measured.seconds,
        peak_bytes=measured.peak_bytes,
        modularity=modularity(graph, labels),
        nmi=None if truth is None or known is None else agreement(labels[known], truth[known]),
    )


def ours(store: str, dim: int, out: str, **options: Any) -> dict[str, Any]:
    """Embed with figrl; the clock runs from the stored graph to the stored vectors."""
    with connect(ClusterConfig()) as client:
        _warm_up(client, dim)
        started = time.perf_counter()
        report = run_embed(store, EmbedConfig(dim=dim, **options), Session(client))
        seconds = time.perf_counter() - started
    embedding = open_store(store).embedding(report["run"])
    np.save(out, np.asarray(embedding.vectors))
    # Other options may come to the same run, which would then be done already.
    remove(embedding.path)
    certificate = report["certificate"] or {}
    return {"seconds": seconds, "cost_bound": certificate.get("cost_bound")}


def _warm_up(client: distributed.Client, dim: int) -> None:
    """Have the workers load their kernels, as peers do in a first call."""
    edges = scipy.sparse.triu(warm_up_graph()).tocoo()
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        path = Path(folder, "edges.parquet")
        pq.write_table(pa.table({"source": edges.row, "target": edges.col}), path)
        run_ingest(path, Path(folder, "store"), IngestConfig(), Session(client))
        run_embed(Path(folder, "store"), EmbedConfig(dim=dim), Session(client))


def read_labels(path: Path, graph: Graph) -> Labels | None:
    """Class of each row of a graph with int ids, -1 where it has none; None without a file."""
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        nodes, classes = np.loadtxt(lines, np.int64, unpack=True)
    ids = graph.index.ids_of(0, graph.nodes).to_numpy()
    order = np.argsort(nodes)
    places = np.searchsorted(nodes[order], ids).clip(max=nodes.size - 1)
    found = nodes[order][places] == ids
    return np.where(found, classes[order][places], -1)


def _judge(name: str, scores: Sequence[Score]) -> list[Figure]:
    """Figrl against the peer that is best on this graph."""
    own = next(score for score in scores if score.method == _OURS)
    peers = [score for score in scores if score.method != _OURS]
    if not peers:
        return []
    if own.nmi is not None:
        best = max(peers, key=lambda score: score.nmi or 0.0)
        share = own.nmi / max(best.nmi or 0.0, 1e-9)
        detail = f"{own.nmi:.3f}, {best.method} {best.nmi:.3f}"
        return [Figure(f"{name}: NMI over the best peer's", share, 1.0, "x", True, detail)]
    best = max(peers, key=lambda score: score.modularity or 0.0)
    assert own.modularity is not None
    assert best.modularity is not None
    detail = f"{own.modularity:.3f}, {best.method} {best.modularity:.3f}"
    times = f"{own.seconds:.3g} s, {best.method} {best.seconds:.3g} s"
    return [
        Figure(
            f"{name}: modularity over the best peer's",
            own.modularity / best.modularity,
            0.98,
            "x",
            True,
            detail,
        ),
        Figure(
            f"{name}: seconds over that peer's", own.seconds / best.seconds, 0.5, "x", False, times
        ),
    ]
