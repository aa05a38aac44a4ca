"""Scale: one embedding on more workers and threads, in rounds in which the clusters alternate."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from figrl.bench.harness import local_session, planted_store
from figrl.bench.results import Metric
from figrl.engine.stage import group_by_name
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import open_store
from figrl.serve.runs import run_embed
from figrl.store.files import delete
from figrl.study.process import measure_in_process

Shape = tuple[int, int]
"""Workers of a cluster, and threads of each."""

_GOALS: dict[Shape, float] = {(2, 1): 1.7, (1, 2): 1.8, (4, 1): 1.0}
"""How many times as fast as one worker of one thread; four share two cores here."""

_MORE_CPU = 1.15
_UNEVEN = 1.25
"""How much more than its share of the processor seconds the busiest worker may have."""

LIMIT_BYTES = 5_000_000_000
SMALL_EDGES = 200_000


def bench_scale(*, edges: int = 20_000_000, rounds: int = 5) -> list[Metric]:
    """Compare medians of the seconds of the job, of its products, and of the processors."""
    runs: dict[Shape, list[dict[str, float]]] = defaultdict(list)
    with planted_store(edges) as store, planted_store(SMALL_EDGES) as small:
        for _ in range(rounds):
            for workers, threads in ((1, 1), *_GOALS):
                shape = {"workers": workers, "threads": threads}
                measured = measure_in_process(embed_once, store=store, small=small, **shape)
                runs[workers, threads].append(measured.result)
    return [metric for shape in _GOALS for metric in _compare(shape, runs, edges)]


def _compare(shape: Shape, runs: dict[Shape, list[dict[str, float]]], edges: int) -> list[Metric]:
    workers, threads = shape
    what = f"scale: {workers} x {threads} threads, {edges / 1e6:.3g} M edges"
    detail = f"1 x 1 thread; medians of {len(runs[shape])} rounds"
    found = []
    for name in ("embed", "products"):
        one, many = _median(runs[1, 1], name), _median(runs[shape], name)
        text = f"{many:.2f} s, {one:.2f} s with {detail}"
        found.append(
            Metric(f"{what}: {name}", one / many, _GOALS[shape], "x", at_least=True, detail=text)
        )
    one, many = _median(runs[1, 1], "cpu"), _median(runs[shape], "cpu")
    text = f"{many:.1f} s, {one:.1f} s with {detail}"
    found.append(Metric(f"{what}: processor seconds", many / one, _MORE_CPU, "x", detail=text))
    one, many = _median(runs[1, 1], "busiest"), _median(runs[shape], "busiest")
    text = f"{many:.1f} s, {one:.1f} s with {detail}"
    limit = _MORE_CPU * _UNEVEN / workers if workers > 1 else _MORE_CPU
    name = f"{what}: processor seconds of the busiest worker"
    found.append(Metric(name, many / one, limit, "x", detail=text))
    one, many = (_median(found, "bytes") / 1e9 for found in (runs[1, 1], runs[shape]))
    text = f"{many:.2f} GB, {one:.2f} GB with {detail}"
    found.append(Metric(f"{what}: bytes", many / one, float(workers), "x", detail=text))
    return found


def _median(runs: Sequence[dict[str, float]], name: str) -> float:
    return median(run[name] for run in runs)


def embed_once(store: str, small: str, workers: int, threads: int) -> dict[str, Any]:
    """Embed on a cluster that has embedded a small graph before, and delete the run."""
    cluster = {"workers": workers, "threads_per_worker": threads}
    with local_session(LIMIT_BYTES, **cluster) as session, session.open() as client:
        run_embed(small, EmbedOptions(), session)
        delete(open_store(small).embedding().path)
        before = client.run(time.process_time)
        started = time.perf_counter()
        report = run_embed(store, EmbedOptions(), session)
        seconds = time.perf_counter() - started
        after = client.run(time.process_time)
    used = [after[worker] - before[worker] for worker in after]
    delete(open_store(store).embedding(report["run"]).path)
    stages = report["stages"]
    return {
        "embed": seconds,
        "products": sum(stage["seconds"] for stage in stages if _is_product(stage["name"])),
        "staged": sum(stage["seconds"] for stage in stages),
        "cpu": sum(used),
        "busiest": max(used),
        "bytes": sum(stage["read_bytes"] + stage["written_bytes"] for stage in stages),
        "stages": {
            name: round(group["seconds"], 2) for name, group in group_by_name(stages).items()
        },
    }


def _is_product(stage: str) -> bool:
    kind, _, number = stage.partition("-")
    return kind in ("sketch", "smooth") and (number.isdecimal() or not number)
