"""Stages of blocks: each is done once, few are in flight, and errors come through as they are."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

from figrl.engine.available import cluster_memory
from figrl.engine.block import execute_block
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig
from figrl.engine.runner import ClusterRunner, map_on_workers
from figrl.engine.stage import Block, Silent, Stage
from figrl.engine.worker import count_blocks_at_work
from figrl.errors import BadInputError, FigrlError, ResourceError
from figrl.store.files import read_json, write_json
from tests.staging import run_stage
from tests.waiting import LONG, wait_until


def _count(folder: Path, name: str) -> dict[str, object]:
    """Leave a file for each time that it is called."""
    (folder / f"{name}.{time.monotonic_ns()}").touch()
    return {"name": name, "value": 7}


def _calls(folder: Path, name: str) -> int:
    return len(list(folder.glob(f"{name}.*")))


def _blocks(folder: Path, count: int) -> list[Block]:
    return [Block(f"{i:03d}", (folder, f"{i:03d}")) for i in range(count)]


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_stage_does_each_block_once_and_marks_it(client, tmp_path, out):
    stage = Stage("count", _count, _blocks(out, 10))
    result = run_stage(client, tmp_path / "marks", stage)
    assert (result.blocks, result.reused, result.computed) == (10, 0, 10)
    assert result.total("value") == 70
    assert sorted(result.stats) == [f"{i:03d}" for i in range(10)]
    marks = sorted((tmp_path / "marks" / "count").iterdir())
    assert [mark.name for mark in marks] == [f"{i:03d}.json" for i in range(10)]
    assert read_json(marks[3]) == {"name": "003", "value": 7}
    assert all(_calls(out, f"{i:03d}") == 1 for i in range(10))


def test_a_stage_does_only_what_is_missing(client, tmp_path, out):
    marks = tmp_path / "marks" / "count"
    for key in ("001", "004", "no block of this stage"):
        write_json(marks / f"{key}.json", {"name": key, "value": 100})
    (marks / ".002.json.12345678.tmp").write_text("{}")
    result = run_stage(client, tmp_path / "marks", Stage("count", _count, _blocks(out, 6)))
    assert (result.blocks, result.reused, result.computed) == (6, 2, 4)
    assert result.total("value") == 4 * 7 + 2 * 100
    assert [_calls(out, f"{i:03d}") for i in range(6)] == [1, 0, 1, 1, 0, 1]


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe"])
def test_a_damaged_mark_is_no_mark(client, tmp_path, out, damage):
    mark = tmp_path / "marks" / "count" / "000.json"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(damage)
    stage = Stage("count", _count, _blocks(out, 2))
    assert run_stage(client, tmp_path / "marks", stage).reused == 0
    assert read_json(mark) == {"name": "000", "value": 7}
    assert run_stage(client, tmp_path / "marks", stage).reused == 2


def test_a_finished_block_that_runs_again_does_nothing(client, tmp_path, out):
    mark = tmp_path / "marks" / "count" / "x.json"
    arguments = (_count, (out, "x"), "x", mark)
    first = client.submit(execute_block, *arguments, "attempt", pure=False).result()
    again = [client.submit(execute_block, *arguments, "attempt", pure=False) for _ in range(4)]
    assert [future.result()[3] for future in again] == [first[3]] * 4
    assert first[0] == "x"
    assert _calls(out, "x") == 1


def _meet(folder: Path) -> dict[str, str]:
    """Wait until two processes are here."""
    (folder / f"{os.getpid()}.here").touch()
    wait_until(lambda: len(list(folder.glob("*.here"))) == 2, "two processes run the block")
    return {"done": "x"}


def test_a_block_that_runs_twice_at_once_is_done(client, tmp_path, out):
    mark = tmp_path / "marks" / "meet" / "x.json"
    arguments = (_meet, (out,), "x", mark)
    both = [
        client.submit(execute_block, *arguments, "attempt", pure=False, workers=[worker])
        for worker in client.scheduler_info()["workers"]
    ]
    stats = [future.result()[3] for future in both]
    assert stats == [{"done": "x"}] * 2
    assert read_json(mark) == {"done": "x"}
    assert list(mark.parent.iterdir()) == [mark]


def _held(folder: Path, name: str) -> dict[str, str]:
    """Wait for the file ``go``."""
    (folder / f"{name}.began").touch()
    wait_until((folder / "go").exists, "blocks may go on")
    (folder / f"{name}.ended").touch()
    return {"done": name}


def _states(stage: str, dask_scheduler: distributed.Scheduler) -> list[str]:
    """States of the tasks of a stage that the scheduler knows; other tests share the cluster."""
    tasks = dask_scheduler.tasks.values()
    return [task.state for task in tasks if str(task.key).startswith(f"{stage}-")]


class CountInFlight(Silent):
    """Counts the blocks that are submitted and not done, at each submission."""

    def __init__(self, client, monkeypatch):
        self.in_flight, self.seen, submit = 0, [], client.submit

        def counted(*args, **options):
            self.in_flight += 1
            self.seen.append(self.in_flight)
            return submit(*args, **options)

        monkeypatch.setattr(client, "submit", counted)

    def advanced(self, result):
        self.in_flight -= 1


def test_only_a_window_of_blocks_is_in_flight(client, tmp_path, out, monkeypatch):
    """Three for each of two threads; the scheduler forgets what is finished."""
    count = CountInFlight(client, monkeypatch)
    stage = Stage("held", _held, _blocks(out, 40))

    def tasks() -> int:
        return len(client.run_on_scheduler(_states, stage.name))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_stage, client, tmp_path / "marks", stage, count)
        try:
            wait_until(lambda: tasks() == 6 or running.done(), "the window is full")
        finally:
            (out / "go").touch()
        assert running.result().computed == 40
    assert count.seen == [1, 2, 3, 4, 5, *[6] * 35]
    wait_until(lambda: tasks() == 0, "the scheduler has forgotten the blocks")


def _fail(kind: type[Exception]) -> dict[str, object]:
    raise kind("row 7 of edges.csv: no such node. Remove it.")


@pytest.mark.parametrize("kind", [BadInputError, ResourceError, FigrlError, KeyError])
def test_the_error_of_a_block_comes_through_unchanged(client, tmp_path, kind):
    stage = Stage("fail", _fail, [Block("x", (kind,))])
    with pytest.raises(kind, match=r"row 7 of edges.csv: no such node. Remove it") as caught:
        run_stage(client, tmp_path / "marks", stage)
    assert type(caught.value) is kind
    assert not (tmp_path / "marks" / "fail").exists()


def _slow_or_fail(folder: Path, name: str) -> dict[str, str]:
    if name == "bad":
        wait_until((folder / "slow.began").exists, "the other block has begun")
        raise BadInputError("bad block")
    (folder / f"{name}.began").touch()
    time.sleep(1.5)
    (folder / f"{name}.ended").touch()
    return {"done": name}


def test_after_an_error_no_block_is_at_work(client, tmp_path, out):
    """Or it would write its mark into what the job begins anew, as ingest does for ids in text."""
    names = ["bad", "slow", *(f"later-{i}" for i in range(6))]
    blocks = [Block(name, (out, name)) for name in names]
    with pytest.raises(BadInputError, match="bad block"):
        run_stage(client, tmp_path / "marks", Stage("mixed", _slow_or_fail, blocks))
    began = {path.stem for path in out.glob("*.began")}
    ended = {path.stem for path in out.glob("*.ended")}
    assert "slow" in ended
    assert began == ended
    marks = {path.stem for path in (tmp_path / "marks" / "mixed").iterdir()}
    assert marks == ended
    # The error that was caught keeps its own task.
    wait_until(
        lambda: set(client.run_on_scheduler(_states, "mixed")) <= {"erred"}, "the rest is forgotten"
    )
    assert {path.stem for path in out.glob("*.began")} == began


def test_an_error_that_was_caught_keeps_nothing_of_its_caller(client):
    class Opened:
        """Something that a job has open, such as a run."""

    def fail() -> weakref.ref[Opened]:
        opened = Opened()
        with suppress(OSError, FigrlError):
            map_on_workers(client, os.stat, [("/nowhere",)])
        return weakref.ref(opened)

    opened = fail()
    wait_until(lambda: gc.collect() >= 0 and opened() is None, "it is closed")


def test_a_job_waits_for_blocks_of_one_that_was_killed(client, tmp_path, out):
    marks = tmp_path / "marks"
    arguments = (_held, (out, "x"), "x", marks / "held" / "x.json", "killed")
    left = client.submit(execute_block, *arguments, pure=False)
    wait_until((out / "x.began").exists, "the block has begun")
    assert sum(client.run(count_blocks_at_work, marks).values()) == 1
    assert sum(client.run(count_blocks_at_work, tmp_path / "other").values()) == 0
    ClusterRunner(client, tmp_path / "other")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(ClusterRunner, client, marks)
        try:
            with pytest.raises(TimeoutError):
                starting.result(timeout=0.5)
        finally:
            (out / "go").touch()
        job = starting.result()
    assert (out / "x.ended").exists()
    assert sum(client.run(count_blocks_at_work, marks).values()) == 0
    assert job.run_stage(Stage("held", _held, [Block("x", (out, "x"))])).reused == 1
    del left


def _die_once(flag: Path) -> dict[str, int]:
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return {"process": os.getpid()}
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _die() -> dict[str, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.fixture(scope="module")
def lonely():
    """A cluster of one worker, with a Dask that has little patience for workers that are away."""
    local = {"workers": 1, "threads_per_worker": 1, "memory_limit": "1GB"}
    settings = {
        "distributed.deploy.lost-worker-timeout": "200ms",
        "distributed.scheduler.allowed-failures": 1,
    }
    with dask.config.set(settings), connect(ClusterConfig(local=local)) as client:
        yield client


def test_the_last_worker_dies_and_comes_back(lonely, tmp_path):
    stage = Stage("die", _die_once, [Block("x", (tmp_path / "flag",))])
    result = run_stage(lonely, tmp_path / "marks", stage)
    assert result.computed == 1
    assert (tmp_path / "flag").exists()


def test_a_block_that_kills_its_workers_is_an_error_with_advice(lonely, tmp_path):
    stage = Stage("deadly", _die, [Block("x", ())])
    expected = r"stage 'deadly' was on a worker that died, several times over.*--memory-limit"
    with pytest.raises(ResourceError, match=expected) as caught:
        run_stage(lonely, tmp_path / "marks", stage)
    assert caught.value.exit_code == 5


def test_a_cluster_without_workers_is_not_waited_for_without_end(monkeypatch, tmp_path):
    monkeypatch.setattr("figrl.engine.fleet._REFRESH_SECONDS", 0.05)
    monkeypatch.setattr("figrl.engine.fleet._NO_WORKER_SECONDS", 0.2)
    arguments = {"processes": False, "n_workers": 0, "dashboard_address": "127.0.0.1:0"}
    section = {"class": "distributed.LocalCluster", "arguments": arguments}
    stage = Stage("waits", _die, [Block("x", ())])
    with (
        connect(ClusterConfig.model_validate({"custom": section})) as client,
        pytest.raises(ResourceError, match=r"had no worker for .* during stage 'waits'"),
    ):
        run_stage(client, tmp_path / "marks", stage)


def test_blocks_of_an_attempt_that_ended_are_not_waited_for_without_end(
    client, monkeypatch, tmp_path
):
    monkeypatch.setattr("figrl.engine.submit._LEFT_BLOCKS_SECONDS", 0.2)
    monkeypatch.setattr("figrl.engine.worker.count_blocks_at_work", _one)
    with pytest.raises(FigrlError, match=r"still at blocks .* Restart them"):
        ClusterRunner(client, tmp_path / "marks")


@pytest.mark.parametrize("lost", [1, 3])
def test_tasks_that_the_scheduler_loses_are_given_to_it_again(
    client, monkeypatch, tmp_path, out, lost
):
    """Where a task can run nowhere, all workers are idle and nothing ever comes."""
    submit, left = client.submit, ["x"] * lost

    def lose(*args, **options):
        if left:
            left.pop()
            options["workers"] = ["tcp://127.0.0.1:9"]
        return submit(*args, **options)

    monkeypatch.setattr(client, "submit", lose)
    monkeypatch.setattr("figrl.engine.submit._QUIET_SECONDS", 0.3)
    result = run_stage(client, tmp_path / "marks", Stage("count", _count, _blocks(out, 10)))
    assert (result.computed, result.total("value")) == (10, 70)
    assert all(_calls(out, f"{i:03d}") == 1 for i in range(10))


def test_a_block_that_takes_long_is_not_taken_for_lost(client, monkeypatch, tmp_path, out):
    monkeypatch.setattr("figrl.engine.submit._QUIET_SECONDS", 0.1)
    result = run_stage(client, tmp_path / "marks", Stage("slow", _slowly, _blocks(out, 3)))
    assert (result.computed, result.total("value")) == (3, 21)
    assert all(_calls(out, f"{i:03d}") == 1 for i in range(3))


def _slowly(folder: Path, name: str) -> dict[str, object]:
    time.sleep(1)
    return _count(folder, name)


def _one(_: Path) -> int:
    return 1


def _hold(megabytes: int) -> dict[str, int]:
    held = np.ones(megabytes << 20, np.uint8)
    return {"held": int(held[::4096].sum()), "written_bytes": 3, "read_bytes": 5}


def test_the_peak_memory_of_each_worker_is_measured(client, tmp_path):
    job = ClusterRunner(client, tmp_path / "marks")
    job.run_stage(Stage("small", _hold, [Block(f"{i}", (1,)) for i in range(8)]))
    job.run_stage(Stage("large", _hold, [Block("x", (300,))]))
    job.run_stage(Stage("small again", _hold, [Block(f"{i}", (1,)) for i in range(8)]))
    told = job.describe()
    peaks = {stage["name"]: stage["peak_bytes"] for stage in told["stages"]}
    assert peaks["large"] > 300 << 20
    assert peaks["large"] - peaks["small"] > 200 << 20
    # The peak is that of the stage, not of all that the process did before.
    assert peaks["large"] - peaks["small again"] > 200 << 20
    assert told["peak_worker_bytes"] == peaks["large"]
    assert max(worker["peak_bytes"] for worker in told["workers"]) == peaks["large"]
    assert len(told["workers"]) == len({worker["worker"] for worker in told["workers"]}) <= 2
    small = told["stages"][0]
    assert (small["blocks"], small["read_bytes"], small["written_bytes"]) == (8, 40, 24)


BLAS_THREADS = """
from threadpoolctl import threadpool_info
from figrl.engine.block import execute_block

