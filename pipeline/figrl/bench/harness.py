"""The benchmark harness: graphs to measure on, and functions that run in processes of their own."""

from __future__ import annotations

import tempfile
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, LocalCluster
from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.study.planted import PlantedGraph
from figrl.study.process import Measured, measure_in_process

Measure = Callable[..., Mapping[str, Any] | None]


def run_both(ours: Measure, theirs: Measure, **arguments: Any) -> tuple[Measured, Measured]:
    """Call both functions with the same arguments, one after the other, each in a process."""
    return measure_in_process(ours, **arguments), measure_in_process(theirs, **arguments)


@contextmanager
def local_session(limit_bytes: int | None = None, **cluster: Any) -> Iterator[Session]:
    """Start a local cluster."""
    config = ClusterConfig(local=LocalCluster(**cluster))
    with connect(config, limit_bytes) as client:
        yield Session(client, limit_bytes)


@contextmanager
def scratch() -> Iterator[str]:
    """Yield a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        yield folder


@contextmanager
def real_store(data: Path, name: str) -> Iterator[str]:
    """Ingest a graph of the data folder into a temporary store."""
    with scratch() as folder:
        measure_in_process(ingest_edges, edges=str(data / f"{name}.txt.gz"), store=folder)
        yield folder


@contextmanager
def planted_store(edges: int, *, per_node: int = 10) -> Iterator[str]:
    """Ingest a planted graph into a temporary store."""
    with scratch() as folder:
        measure_in_process(write_planted, folder=folder, edges=edges, per_node=per_node)
        store = f"{folder}/store"
        measure_in_process(ingest_edges, edges=f"{folder}/edges/known", store=store)
        yield store


def ingest_edges(edges: str, store: str, limit_bytes: int | None = None) -> dict[str, Any]:
    """Ingest a graph, cluster included."""
    with local_session(limit_bytes) as session:
        report = run_ingest(edges, store, IngestOptions(), session)
    return {"nodes": report["nodes"], "edges": report["edges"]}


def write_planted(
    folder: str, edges: int, *, string_ids: bool = False, per_node: int = 10
) -> dict[str, int]:
    """Write a graph with a heavy tail to ``folder/edges/known``, as eight Parquet files."""
    graph = PlantedGraph(
        nodes=edges // per_node,
        communities=100,
        edges_per_node=per_node,
        tail=0.4,
        new_nodes=1,
        ids="string" if string_ids else "int",
    )
    return {"rows": graph.write_partitions(Path(folder) / "edges", 8)}


def fastest(call: Callable[[], object], repeats: int = 3) -> float:
    """Least seconds of several calls, after a first one that compiles."""
    call()
    return min(timeit.repeat(call, number=1, repeat=repeats))
