"""Quality: figrl and its peers on real graphs, by the k-means clusters of their vectors.

Every method learns in a process of its own, from a stored graph. The second call in the process is
measured: libraries are imported, kernels are loaded, and figrl's cluster is running. The vectors
are clustered as they are (k-means++, 25 iterations, seed 0): with one start, and with ten on the
small graphs that have classes, where one start varies too much.

`held-back` compares graphs some of whose nodes are held out and folded in with the graphs learnt
whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from figrl.analyze.kmeans import kmeans_in_memory, nearest_center
from figrl.analyze.metrics import modularity
from figrl.bench.harness import local_session, real_store, scratch
from figrl.bench.results import Metric, Score
from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.files import delete
from figrl.study import graphs
from figrl.study.parts.unseen import draw_held_out, learn_without
from figrl.study.peers import PEERS, SkippedError, run_peer, warm_up_graph
from figrl.study.process import Measured, measure_in_process

CLUSTERED = ("ca-HepTh", "ca-CondMat", "email-Enron", "com-dblp")
CLASSIFIED = {"us-football": 16, "polblogs": 16}
"""Graphs with classes, and the vector length for them: they have few nodes."""

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "fast"},
    *({"depth": number} for number in (4, 12)),
    *({"width": number} for number in (64, 128)),
    {"regularization": 0},
    *({"smoothing": steps} for steps in (0, 6, 20)),
)
"""One option changed at a time."""

CLASS_STARTS = 10
"""Starts of k-means on graphs with classes."""

HELD_BACK = {
    "polblogs": (16, 2, CLASS_STARTS),
    "us-football": (16, 12, CLASS_STARTS),
    "ca-HepTh": (128, 100, 1),
}
"""Vector length, clusters, and starts of k-means."""

HELD_BACK_GOALS = {0.1: 0.95, 0.2: 0.95, 0.3: 0.95, 0.4: 0.9}
"""By the share of nodes that is held out: modularity, over that of the graph learnt whole."""

_FEW_NODES, _DRAWS = 2000, 5
"""On a graph of few nodes, the mean of several draws: a single one varies too much."""

_DIM, _CLUSTERS = 128, 100
_TIMEOUT_SECONDS = 120.0


Learn = Callable[..., Measured]


def bench_quality(
    data: Path, *, names: Sequence[str] = (*CLUSTERED, *CLASSIFIED)
) -> list[Metric | Score]:
    """Score every method on every graph, and compare figrl with the best peer."""
    methods: dict[str, Learn] = {"figrl": partial(measure_in_process, ours)}
    for peer in PEERS:
        methods[peer] = partial(run_peer, peer, timeout_seconds=_TIMEOUT_SECONDS)
    found: list[Metric | Score] = []
    for name in names:
        scores = _score(data, name, methods)
        found += [*scores, *_over_best_peer(scores)]
    return found


def bench_options(
    data: Path, *, names: Sequence[str] = CLUSTERED, options: Sequence[dict[str, Any]] = OPTIONS
) -> list[Score]:
    """Score figrl by its options: the table from which the preset was chosen."""
    methods: dict[str, Learn] = {}
    for chosen in options:
        words = [f"--{key.replace('_', '-')} {value}" for key, value in chosen.items()]
        methods[" ".join(words) or "the preset"] = partial(measure_in_process, ours, **chosen)
    return [score for name in names for score in _score(data, name, methods)]


def _score(data: Path, name: str, methods: Mapping[str, Learn]) -> list[Score]:
    """Learn vectors of a graph with each method, cluster them, and measure the clusters."""
    scores = []
    with real_store(data, name) as store:
        graph, out = open_store(store).graph, f"{store}/vectors.npy"
        classes = graphs.read_classes(data / f"{name}.labels.tsv.gz", graphs.graph_ids(graph))
        clusters, starts = _CLUSTERS, 1
        if classes is not None:
            clusters, starts = np.unique(classes[classes != ""]).size, CLASS_STARTS
        for method, learn in methods.items():
            try:
                learnt = learn(store=store, dim=CLASSIFIED.get(name, _DIM), out=out)
            except SkippedError as skipped:
                scores.append(Score(name, method, skipped=str(skipped)))
                continue
            labels, _ = kmeans_in_memory(np.load(out), clusters, starts=starts)
            nmi = None if classes is None else graphs.class_agreement(labels, classes)
            found = learnt.seconds, learnt.peak_bytes, modularity(graph, labels)
            scores.append(Score(name, method, *found, nmi))
    return scores


def _over_best_peer(scores: Sequence[Score]) -> list[Metric]:
    """Metrics of figrl, over those of the best peer on this graph."""
    own, *peers = (score for score in scores if score.skipped is None)
    if not peers:
        return []
    if own.nmi is not None:
        best = max(peers, key=lambda score: score.nmi or 0.0)
        share = own.nmi / max(best.nmi or 0.0, 1e-9)
        detail = f"{own.nmi:.3f}, {best.method} {best.nmi:.3f}"
        return [Metric(f"{own.graph}: NMI over the best peer's", share, 1.0, "x", True, detail)]
    best = max(peers, key=lambda score: score.modularity or 0.0)
    ours, theirs = own.modularity or 0.0, best.modularity or 0.0
    detail = f"{ours:.3f}, {best.method} {theirs:.3f}"
    quality = f"{own.graph}: modularity over the best peer's"
    times = f"{own.seconds:.3g} s, {best.method} {best.seconds:.3g} s"
    ratio = own.seconds / best.seconds
    return [
        Metric(quality, ours / theirs, 0.98, "x", True, detail),
        Metric(f"{own.graph}: seconds over that peer's", ratio, 0.5, "x", False, times),
    ]


def ours(store: str, dim: int, out: str, **options: Any) -> dict[str, Any]:
    """Embed with figrl; return the seconds from the stored graph to the stored vectors."""
    with local_session() as session:
        _warm_up(session, dim)
        started = time.perf_counter()
        report = run_embed(store, EmbedOptions(dim=dim, **options), session)
        seconds = time.perf_counter() - started
    embedding = open_store(store).embedding(report["run"])
    np.save(out, np.asarray(embedding.vectors))
    # Other options may resolve to the same run, which would then be reused.
    delete(embedding.path)
    return {"seconds": seconds}


def _warm_up(session: Session, dim: int) -> None:
    """Embed a small graph, so that the workers load their kernels, as peers do."""
    edges = scipy.sparse.triu(warm_up_graph()).tocoo()
    with scratch() as folder:
        pairs = np.stack([edges.row, edges.col], axis=1).astype(np.int64)
        path = graphs.write_pairs(Path(folder, "edges.parquet"), pairs)
        run_ingest(path, Path(folder, "store"), IngestOptions(), session)
        run_embed(Path(folder, "store"), EmbedOptions(dim=dim), session)


def bench_held_back(data: Path) -> list[Metric]:
    """Modularity with folded-in nodes over that of the graph learnt whole, share by share."""
    metrics = []
    for name, (dim, clusters, starts) in HELD_BACK.items():
        edges = str(data / f"{name}.txt.gz")
        sizes = {"dim": dim, "clusters": clusters, "starts": starts}
        result = measure_in_process(compare_held_back, edges=edges, **sizes).result
        whole = result["whole"]
        for (share, goal), found in zip(HELD_BACK_GOALS.items(), result["held_out"], strict=True):
            what = f"{name}: modularity with {share:.0%} of the nodes folded in, over whole"
            detail = f"{found:.3f}, learnt whole {whole:.3f}"
            metrics.append(Metric(what, found / whole, goal, "x", True, detail))
    return metrics


def compare_held_back(edges: str, dim: int, clusters: int, starts: int) -> dict[str, Any]:
    """Learn a graph whole, and with some of its nodes held out."""
    pairs, config = graphs.read_pairs(Path(edges)), EmbedOptions(dim=dim)
    cluster = partial(kmeans_in_memory, clusters=clusters, starts=starts)
    with scratch() as folder, local_session() as session:
        root = Path(folder)
        run_ingest(edges, root / "whole", IngestOptions(), session)
        run_embed(root / "whole", config, session)
        learnt = open_store(root / "whole").embedding()
        ids = learnt.ids().to_numpy()

        def held_out(share: float, seed: int) -> float:
            held = draw_held_out(ids, share, seed)
            found = learn_without(root / f"{share}-{seed}", pairs, held, config, session)
            labels, centers = cluster(found.vectors)
            both = np.concatenate([labels, nearest_center(found.new_vectors, centers)])
            at = found.positions(ids)
            return modularity(learnt.graph, np.where(at >= 0, both[at], 0))

        draws = _DRAWS if ids.size <= _FEW_NODES else 1
        means = [
            sum(held_out(share, seed) for seed in range(draws)) / draws for share in HELD_BACK_GOALS
        ]
        labels, _ = cluster(np.asarray(learnt.vectors))
        return {"whole": modularity(learnt.graph, labels), "held_out": means}
