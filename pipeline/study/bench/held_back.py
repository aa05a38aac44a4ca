"""Held back: nodes that were left out of learning and folded in, against a graph learnt whole."""

from __future__ import annotations

import gzip
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.api import Session, run_embed, run_ingest
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig, IngestConfig
from pipeline.serve.embedding import open_store
from pipeline.study.bench.lines import Figure
from pipeline.study.bench.process import run_apart
from pipeline.study.bench.quality import LABELLED_STARTS
from pipeline.study.clustering import kmeans_in_memory, nearest_center
from pipeline.study.metrics import modularity
from pipeline.study.unseen import draw, learn_without

GRAPHS = {
    "polblogs": (16, 2, LABELLED_STARTS),
    "us-football": (16, 12, LABELLED_STARTS),
    "ca-HepTh": (128, 100, 1),
}
"""Length of vectors, clusters, and starts of k-means."""

GOALS = {0.1: 0.95, 0.2: 0.95, 0.3: 0.95, 0.4: 0.9}
"""By the share of nodes that is held back: modularity, over that of the graph learnt whole."""


_FEW_NODES, _DRAWS = 2000, 5
"""Of a graph of few nodes the mean of some draws is taken: which ones go is mostly luck."""


def bench_held_back(data: Path) -> list[Figure]:
    """Modularity with folded-in nodes over that of the graph learnt whole, share by share."""
    figures = []
    for name, (dim, clusters, starts) in GRAPHS.items():
        edges = str(data / f"{name}.txt.gz")
        sizes = {"dim": dim, "clusters": clusters, "starts": starts}
        measured = run_apart(f"{__name__}:compare", edges=edges, **sizes)
        whole = measured.result["whole"]
        for (share, goal), found in zip(GOALS.items(), measured.result["held_back"], strict=True):
            what = f"{name}: modularity with {share:.0%} of the nodes folded in, over whole"
            detail = f"{found:.3f}, learnt whole {whole:.3f}"
            figures.append(Figure(what, found / whole, goal, "x", True, detail))
    return figures


def compare(edges: str, dim: int, clusters: int, starts: int) -> dict[str, Any]:
    """Learn a graph whole, and with some of its nodes held back."""
    with gzip.open(edges, "rt", encoding="utf-8") as lines:
        pairs = np.loadtxt(lines, np.int64, comments="#")
    config = EmbedConfig(dim=dim)
    cluster = partial(kmeans_in_memory, clusters=clusters, starts=starts)
    with (
        tempfile.TemporaryDirectory(prefix="figrl-bench-") as scratch,
        connect(ClusterConfig()) as client,
    ):
        root, session = Path(scratch), Session(client)
        whole = root / "whole"
        run_ingest(edges, whole, IngestConfig(), session)
        run_embed(whole, config, session)
        learnt = open_store(whole).embedding()
        ids = learnt.ids().to_numpy()
        labels, _ = cluster(np.asarray(learnt.vectors))
        held_back = []
        draws = _DRAWS if ids.size <= _FEW_NODES else 1
        for share in GOALS:
            found = []
            for seed in range(draws):
                held = draw(ids, share, seed)
                half = learn_without(root / f"{share}-{seed}", pairs, held, config, session)
                labels_seen, centers = cluster(half.vectors)
                both = np.concatenate([labels_seen, nearest_center(half.new_vectors, centers)])
                places = half.places(ids)
                found.append(modularity(learnt.graph, np.where(places >= 0, both[places], 0)))
            held_back.append(sum(found) / draws)
        return {"whole": modularity(learnt.graph, labels), "held_back": held_back}
