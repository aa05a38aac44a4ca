"""Nights: a real graph that changes by one per cent every night, and neighbours in it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from figrl.bench.harness import local_session, scratch
from figrl.bench.results import Comparison, Metric
from figrl.learn.spec import EmbedOptions
from figrl.nightly.config import ReindexConfig, Source
from figrl.nightly.reindex import run_reindex
from figrl.serve.embedding import open_store
from figrl.serve.index import search_index
from figrl.serve.search import normalised, search
from figrl.study.graphs import read_pairs, write_pairs
from figrl.study.process import measure_in_process

_CHANGED = 0.005
"""Share of the edges that are added, and share that are removed, every night."""


def bench_nights(data: Path, *, nights: int = 10, dim: int = 128) -> list[Comparison | Metric]:
    """Mean cosine of consecutive nights, aligned and not; then exact and approximate search."""
    edges = str(data / "com-dblp.txt.gz")
    with scratch() as folder:
        sizes: dict[str, Any] = {"edges": edges, "folder": folder, "nights": nights, "dim": dim}
        simulated = measure_in_process(simulate, **sizes).result["nights"]
        searched = measure_in_process(search_both, store=f"{folder}/store").result
    found: list[Comparison | Metric] = []
    for number, night in enumerate(simulated, 2):
        before, seconds = night["mean_cosine_unaligned"], night["seconds"]
        detail = f"{before:.3f} before alignment; {seconds:.0f} s in all"
        what = f"com-dblp, night {number}: mean cosine with the night before"
        found.append(Metric(what, night["mean_cosine"], 0.95, "", True, detail))
    what = "com-dblp: recall@10 of the approximate index"
    found.append(Metric(what, searched["recall"], 0.95, "", True))
    what = "10 neighbours of a node of com-dblp, approximate index"
    both = searched["approximate"], searched["exact"]
    return [*found, Comparison(what, "exact search", *both, wanted=20)]


def simulate(edges: str, folder: str, nights: int, dim: int) -> dict[str, Any]:
    """Run the nights; every one has to be published."""
    pairs = read_pairs(Path(edges))
    pairs = pairs[np.random.default_rng(0).permutation(len(pairs))]
    step = round(_CHANGED * len(pairs))
    first = len(pairs) - nights * step
    config = ReindexConfig(
        store=f"{folder}/store",
        sources=(Source(path=f"{folder}/edges"),),
        embed=EmbedOptions(dim=dim),
        index="approximate",
    )
    found = []
    with local_session() as session:
        for night in range(nights):
            # The oldest edges are removed, and as many new ones are added.
            write_pairs(Path(folder, "edges", "part-000.parquet"), pairs[night * step : first])
            if night:
                added = pairs[first + (night - 1) * step : first + night * step]
                write_pairs(Path(folder, "edges", f"part-{night:03d}.parquet"), added)
            report = run_reindex(config, session)
            if alignment := report["alignment"]:
                found.append({**alignment, "seconds": report["seconds"]})
    return {"nights": found}


def search_both(store: str, queries: int = 200, count: int = 10) -> dict[str, Any]:
    """Search for some nodes, one at a time, exactly and in the index."""
    embedding = open_store(store).embedding()
    rows = np.random.default_rng(1).choice(embedding.graph.nodes, queries, replace=False)
    vectors = normalised(np.asarray(embedding.vectors[np.sort(rows)]))
    path = embedding.path

    def timed(find: Callable[[Any], Any]) -> tuple[list[Any], float]:
        found, seconds = [], []
        for query in vectors:
            started = time.perf_counter()
            found.append(find(query[None]).rows)
            seconds.append(time.perf_counter() - started)
        return found, statistics.median(seconds)

    true, exact = timed(
        lambda query: search(path / "embedding", None, query, count, embedding.metric)
    )
    close, approximate = timed(lambda query: search_index(path, query, count, embedding.metric))
    recalls = [np.isin(*both).mean() for both in zip(close, true, strict=True)]
    return {"recall": float(np.mean(recalls)), "exact": exact, "approximate": approximate}
