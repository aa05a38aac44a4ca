"""The cluster file for SLURM, with commands of SLURM that start the jobs on this machine."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import dask
import pytest
import yaml

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import read_cluster_config
from figrl_jobs.main import main
from tests.learn.test_embed import random_edges
from tests.reference import write_edges

EXAMPLE = Path(__file__).parents[2] / "docs" / "deploy" / "slurm.yaml"

SBATCH = """#!/bin/sh
job=$(mktemp "$FAKE_SLURM/job-XXXXXX")
cp "$1" "$job"
setsid sh "$job" > "$job.out" 2>&1 < /dev/null &
echo $! >> "$FAKE_SLURM/started"
echo "Submitted batch job $!"
"""

SCANCEL = """#!/bin/sh
echo "$@" >> "$FAKE_SLURM/cancelled"
kill -TERM -- "-$1"
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue that has room for every job."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    with dask.config.set({"distributed.scheduler.dashboard.tasks.task-stream-length": 10}):
        yield folder
    for process in _numbers(folder / "started"):
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


def _numbers(path):
    return [int(word) for word in path.read_text().split()] if path.exists() else []


SIZES = {
    "of a fixed size": {"scale": 2},
    "that follows the work": {"adapt": {"minimum": 0, "maximum": 2}},
}


@pytest.fixture(params=SIZES)
def small(tmp_path, request):
    """The example for at most two workers on loopback."""
    content = yaml.safe_load(EXAMPLE.read_text())
    content["custom"]["arguments"] |= {
        "cores": 1,
        "memory": "1GB",
        "interface": "lo",
        "local_directory": str(tmp_path),
        "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    del content["custom"]["scale"]
    content["custom"] |= SIZES[request.param]
    content["wait"] = {"workers": 2, "seconds": 120}
    if "scale" not in SIZES[request.param]:
        del content["wait"]
    path = tmp_path / "slurm.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_job_runs_on_workers_of_the_queue_and_ends_them(queue, small, tmp_path, capsys):
    edges = write_edges(tmp_path / "edges.parquet", random_edges(5, 300, weighted=False))
    words = ["embed", str(edges), "--out", str(tmp_path / "vectors.parquet"), "--dim", "4"]
    assert main([*words, "--cluster", str(small), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == report["ingest"]["nodes"] > 250
    started = _numbers(queue / "started")
    assert 1 <= len(started) <= 2
    assert sorted(_numbers(queue / "cancelled")) == sorted(started)


def test_the_script_of_a_job_asks_for_what_the_example_says():
    config = read_cluster_config(EXAMPLE)
    assert (config.wait.workers, config.wait.seconds) == (8, 7200)
    arguments = {**config.custom.arguments, "interface": "lo"}
    del arguments["local_directory"]
    custom = config.custom.model_copy(update={"arguments": arguments, "scale": None})
    with connect(config.model_copy(update={"custom": custom, "wait": None})) as client:
        script = client.cluster.job_script()
    for line in ("-n 1", "--cpus-per-task=8", "--mem=60G", "-t 04:00:00", "--partition=compute"):
        assert f"#SBATCH {line}\n" in script
    assert "--nthreads 8 --memory-limit 59.60GiB" in script
