"""Checks: seconds of an embedding with its checksums, and without."""

from __future__ import annotations

import importlib
import statistics
import time
from pathlib import Path
from typing import Any

import dask

from figrl.bench.harness import local_session, scratch
from figrl.bench.results import Metric
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.files import delete
from figrl.study.process import measure_in_process

_ROUNDS, _CALLS = 3, 3


def bench_checks(data: Path) -> list[Metric]:
    """Compare medians of com-dblp, with the default options; the two alternate."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(_ROUNDS):
        for checked, found in seconds.items():
            measured = measure_in_process(
                embed_seconds, edges=str(data / "com-dblp.txt.gz"), checked=checked
            )
            found += measured.result["embeddings"]
    ours, plain = (statistics.median(seconds[checked]) for checked in (True, False))
    return [
        Metric(
            "checks: share of figrl embed on com-dblp that checksums take",
            100 * (ours / plain - 1),
            limit=5,
            unit="%",
            detail=f"{ours:.2f} s with, {plain:.2f} s without; medians of {_ROUNDS * _CALLS}",
        )
    ]


def embed_seconds(edges: str, *, checked: bool) -> dict[str, Any]:
    """Seconds of several embeddings on a running cluster, after one that compiles."""
    preload = [] if checked else ["figrl.bench.unchecked"]
    for module in preload:
        importlib.import_module(module)
    found = []
    with (
        scratch() as store,
        dask.config.set({"distributed.worker.preload": preload}),
        local_session() as session,
    ):
        run_ingest(edges, store, IngestOptions(), session)
        for _ in range(1 + _CALLS):
            started = time.perf_counter()
            report = run_embed(store, EmbedOptions(), session)
            found.append(time.perf_counter() - started)
            delete(open_store(store).embedding(report["run"]).path)
    return {"embeddings": found[1:]}
