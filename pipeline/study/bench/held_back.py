"""Held back: nodes that were left out of learning and folded in, against a graph learnt whole."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.api import Session, run_embed, run_ingest
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig, FoldInConfig, IngestConfig
from pipeline.serve.embedding import open_store
from pipeline.serve.fold_calls import run_fold_in
from pipeline.study.bench.lines import Figure
from pipeline.study.bench.process import run_apart
from pipeline.study.bench.quality import LABELLED_STARTS
from pipeline.study.clustering import Centers, kmeans_in_memory, nearest_center
from pipeline.study.metrics import Labels, modularity

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
            for draw in range(draws):
                held = _held_back(ids, share, draw)
                folder = root / f"{share}-{draw}"
                by_id = _labels_with(folder, pairs, held, config, cluster, session)
                places = np.array([by_id.get(int(node), 0) for node in ids], np.int64)
                found.append(modularity(learnt.graph, places))
            held_back.append(sum(found) / draws)
        return {"whole": modularity(learnt.graph, labels), "held_back": held_back}


def _held_back(ids: npt.NDArray[np.int64], share: float, seed: int) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.choice(ids, round(share * ids.size), replace=False)


def _labels_with(
    folder: Path,
    pairs: npt.NDArray[np.int64],
    held: npt.NDArray[np.int64],
    config: EmbedConfig,
    cluster: Callable[[Any], tuple[Labels, Centers]],
    session: Session,
) -> dict[int, int]:
    """Cluster of each node, where some of them are folded in and go to the nearest centre."""
    is_held = np.isin(pairs, held)
    # A node of which all edges are held back was not learnt either, and so is new.
    is_held = ~np.isin(pairs, pairs[~is_held.any(axis=1)])
    # An edge of a new node is given with that node first; of two of them, both ways round.
    new = np.concatenate([pairs[is_held[:, 0]], pairs[is_held[:, 1]][:, ::-1]])
    known_path, new_path = folder / "known.parquet", folder / "new.parquet"
    folder.mkdir()
    for path, rows in ((known_path, pairs[~is_held.any(axis=1)]), (new_path, new)):
        pq.write_table(pa.table({"source": rows[:, 0], "target": rows[:, 1]}), path)
    store = folder / "store"
    run_ingest(known_path, store, IngestConfig(), session)
    run_embed(store, config, session)
    run_fold_in(store, new_path, folder / "out.parquet", FoldInConfig(), session)
    learnt = open_store(store).embedding()
    labels, centers = cluster(np.asarray(learnt.vectors))
    folded = pq.read_table(folder / "out.parquet")
    flat = folded["vector"].combine_chunks().flatten().to_numpy()
    nearest = nearest_center(flat.reshape(folded.num_rows, -1), centers)
    return dict(zip(learnt.ids().to_pylist(), labels.tolist(), strict=True)) | dict(
        zip(folded["id"].to_pylist(), nearest.tolist(), strict=True)
    )