def threads():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}

print(sorted(threads().values()), sorted(execute_block(threads, (), "x", None, "a")[3].values()))
"""


def test_blas_has_one_thread_in_a_block():
    """Also in a worker that Dask did not start with one."""
    wide = {f"{name}_NUM_THREADS": "2" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [sys.executable, "-c", BLAS_THREADS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **wide},
    )
    before, within = done.stdout.strip("[]\n").split("] [")
    assert "2" in before or os.cpu_count() == 1
    assert set(within.split(", ")) == {"1"}
    assert len(within) == len(before)


def _square(number: int) -> int:
    time.sleep(0.02 * (number % 3))
    return number * number


def test_map_once_keeps_the_order_and_leaves_nothing(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert map_on_workers(client, _square, [(i,) for i in range(25)]) == [i * i for i in range(25)]
    assert map_on_workers(client, _square, []) == []
    assert list(tmp_path.iterdir()) == []


def test_map_once_raises_the_error_of_an_item(client):
    with pytest.raises(BadInputError, match="row 7"):
        map_on_workers(client, _fail, [(BadInputError,)])


def test_cluster_memory_is_what_the_workers_offer(client):
    offer = cluster_memory(client, None)
    assert (offer.workers, offer.threads, offer.limit_bytes) == (2, 1, 4_000_000_000)
    assert offer.allowed_bytes == 3_000_000_000
    assert cluster_memory(client, 10**9).limit_bytes == 10**9
    assert cluster_memory(client, 10**13).limit_bytes == 4_000_000_000
    assert offer.describe() == "2 workers with up to 1 thread and 4 GB each"


class Recorder(Silent):
    def __init__(self):
        self.told = []

    def started(self, result):
        self.told.append(("started", result.reused))

    def advanced(self, result):
        self.told.append(("advanced", len(result.stats)))

    def finished(self, result):
        self.told.append(("finished", len(result.stats)))


def test_a_monitor_is_told_of_every_block(client, tmp_path, out):
    write_json(tmp_path / "marks" / "count" / "001.json", {"value": 1})
    recorder = Recorder()
    run_stage(client, tmp_path / "marks", Stage("count", _count, _blocks(out, 3)), recorder)
    assert recorder.told == [
        ("started", 1),
        ("advanced", 2),
        ("advanced", 3),
        ("finished", 3),
    ]


def test_threads_of_one_worker_are_counted_apart(tmp_path, monkeypatch):
    """Every thread of a process is counted, and forgotten when its block is done."""
    # This process is no worker: its BLAS is left alone.
    monkeypatch.setattr("figrl.engine.worker.WorkerState.limit_blas_threads", lambda _: None)
    mark, began, go = tmp_path / "marks" / "s" / "x.json", threading.Barrier(3), threading.Event()

    def wait() -> dict[str, int]:
        began.wait(LONG)
        go.wait(LONG)
        return {}

    threads = [
        threading.Thread(
            target=execute_block, args=(wait, (), name, mark.with_name(f"{name}.json"), "here")
        )
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    began.wait(LONG)
    assert count_blocks_at_work(tmp_path / "marks") == 2
    go.set()
    for thread in threads:
        thread.join(LONG)
    assert count_blocks_at_work(tmp_path / "marks") == 0
    assert sorted(path.name for path in mark.parent.iterdir()) == ["a.json", "b.json"]


_LATE_BLAS = """
from threadpoolctl import threadpool_info
from figrl.engine.worker import worker_state

with worker_state().block("ingest", None, "a"):
    pass
import scipy.linalg
with worker_state().block("embed", None, "b"):
    print([library["num_threads"] for library in threadpool_info()])
"""


def test_a_blas_that_is_loaded_after_the_first_block_has_one_thread_too() -> None:
    asked = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _LATE_BLAS]
    found = subprocess.run(command, env=asked, capture_output=True, text=True, check=True)
    # That of NumPy and that of SciPy.
    assert found.stdout == "[1, 1]\n"
