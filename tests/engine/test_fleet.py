"""Workers that cannot take part in a job are left out and named, those that join later too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import distributed
import pytest

import figrl
from figrl.engine.available import cluster_memory
from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner, map_on_workers
from figrl.engine.stage import Block, Silent, Stage
from figrl.errors import BadInputError, ConfigError
from tests.dask_processes import start_scheduler, start_worker, stop
from tests.faults.workload import Workload, bits
from tests.staging import run_stage
from tests.waiting import wait_until

PLANNED = ClusterMemory(workers=1, threads=1, limit_bytes=1_500_000_000)

HIDE_FIGRL = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "figrl":
            raise ModuleNotFoundError("No module named 'figrl'", name="figrl")

sys.meta_path.insert(0, Hidden())
"""


class Notes(Silent):
    def __init__(self, began=None):
        self.notes, self.began = [], began

    def note(self, text):
        self.notes.append(text)

    def advanced(self, result):
        if self.began is not None:
            self.began()
            self.began = None


def without_figrl(folder, _store):
    (folder / "sitecustomize.py").write_text(HIDE_FIGRL)
    return {"path": folder}


def with_other_code(folder, _store):
    shutil.copytree(Path(figrl.__file__).parent, folder / "figrl")
    with (folder / "figrl" / "units.py").open("a") as file:
        file.write("# Changed.\n")
    return {"path": folder}


def with_other_libraries(folder, _store):
    made = folder / "numba-0.1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: numba\nVersion: 0.1\n")
    return {"path": folder}


def with_less_memory(_folder, _store):
    return {"memory": "500MB"}


def with_more_threads(_folder, _store):
    return {"threads": 3}


def with_another_store(_folder, store):
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"]).returncode != 0:
        pytest.skip("no mount namespaces here")
    return {"prefix": [*own, "sh", "-c", f'mount -t tmpfs none {store} && exec "$@"', "sh"]}


def with_a_store_that_is_read_only(_folder, store):
    prefix = with_another_store(_folder, store)["prefix"]
    mount = f"mount --bind {store} {store} && mount -o remount,bind,ro {store}"
    return {"prefix": [*prefix[:-2], f'{mount} && exec "$@"', "sh"]}


UNFIT = {
    without_figrl: r"it has no figrl: install figrl \S+ there",
    with_other_code: r"it has code of figrl \w+, where this job has \w+: install the same",
    with_other_libraries: r"it has numba 0\.1, where this job has [\d.]+: install the same",
    with_less_memory: r"it has 500 MB of memory, and the plan counts on 1\.5 GB",
    with_more_threads: r"it has 3 threads, and the plan counts on no more than 1",
    with_another_store: r"it cannot read and write \S+ \(No such file or directory\)",
    with_a_store_that_is_read_only: r"it cannot read and write \S+ \(Read-only file system\)",
}


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    process, address = start_scheduler(tmp_path_factory.mktemp("scheduler"))
    try:
        yield address
    finally:
        stop([process])


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr("figrl.engine.fleet._REFRESH_SECONDS", 0.3)


@pytest.fixture
def start(scheduler):
    """Starts workers that are called by names and waits for them; they end with the test."""
    processes = []
    with distributed.Client(scheduler, set_as_default=False) as client:

        def start(name, **options):
            processes.append(start_worker(scheduler, name=name, **options))
            there = [worker["name"] for worker in client.scheduler_info()["workers"].values()]
            wait_until(lambda: name in names(client), f"{name} is there, beside {there}")
            return address_of(client, name)

        try:
            yield client, start
        finally:
            stop(processes)
            wait_until(lambda: not names(client), "the workers are gone")


def names(client):
    return {worker["name"]: address for address, worker in workers(client).items()}


def workers(client):
    return client.scheduler_info(n_workers=-1)["workers"]


def address_of(client, name):
    return names(client)[name]


def _whose(seconds):
    time.sleep(seconds)
    return {"process": os.getpid()}


def naps(count, seconds):
    return Stage("naps", _whose, [Block(f"{i:02d}", (seconds,)) for i in range(count)])


def done_by(result):
    return {stats["process"] for stats in result.stats.values()}


