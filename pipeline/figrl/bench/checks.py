"""Checks: seconds of an embedding with its checksums, and without."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from figrl.bench.harness import local_session, scratch
from figrl.bench.results import Metric
from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store import checksums
from figrl.store.files import delete
from figrl.study.process import measure_in_process

_PAIRS = 7
_FUNCTIONS = ("crc32c", "_crc_of_file")
_ORIGINALS = {name: getattr(checksums, name) for name in _FUNCTIONS}


def bench_checks(data: Path) -> list[Metric]:
    """Compare medians on com-dblp, with the default options; the two alternate on one cluster."""
    measured = measure_in_process(
        embed_seconds, edges=str(data / "com-dblp.txt.gz"), pairs=_PAIRS
    ).result
    checked, plain = (statistics.median(measured[name]) for name in ("checked", "plain"))
    return [
        Metric(
            "checks: what checksums add to figrl embed on com-dblp",
            100 * (checked / plain - 1),
            limit=5,
            unit="%",
            detail=f"{checked:.2f} s with, {plain:.2f} s without; medians of {_PAIRS}",
        )
    ]


def embed_seconds(edges: str, pairs: int) -> dict[str, Any]:
    """Seconds of embeddings with and without checksums, after a pair that compiles."""
    found: dict[str, list[float]] = {"checked": [], "plain": []}
    with scratch() as folder, local_session() as session:
        for turn in range(1 + pairs):
            for name, seconds in found.items():
                store = f"{folder}/{name}"
                _compute_checksums(session, wanted=name == "checked")
                if turn == 0:
                    run_ingest(edges, store, IngestOptions(), session)
                started = time.perf_counter()
                report = run_embed(store, EmbedOptions(), session)
                seconds.append(time.perf_counter() - started)
                delete(open_store(store).embedding(report["run"]).path)
    return {name: seconds[1:] for name, seconds in found.items()}


def _compute_checksums(session: Session, *, wanted: bool) -> None:
    """Compute checksums here and in the workers, or take 0 for all, of a store made that way."""
    with session.open() as client:
        client.run(_set_functions, wanted=wanted)
    _set_functions(wanted=wanted)


def _set_functions(*, wanted: bool) -> None:
    for name, function in _ORIGINALS.items():
        setattr(checksums, name, function if wanted else _zero)


def _zero(*_: Any) -> int:
    return 0
