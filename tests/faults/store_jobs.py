"""Jobs on a small store, what they give when nothing goes wrong, and ways in which it does."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa

from figrl import embed, export, fold_in, ingest
from figrl.engine.session import Session
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.nightly.config import ReindexConfig, Source
from figrl.nightly.gates import Gates
from figrl.nightly.reindex import run_reindex
from figrl.serve.embedding import Embedding, open_store
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.overlay_update import run_fold_publish
from figrl.serve.publish import KeepRuns, pin, retire, roll_back
from figrl.store.layout import store_paths
from tests.faults.every_call import Calls, draw_nothing, watch_nothing
from tests.reference import write_edges

GRAPHS = {0: 24, 1: 40, 2: 60}
"""Nodes of each graph."""

ARRIVALS = range(3)
NEW = 1000
"""Ids of new nodes begin here."""

OPTIONS: tuple[dict[str, Any], ...] = (
    {"dim": 4, "width": 4, "depth": 2, "smoothing": 2},
    {"dim": 4, "preset": "paper", "sketch_size": 8, "seed": 1},
)

NIGHTS_KEPT = 3
"""Publications that a night keeps."""

Vectors = dict[int, bytes]
"""Vectors by id."""

Job = partial[Any]
"""A function of this file with all arguments but the last, the client."""

_SECONDS = 300.0


@dataclass(frozen=True)
class Place:
    """Folders of the input, and of a store with its outputs."""

    inputs: Path
    folder: Path

    @property
    def store(self) -> Path:
        """Folder of the store."""
        return self.folder / "store"

    def graph(self, number: int) -> Path:
        """File of the edges of a graph."""
        return self.inputs / f"graph-{number}.parquet"

    def arrival(self, number: int) -> Path:
        """File of the edges of some new nodes."""
        return self.inputs / f"new-{number}.parquet"


def write_inputs(folder: Path) -> None:
    """Write the edges of all graphs and all new nodes."""
    place = Place(folder, folder)
    for number, nodes in GRAPHS.items():
        rng = np.random.default_rng(number)
        ring = [(i, (i + 1) % nodes) for i in range(nodes)]
        chords = rng.integers(0, nodes, (nodes, 2)).tolist()
        write_edges(place.graph(number), [*ring, *((a, b) for a, b in chords if a != b)])
    for number in ARRIVALS:
        edges = [(node, (7 * node + k) % GRAPHS[0]) for node in new_nodes([number]) for k in (0, 1)]
        write_edges(place.arrival(number), edges)


def new_nodes(arrivals: Iterable[int]) -> set[int]:
    """Ids of the nodes of some arrivals."""
    return {NEW + 5 * number + k for number in arrivals for k in range(5)}


# A job is one of these with all arguments but the last.


def ingest_graph(place: Place, number: int, client: distributed.Client) -> None:
    """Ingest a graph, which the next run is learnt from."""
    ingest(place.graph(number), store=place.store, client=client, block_rows=16)


def learn(place: Place, options: int, publish: bool, client: distributed.Client) -> None:
    """Learn a run of the graph that was ingested last."""
    embed(place.store, publish=publish, client=client, **OPTIONS[options])


def run_night(place: Place, number: int, options: int, client: distributed.Client) -> None:
    """Bring the published run up to date with a graph, through gates that let all pass."""
    config = ReindexConfig(
        store=str(place.store),
        sources=(Source(path=str(place.graph(number))),),
        ingest=IngestOptions(block_rows=16),
        embed=EmbedOptions(**OPTIONS[options]),
        align=False,
        gates=Gates(**dict.fromkeys(Gates.model_fields)),
        keep=KeepRuns(runs=NIGHTS_KEPT),
    )
    run_reindex(config, Session(client), publish_anyway=True)


def publish_again(place: Place, run: str | None, _: distributed.Client) -> None:
    """Publish a run that is there; by default the one before."""
    roll_back(place.store, run)


def set_pin(place: Place, run: str, pinned: bool, _: distributed.Client) -> None:
    """Protect a run from deletion, or no longer."""
    pin(place.store, run, pinned=pinned)


def retire_runs(place: Place, keep: KeepRuns, _: distributed.Client) -> None:
    """Delete what is no longer kept."""
    paths = store_paths(place.store)
    with paths.locked("retire") as lock:
        retire(paths, keep, lock)


def serve_arrival(place: Place, number: int, client: distributed.Client) -> None:
    """Serve new nodes with the published run."""
    run_fold_publish(place.store, place.arrival(number), FoldInOptions(), Session(client))


def write_arrival(place: Place, number: int, out: str, client: distributed.Client) -> None:
    """Write the vectors of new nodes beside the store."""
    edges, path = place.arrival(number), place.folder / out
    fold_in(place.store, edges, out=path, overwrite=True, client=client)


def write_run(place: Place, run: str, out: str, client: distributed.Client) -> None:
    """Write all vectors of a run beside the store."""
    export(place.store, run=run, out=place.folder / out, overwrite=True, client=client)


def table_vectors(table: pa.Table) -> Vectors:
    """Vectors of a table by id."""
    rows = np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float32)
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids) == len(rows)
    return {node: row.tobytes() for node, row in zip(ids, rows, strict=True)}


def run_vectors(run: Embedding) -> Vectors:
    """Vectors that a run serves, by id."""
    ids = run.ids_at(np.arange(len(run)))
    rows = run.lookup(ids)
    return {node: row.tobytes() for node, row in zip(ids, rows, strict=True)}


def in_process_client(folder: Path) -> distributed.Client:
    """A cluster of two threads in this process."""
    return distributed.Client(
        processes=False,
        n_workers=1,
        threads_per_worker=2,
        dashboard_address="127.0.0.1:0",
        local_directory=str(folder / "dask"),
        silence_logs=logging.CRITICAL,
    )


@dataclass
class Expected:
    """Results of jobs on stores of their own, where nothing went wrong."""

    folder: Path
    client: distributed.Client
    graphs: dict[str, int] = field(default_factory=dict)
    """Numbers of the graphs by their names in a store."""

    runs: dict[tuple[int, int], str] = field(default_factory=dict)
    """Names of the runs by graph and options."""

    _known: dict[tuple[int, int, frozenset[int]], Vectors] = field(default_factory=dict)

    def learn_all(self) -> None:
        """Learn every run once."""
        for graph in GRAPHS:
            for options in range(len(OPTIONS)):
                self.vectors(graph, options, frozenset())

    def vectors(self, graph: int, options: int, served: frozenset[int]) -> Vectors:
        """Vectors of a run that serves some arrivals."""
        key = graph, options, served
        if key not in self._known:
            name = f"{graph}-{options}-{'-'.join(map(str, sorted(served)))}"
            place = Place(self.folder / "inputs", self.folder / "clean" / name)
            ingest_graph(place, graph, self.client)
            learn(place, options, True, self.client)
            for number in sorted(served):
                serve_arrival(place, number, self.client)
            run = open_store(place.store).embedding()
            self.graphs[run.graph.version], self.runs[graph, options] = graph, run.run
            self._known[key] = run_vectors(run)
        return self._known[key]


def run_killed(job: Job, place: Place, scratch: Path, touches: int) -> bool:
    """Run a job in a process that is killed at a touch of the disk; whether it was done before."""
    context = multiprocessing.get_context("forkserver")
    # What is loaded here, the children need not load.
    context.set_forkserver_preload([name for name in sys.modules if name != "__main__"])
    child = context.Process(target=_run_and_die, args=(job, place, scratch, touches))
    child.start()
    child.join(_SECONDS)
    if child.exitcode is None:
        child.kill()
        raise AssertionError(f"{job} hangs")
    assert child.exitcode in (0, -signal.SIGKILL), f"{job} ends with {child.exitcode}"
    return child.exitcode == 0


def _run_and_die(job: Job, place: Place, scratch: Path, touches: int) -> None:
    code = 1
    try:
        draw_nothing()
        watch_nothing()
        Calls(place.folder, "is killed", touches).install()
        job(in_process_client(scratch))
        code = 0
    except Exception as error:
        sys.stderr.write(f"{job}: {error!r}\n")
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)