@pytest.mark.parametrize("unfit", UNFIT, ids=lambda unfit: unfit.__name__)
def test_a_worker_that_cannot_take_part_is_left_out_and_named(start, tmp_path, unfit):
    client, start_one = start
    folder, store = tmp_path / "modules", tmp_path / "store"
    folder.mkdir()
    store.mkdir()
    good = start_one("good")
    options = unfit(folder, store)
    notes = Notes()
    runner = ClusterRunner(client, store / "marks", notes, PLANNED)
    # It joins when the job is at work: the job must neither fail nor give it a block.
    bad = start_one("bad", **options)
    result = runner.run_stage(naps(40, 0.05))
    assert result.computed == 40
    assert done_by(result) == {client.run(os.getpid, workers=[good])[good]}
    (note,) = notes.notes
    assert note.startswith(f"Worker {bad} is left out: ")
    assert_matches(note, UNFIT[unfit])
    # Nothing is left of what the workers were looked at with.
    assert [path.name for path in (store / "marks").iterdir()] == ["naps"]


def assert_matches(text, pattern):
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(text)


def test_a_worker_that_joins_later_gets_work(start, tmp_path):
    client, start_one = start
    start_one("first")
    later = Notes(began=lambda: start_one("second"))
    result = ClusterRunner(client, tmp_path / "marks", later, PLANNED).run_stage(naps(100, 0.1))
    assert done_by(result) == set(client.run(os.getpid).values())
    assert len(done_by(result)) == 2
    assert not later.notes


def test_a_worker_that_is_lost_is_named(start, tmp_path):
    client, start_one = start
    start_one("stays")
    lost = start_one("dies")
    process = client.run(os.getpid, workers=[lost])[lost]
    notes = Notes(began=lambda: os.kill(process, signal.SIGKILL))
    result = ClusterRunner(client, tmp_path / "marks", notes, PLANNED).run_stage(naps(60, 0.1))
    assert result.computed == 60
    assert notes.notes == [f"Worker lost: {lost}. What it was at goes to others."]


def test_no_worker_that_can_take_part_is_an_error(start, tmp_path):
    client, start_one = start
    bad = start_one("bad", memory="500MB")
    with pytest.raises(ConfigError, match=rf"No worker .* can take part\. {bad}: it has 500 MB"):
        ClusterRunner(client, tmp_path / "marks", planned=PLANNED)
    assert map_on_workers(client, _whose, [(0,)])[0]["process"] > 0


def test_a_cluster_of_workers_without_figrl_is_told_why(start, tmp_path):
    client, start_one = start
    folder = tmp_path / "modules"
    folder.mkdir()
    start_one("bad", **without_figrl(folder, None))
    with pytest.raises(ConfigError, match=r"No worker .*: it has no figrl: install figrl"):
        cluster_memory(client, None)


def test_a_worker_with_less_memory_than_others_is_named(start):
    client, start_one = start
    start_one("large")
    small = start_one("small", memory="500MB")
    offered = cluster_memory(client, None)
    assert (offered.workers, offered.limit_bytes, offered.smallest) == (2, 500_000_000, small)
    assert offered.remedy("1GB").startswith(f"Worker {small} has less memory than the others: give")
    # With a lower limit of the job, it is not that worker that limits it.
    assert cluster_memory(client, 400_000_000).smallest == ""
    assert cluster_memory(client, 400_000_000).remedy("1GB").startswith("Raise --memory-limit to 1")


def _refuse(_):
    raise BadInputError("row 7 of a file")


def test_an_error_of_figrl_is_not_logged_by_the_worker(start, tmp_path):
    client, start_one = start
    address = start_one("good")
    before = len(client.get_worker_logs(workers=[address])[address])
    with pytest.raises(BadInputError, match="row 7 of a file"):
        run_stage(client, tmp_path / "marks", Stage("refuses", _refuse, [Block("x", (1,))]))
    logs = client.get_worker_logs(workers=[address])[address][: -before or None]
    assert not [text for _, text in logs if "Compute Failed" in text]


def test_a_whole_job_beside_workers_that_cannot_take_part(start, client, tmp_path):
    workload = Workload.write(tmp_path)
    there, here = tmp_path / "there", tmp_path / "here"
    for job in ("ingest", "embed"):
        workload.run(job, here, client)
    connected, start_one = start
    start_one("good")
    for unfit in (without_figrl, with_other_code):
        folder = tmp_path / unfit.__name__
        folder.mkdir()
        start_one(unfit.__name__, **unfit(folder, there))
    for job in ("ingest", "embed"):
        workload.run(job, there, connected)
        assert bits(there, job) == bits(here, job)
    assert len(connected.scheduler_info()["workers"]) == 3
