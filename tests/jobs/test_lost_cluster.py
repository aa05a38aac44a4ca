"""A cluster that does not start, or goes away amid a job: one line of figrl, and no other."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.dask_processes import start_scheduler, start_worker, stop
from tests.learn.test_embed import random_edges
from tests.reference import write_edges
from tests.waiting import LONG, wait_until


def start_job(words, **environment):
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "figrl_jobs", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_workers_that_do_not_start_end_with_5_and_the_reason(tmp_path):
    edges = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3)])
    words = ["ingest", edges, "--store", tmp_path / "store"]
    with start_job(words, DASK_DISTRIBUTED__WORKER__PRELOAD="no_such_module") as process:
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out) == (5, "")
    assert err.startswith("error: The workers of the local cluster do not start (ModuleNotFound")
    assert "No module named 'no_such_module')" in err
    assert "Correct that, or use fewer workers" in err
    assert err.count("\n") == 1, err


def test_a_scheduler_that_dies_amid_a_job_is_told_in_one_line(tmp_path):
    edges = write_edges(tmp_path / "edges.parquet", random_edges(3, 6_000, weighted=False))
    scheduler, address = start_scheduler(tmp_path)
    processes = [scheduler, start_worker(address)]
    cluster, store = tmp_path / "cluster.yaml", tmp_path / "store"
    cluster.write_text(f"scheduler: {address}\nwait: {{workers: 1, seconds: {LONG}}}\n")
    words = ["ingest", edges, "--store", store, "--block-rows", 16, "--cluster", cluster]
    try:
        with start_job(words) as process:
            wait_until(lambda: list(store.glob("graph/*/work/marks/*/*.json")), "it is at work")
            scheduler.kill()
            out, err = process.communicate(timeout=LONG)
    finally:
        stop(processes)
    assert (process.returncode, out) == (1, "")
    where, stopped, error = err.splitlines()
    assert where.startswith("Running on 1 worker at ")
    assert stopped.startswith("ingest: stopped in ")
    assert error.startswith("error: The Dask cluster went away during stage '")
    assert error.endswith("Finished blocks are kept; run the same command again to go on.")
