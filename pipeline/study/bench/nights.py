"""Nights: a real graph that changes by a hundredth every night, and neighbours in it."""

from __future__ import annotations

import gzip
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.api import Session
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import EmbedConfig
from pipeline.nightly import run_reindex
from pipeline.nightly_config import ReindexConfig, Source
from pipeline.serve.embedding import open_store
from pipeline.serve.index import search_index
from pipeline.serve.neighbors import normalised, search
from pipeline.study.bench.lines import Figure, Line
from pipeline.study.bench.process import run_apart

_CHANGED = 0.005
"""Share of the edges that come, and share that go, every night."""


def bench_nights(data: Path, *, nights: int = 10, dim: int = 128) -> list[Line | Figure]:
    """Mean cosine of consecutive nights, aligned and not; then exact and approximate search."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        edges = str(data / "com-dblp.txt.gz")
        done = run_apart(f"{__name__}:simulate", edges=edges, folder=folder, nights=nights, dim=dim)
        searched = run_apart(f"{__name__}:find", store=f"{folder}/store")
    lines: list[Line | Figure] = []
    for number, night in enumerate(done.result["nights"], 2):
        detail = f"{night['unaligned']:.3f} before alignment; {night['seconds']:.0f} s in all"
        what = f"com-dblp, night {number}: mean cosine with the night before"
        lines.append(Figure(what, night["cosine"], 0.95, "", True, detail))
    found = searched.result
    lines.append(
        Figure("com-dblp: recall@10 of the approximate index", found["recall"], 0.95, "", True)
    )
    what = "10 neighbours of a node of com-dblp, approximate index"
    lines.append(Line(what, "exact search", found["close"], found["exact"], wanted=20))
    return lines


def simulate(edges: str, folder: str, nights: int, dim: int) -> dict[str, Any]:
    """Run the nights; every one has to be published."""
    with gzip.open(edges, "rt", encoding="utf-8") as lines:
        pairs = np.loadtxt(lines, np.int64, comments="#")
    pairs = pairs[np.random.default_rng(0).permutation(len(pairs))]
    step = round(_CHANGED * len(pairs))
    first = len(pairs) - nights * step
    config = ReindexConfig(
        store=f"{folder}/store",
        sources=(Source(path=f"{folder}/edges"),),
        embed=EmbedConfig(dim=dim),
        index="approximate",
    )
    told = []
    with connect(ClusterConfig()) as client:
        for night in range(nights):
            # The oldest edges go, and as many new ones come.
            _write(Path(folder, "edges", "part-000.parquet"), pairs[night * step : first])
            coming = pairs[first + (night - 1) * step : first + night * step]
            if night:
                _write(Path(folder, "edges", f"part-{night:03d}.parquet"), coming)
            report = run_reindex(config, Session(client))
            if report["alignment"]:
                told.append(
                    {
                        "cosine": report["alignment"]["mean_cosine"],
                        "unaligned": report["alignment"]["mean_cosine_unaligned"],
                        "seconds": report["seconds"],
                    }
                )
    return {"nights": told}


def _write(path: Path, rows: npt.NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"source": rows[:, 0], "target": rows[:, 1]}), path)


def find(store: str, queries: int = 200, count: int = 10) -> dict[str, Any]:
    """Search for some nodes, one at a time, both ways."""
    embedding = open_store(store).embedding()
    rows = np.random.default_rng(1).choice(embedding.graph.nodes, queries, replace=False)
    vectors = np.asarray(embedding.vectors[np.sort(rows)])
    path = embedding.path / "embedding"
    found, seconds = [], {}
    for name in ("exact", "close"):
        took, parts = [], []
        for query in normalised(vectors):
            started = time.perf_counter()
            hit = (
                search(path, None, query[None], count)
                if name == "exact"
                else search_index(embedding.path, query[None], count)
            )
            took.append(time.perf_counter() - started)
            parts.append(hit)
        seconds[name] = statistics.median(took)
        found.append(parts)
    recalls = [np.isin(near.rows, true.rows).mean() for true, near in zip(*found, strict=True)]
    return {"recall": float(np.mean(recalls)), **seconds}
