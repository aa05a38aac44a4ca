"""Submitted jobs: the submitter leaves, the worker of the driver dies, the job is resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import dask
import pytest

from figrl.engine.stage import StageResult
from figrl.engine.submitted import (
    ENDED,
    SupersededError,
    ask_to_cancel,
    list_jobs,
    new_job,
    next_lease,
    read_state,
    submitted_state,
    take_lease,
    unfinished_job,
)
from figrl.errors import BadInputError, FigrlError, GateError, StoreInUseError
from figrl.serve.embedding import open_store
from figrl.serve.status import store_status
from figrl.store.files import write_json
from figrl.store.jobs import last_jobs
from figrl.store.layout import store_paths
from figrl_jobs.main import main
from tests.dask_processes import start_scheduler, start_worker, stop
from tests.faults.test_nights import vectors_of
from tests.learn.test_accurate import planted_edges
from tests.nightly.test_reindex import Nights
from tests.waiting import LONG, wait_until

pytestmark = pytest.mark.timeout(900)


@contextmanager
def running_cluster(folder, workers):
    """The file of a cluster in processes of its own, and its scheduler."""
    folder.mkdir()
    scheduler, address = start_scheduler(folder)
    processes = [scheduler, *(start_worker(address) for _ in range(workers))]
    file = folder / "cluster.yaml"
    file.write_text(f"scheduler: {address}\n")
    try:
        yield file, scheduler
    finally:
        stop(processes)


@pytest.fixture
def cluster(tmp_path):
    """A cluster file of a scheduler with three workers."""
    with running_cluster(tmp_path / "cluster", 3) as (file, _):
        yield file


@pytest.fixture
def nights(client, tmp_path):
    # Blocks enough for a worker to be killed amid them.
    nights = Nights(tmp_path, client, ingest={"block_rows": 16})
    nights.write(1, planted_edges(3))
    return nights


def submit(nights, cluster):
    """Submit, and kill the submitter as soon as it has said so."""
    command = ["submit", "reindex", str(nights.config()), "--cluster", str(cluster), "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "figrl_jobs.main", *command], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = ""
        while "}" not in text:
            text += process.stdout.readline()
        process.kill()
    return json.loads(text)["id"]


def state(nights):
    """What is known of the last job; the store has no graph at first."""
    return list_jobs(store_paths(nights.store))[-1]


def test_the_worker_of_the_driver_dies(nights, cluster, tmp_path):
    job = submit(nights, cluster)
    wait_until(lambda: str(state(nights).get("stage", "")).startswith("sketch"), "it learns")
    worker = int(state(nights)["worker"].rpartition(":")[2])
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: state(nights)["state"] in ENDED, "it ends")
    ended = state(nights)
    assert ended["state"] == "done", ended
    assert ended["attempts"] == 2
    assert ended["id"] == job
    assert int(ended["worker"].rpartition(":")[2]) != worker
    published = vectors_of(nights.store)
    assert (open_store(nights.store).embedding().path / "log.jsonl").exists()
    nights.store.rename(tmp_path / "submitted")
    nights.run()
    assert vectors_of(nights.store) == published


def test_the_scheduler_dies_and_the_job_goes_on_elsewhere(nights, tmp_path, capsys):
    store = str(nights.store)
    with running_cluster(tmp_path / "first", 2) as (file, scheduler):
        job = submit(nights, file)
        wait_until(lambda: str(state(nights).get("stage", "")).startswith("sketch"), "it learns")
        assert main(["resume", "--store", store]) == 6
        assert f"Job {job} is running on" in capsys.readouterr().err
        scheduler.kill()
        wait_until(lambda: state(nights)["driver"] != "alive", "its driver ends")
    # The driver was killed with its worker, or it had the time to say why it ended.
    assert main(["status", "--store", store]) == 0
    shown = capsys.readouterr().out
    hint = f"figrl resume --store {store} {job}"
    lost = f"job {job}: reindex, lost: " in shown and hint in shown
    assert lost or f"job {job}: reindex, failed" in shown
    with running_cluster(tmp_path / "second", 2) as (file, _):
        assert main(["resume", "--store", store, job, "--cluster", str(file)]) == 0
        assert f"Resumed reindex as {job}." in capsys.readouterr().out
        wait_until(lambda: state(nights)["state"] in ENDED, "it ends")
        assert state(nights)["state"] == "done", state(nights)
        assert main(["resume", "--store", store, job, "--cluster", str(file)]) == 3
        assert "is done" in capsys.readouterr().err
    published = vectors_of(nights.store)
    nights.store.rename(tmp_path / "submitted")
    nights.run()
    assert vectors_of(nights.store) == published


def test_a_driver_whose_job_was_resumed_ends_and_leaves_its_state_alone(tmp_path):
    paths = store_paths(tmp_path)
    folder = new_job(paths, "reindex", {}, {}, "tcp://127.0.0.1:1")
    with submitted_state(folder, 1) as monitor:
        assert next_lease(folder) == 2
        with pytest.raises(StoreInUseError, match="Somebody else resumed"):
            take_lease(folder, 2)
        with pytest.raises(SupersededError):
            monitor.started(StageResult("scan", 1))
    assert read_state(folder)["state"] == "waiting"
    with pytest.raises(SupersededError), submitted_state(folder, 1):
        pass
    with submitted_state(folder, 2):
        assert read_state(folder)["state"] == "running"
    assert read_state(folder)["state"] == "done"


def test_a_cancelled_job_is_resumed(tmp_path):
    paths = store_paths(tmp_path)
    folder = new_job(paths, "reindex", {}, {}, "tcp://127.0.0.1:1")
    ask_to_cancel(paths, folder.name)
    with submitted_state(folder, 1) as monitor:
        monitor.started(StageResult("scan", 1))
    assert read_state(folder).items() >= {"state": "cancelled", "exit_code": 130}.items()
    assert unfinished_job(paths, None) == folder
    with submitted_state(folder, next_lease(folder)):
        pass
    assert read_state(folder)["state"] == "done"
    with pytest.raises(BadInputError, match="no submitted job that is not done"):
        unfinished_job(paths, None)


def test_a_job_is_cancelled_from_elsewhere(nights, cluster, capsys):
    job = submit(nights, cluster)
    wait_until(lambda: state(nights).get("stage"), "it works")
    assert main(["cancel", "--store", str(nights.store), job, "--wait", str(LONG), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "cancelled"
    assert not (nights.store / "current").exists()
    again = submit(nights, cluster)
    wait_until(lambda: state(nights)["state"] in ENDED, "it ends")
    assert state(nights)["state"] == "done"
    assert main(["status", "--store", str(nights.store)]) == 0
    shown = capsys.readouterr().out
    assert f"job {job}: reindex, cancelled" in shown
    told = next(one for one in last_jobs(nights.store, 9) if one["result"] != "published")
    assert (told["job"], told["result"], told["exit_code"]) == ("reindex", "cancelled", 130)
    log = (nights.store / "jobs" / job / "log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["event"] == "cancelled"
    assert f"job {again}: reindex, done" in shown
    assert main(["cancel", "--store", str(nights.store), "nothing"]) == 3
    assert "no job 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (GateError("gate x refused"), ("failed", 4)),
        (FigrlError("the cluster went away"), ("failed", 1)),
        (ZeroDivisionError("x"), ("failed", 1)),
        (KeyboardInterrupt("x"), ("interrupted", 130)),
    ],
    ids=str,
)
def test_an_error_is_reported_and_unexpected_ones_propagate_to_dask(tmp_path, error, reported):
    folder = new_job(store_paths(tmp_path), "reindex", {}, {}, "tcp://127.0.0.1:1")
    again = nullcontext() if reported[1] == 4 else pytest.raises(type(error))
    with again, submitted_state(folder, 1):
        raise error
    found = read_state(folder)
    assert (found["state"], found["exit_code"]) == reported
    assert str(error) in found["error"]


def test_submitting_needs_a_scheduler(nights, tmp_path, capsys):
    file = tmp_path / "local.yaml"
    file.write_text("local: {workers: 1}\n")
    assert main(["submit", "reindex", str(nights.config()), "--cluster", str(file)]) == 2
    assert "name its scheduler" in capsys.readouterr().err


def test_where_no_scheduler_answers_no_job_waits_for_ever(nights, tmp_path, capsys):
    store, file = str(nights.store), tmp_path / "nowhere.yaml"
    file.write_text("scheduler: tcp://127.0.0.1:1\n")
    words = ["submit", "reindex", str(nights.config()), "--cluster", str(file)]
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(words) == 5
        assert not nights.store.exists(), "no store is made for it"
        nights.run()
        capsys.readouterr()
        assert main(words) == 5
    assert "No Dask scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
    assert list_jobs(store_paths(store)) == []
    told = store_status(store)
    assert (told["last_attempt"]["result"], told["last_attempt"]["exit_code"]) == ("failed", 5)
    assert told["last_jobs"][-1].items() >= {"job": "reindex", "exit_code": 5}.items()
    assert told["history"][-1]["action"] == "failed"
    metrics = (nights.store / "metrics.prom").read_text()
    assert f'figrl_last_job_exit_code{{store="{store}"}} 5.0\n' in metrics
    assert main(["resume", "--store", store]) == 3
    assert "no submitted job that is not done" in capsys.readouterr().err


def test_resuming_where_no_scheduler_answers_takes_no_lease(tmp_path, capsys):
    file = tmp_path / "nowhere.yaml"
    file.write_text("scheduler: tcp://127.0.0.1:1\n")
    folder = new_job(store_paths(tmp_path), "embed", {"cluster": str(file)}, {}, "")
    with submitted_state(folder, 1):
        raise GateError("refused")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(["resume", "--store", str(tmp_path)]) == 5
    assert "No Dask scheduler answers" in capsys.readouterr().err
    assert read_state(folder)["state"] == "failed"
    assert not (folder / "lease-0002").exists()


def test_a_job_that_waits_for_long_says_how_it_goes_on(tmp_path, capsys):
    folder = new_job(store_paths(tmp_path), "embed", {}, {}, "tcp://127.0.0.1:1")
    assert main(["status", "--store", str(tmp_path)]) == 0
    assert f"job {folder.name}: embed, waiting\n" in capsys.readouterr().out
    state = read_state(folder)
    write_json(folder / "state.json", {**state, "beat": state["beat"] - 300})
    assert main(["status", "--store", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"job {folder.name}: embed, waiting for 5 min" in shown
    assert f"If its scheduler is gone: figrl resume --store {tmp_path} {folder.name}\n" in shown
