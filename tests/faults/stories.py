"""Jobs that are killed in each of their stages, and what they did each time."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig
from tests.faults.processes import Faults, Figrl
from tests.faults.workload import Block, marked_blocks

# A block in the middle of each stage.
MIDDLE = {
    "ingest": [
        ("scan", "000008"),
        ("ranges", "all"),
        ("ids", "000000"),
        ("relabel", "000008-0000"),
        ("build", "000008"),
    ],
    "embed": [
        ("sketch-001", "0000-000008"),
        ("sketch-003", "0000-000008"),
        ("factor", "000003"),
        ("factor-solve", "all"),
        ("vectors", "000008"),
        ("smooth-002", "0000-000008"),
        ("smooth-mix", "000008"),
        ("smooth-balance", "all"),
        ("embedding", "000008"),
    ],
    "fold-in": [("match", "000000"), ("weigh", "000001"), ("fold", "000001"), ("join", "all")],
    "export": [("export", "000008")],
}

# What those blocks have written when their job is killed, beside and in the store.
WRITTEN = {
    "scan": ["store/graph/*/work/scan/000008-0000.*"],
    "build": [
        "store/graph/*/edges/part-000008.parquet",
        "store/graph/*/degrees/c/8",
        "store/graph/*/keys/c/8",
    ],
    "sketch-003": ["store/runs/*/sketch/c/8/2"],
    "factor-solve": ["store/runs/*/ritz/values.npy", "store/runs/*/ritz/coefficients.npy"],
    "vectors": ["store/runs/*/work/smooth-000/c/8/0"],
    "smooth-002": ["store/runs/*/work/smooth-002/c/8/0"],
    "smooth-mix": ["store/runs/*/work/smooth-mixed/c/8/0"],
    "smooth-balance": ["store/runs/*/work/balance.npy"],
    "embedding": ["store/runs/*/embedding/c/8/0", "store/runs/*/basis/c/8/0"],
    "fold": ["store-out/.new.parquet.figrl/*/parts/part-000001.parquet"],
    "export": ["store-out/.vectors.figrl/*/parts/part-000008.parquet"],
}


def local_cluster(workers):
    local = {"workers": workers, "threads_per_worker": 1, "memory_limit": "2GB"}
    return connect(ClusterConfig(local=local))


def key_of(stage):
    """Name of the folder of a stage's marks."""
    return stage["name"] + ("" if stage["step"] is None else f"-{stage['step']:03d}")


def blocks_of(report):
    """Blocks of each stage."""
    return {key_of(stage): stage["blocks"] for stage in report["stages"]}


@dataclass(frozen=True)
class Attempt:
    """A job that was killed at a block: the marks before it, those it made, those after it."""

    block: Block
    before: set[Block]
    committed: list[Block]
    after: set[Block]


@dataclass(frozen=True)
class Story:
    """A job that was killed in each of its stages and came to its end after all."""

    store: Path
    attempts: list[Attempt]
    done: set[Block]
    report: dict[str, Any]
    computed: list[Block]


def kill_in_each_stage(job, workload, complete, folder, blocks, *, workers=2):
    """Run a job to its end, in as many processes as it has stages, and one more."""
    store, faults = store_before(job, complete, folder), Faults(folder / "faults")
    cluster = folder / "cluster.yaml"
    threads = 2 // workers
    cluster.write_text(
        f"local: {{workers: {workers}, threads_per_worker: {threads}, memory_limit: 2GB}}\n"
    )
    command = [*workload.command(job, store), "--cluster", str(cluster), "--json"]
    attempts = []
    for block in blocks:
        before = marked_blocks(store)
        faults.plan("wait", [block])
        Figrl.start(command, faults.environment, folder).kill_when(
            lambda block=block: faults.happened(block), f"block {block} is reached"
        )
        attempts.append(Attempt(block, before, faults.take_log(), marked_blocks(store)))
        if block[1] != "all" or block[0] == "factor-solve":
            spoil(store, block[0])
    faults.plan("wait", [])
    done = marked_blocks(store)
    report = Figrl.start(command, faults.environment, folder).report()
    return Story(store, attempts, done, report, faults.take_log())


def store_before(job, complete, folder):
    """Copy a store on which all jobs ran, as it was before one of them did."""
    store = folder / "store"
    if job == "ingest":
        return store
    shutil.copytree(complete, store)
    if job == "embed":
        shutil.rmtree(store / "runs")
        (store / "current").unlink()
    return store


def spoil(store, stage):
    """Cut in half what the block in the middle has written, and leave litter beside it."""
    for pattern in WRITTEN.get(stage, []):
        paths = list(store.parent.glob(pattern))
        assert paths, f"{pattern} names no file"
        for path in paths:
            os.truncate(path, path.stat().st_size // 2)
            path.with_name(f".{path.name}.0badf00d.tmp").write_bytes(b"half")
