"""cluster.yaml: three kinds of cluster, and what is said when the file or the cluster is wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import dask
import distributed
import psutil
import pytest
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from figrl.engine.available import cluster_memory, planned_memory
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, LocalCluster, read_cluster_config
from figrl.engine.session import Session
from figrl.errors import ConfigError, ResourceError
from figrl.units import parse_memory
from tests.waiting import LONG

OWN_FILE = Path(__file__).parents[2] / "cluster.yaml"

# Workers in threads of this process, so that they start at once.
IN_PROCESS = {
    "processes": False,
    "n_workers": 0,
    "threads_per_worker": 1,
    "memory_limit": "1GB",
    "dashboard_address": "127.0.0.1:0",
}


def custom(**options):
    section = {"class": "distributed.LocalCluster", "arguments": IN_PROCESS} | options
    return ClusterConfig.model_validate({"custom": section})


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return path

    return written


def test_the_file_of_the_repository_says_what_holds_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own, none = read_cluster_config(OWN_FILE), read_cluster_config()
    assert own.kind == none.kind == "local"
    assert own.local == LocalCluster()
    assert planned_memory(own, None) == planned_memory(none, None)


def test_the_examples_in_the_file_of_the_repository_are_valid(write):
    lines = [line.removeprefix("# ") for line in OWN_FILE.read_text().splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith(("scheduler:", "custom:"))]
    kinds = []
    for start in starts:
        end = start + 1
        while end < len(lines) and lines[end].startswith(("  ", "security:")):
            end += 1
        kinds.append(read_cluster_config(write("\n".join(lines[start:end]))).kind)
    assert kinds == ["scheduler", "custom", "custom"]


def test_a_file_is_used_where_it_is_named(write):
    path = write("local: {workers: 3, threads_per_worker: 5, memory_limit: 700MB}")
    config = read_cluster_config(path)
    assert config.local == LocalCluster(workers=3, threads_per_worker=5, memory_limit="700MB")
    offer = planned_memory(config, None)
    assert (offer.workers, offer.threads, offer.limit_bytes) == (3, 5, 700_000_000)


def test_empty_files_and_sections_are_a_local_cluster(write):
    for text in ("", "# nothing", "local:", "local: {}"):
        assert read_cluster_config(write(text)).kind == "local"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("local: {}\nscheduler: tcp://127.0.0.1:1", ["exactly one of", "local, scheduler"]),
        ("local: {wrokers: 4}", ["there is no key 'local.wrokers'", "did you mean 'workers'?"]),
        ("lokal: {workers: 4}", ["there is no key 'lokal'", "did you mean 'local'?"]),
        ("local: {workers: 0}", ["local.workers", "greater than or equal to 1"]),
        ("local: {workers: many}", ["local.workers", "integer"]),
        ("local: {memory_limit: lots}", ["local.memory_limit", "'lots' is not a size of memory"]),
        ("local: {memory_limit: 0GB}", ["local.memory_limit", "too small"]),
        ("local: 7", ["local"]),
        ("scheduler:", ["scheduler", "nothing is given"]),
        ("scheduler: 127.0.0.1", ["scheduler", "missing port"]),
        ("scheduler: pigeon://127.0.0.1:1", ["scheduler", "pigeon", "tcp://127.0.0.1:8786"]),
        ("custom:", ["custom", "nothing is given"]),
        ("custom: {arguments: {}}", ["the key 'custom.class' is missing"]),
        (
            "custom: {class: a.B, adapt: {minimum: 1}}",
            ["the key 'custom.adapt.maximum' is missing"],
        ),
        ("custom: {class: a.B, scale: 0}", ["custom.scale", "greater than or equal to 1"]),
        ("- local", ["one of the sections local, scheduler or custom"]),
        ("1: 2", ["1", "strings"]),
        ("local: {workers", ["cannot be read"]),
    ],
)
def test_a_wrong_file_is_named_with_the_key(write, text, parts):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        read_cluster_config(path)
    assert caught.value.exit_code == 2
    for part in [str(path), *parts]:
        assert part in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.yaml cannot be read: .*No such file"):
        read_cluster_config(tmp_path / "no.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml cannot be read"):
        read_cluster_config(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5kB", 1500), ("77", 77)]
)
def test_sizes_of_memory(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["lots", "2 pounds", "-1GB", "0", "1e400GB", "0.1B"])
def test_sizes_that_are_none(text):
    with pytest.raises(ConfigError, match=r"write for example 2GB") as caught:
        parse_memory(text)
    assert text in caught.value.message


def test_a_local_cluster_uses_all_cores_and_no_more_memory_than_there_is():
    workers, threads = LocalCluster().shape()
    assert workers * threads <= CPU_COUNT < (workers + 1) * (threads + 1)
    assert LocalCluster(workers=1).shape() == (1, CPU_COUNT)
    assert LocalCluster(workers=2 * CPU_COUNT).shape() == (2 * CPU_COUNT, 1)
    assert LocalCluster(workers=2).limit_bytes(None) == MEMORY_LIMIT // 2
    assert LocalCluster(memory_limit="3GB").limit_bytes(None) == min(3 * 10**9, MEMORY_LIMIT)
    assert LocalCluster(memory_limit="3GB").limit_bytes(10**9) == 10**9
    # Dask grants no more either: a plan for more would be for another cluster.
    assert LocalCluster().limit_bytes(10**16) == MEMORY_LIMIT


def test_a_local_cluster_is_started_as_planned_and_ended():
    config = ClusterConfig(local={"workers": 1, "threads_per_worker": 2, "memory_limit": "3GB"})
    with connect(config, 900_000_000) as client:
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        workers = client.scheduler_info()["workers"]
        assert [worker["nthreads"] for worker in workers.values()] == [2]
        assert cluster_memory(client, 900_000_000) == planned_memory(config, 900_000_000)
        (process,) = client.run(_process).values()
        listening = [
            socket
            for pid in (process, psutil.Process().pid)
            for socket in psutil.Process(pid).net_connections("tcp")
            if socket.status == psutil.CONN_LISTEN
        ]
        assert {socket.laddr.ip for socket in listening} == {"127.0.0.1"}
    assert not psutil.pid_exists(process)


def _process() -> int:
    return psutil.Process().pid


def test_a_running_scheduler_is_used_and_left_alone(client):
    config = ClusterConfig(scheduler=client.scheduler.address)
    with connect(config) as connected:
        assert connected.nthreads() == client.nthreads()
        assert connected is not client
    assert len(client.nthreads()) == 2
    assert planned_memory(config, 10**9) == cluster_memory(client, 10**9)


def test_news_for_all_clients_in_the_answer_of_the_scheduler_are_no_error(client, monkeypatch):
    connected, tries = distributed.Client._ensure_connected, []

    async def disturbed(self, timeout=None):
        tries.append(self)
        assert len(tries) > 1, "two messages in one"
        await connected(self, timeout)

    monkeypatch.setattr(distributed.Client, "_ensure_connected", disturbed)
    with connect(ClusterConfig(scheduler=client.scheduler.address)) as used:
        assert used.status == "running"
    assert len(tries) >= 2


def test_a_scheduler_that_does_not_answer_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(ResourceError, match=f"No Dask scheduler answers at {address}") as caught,
        connect(ClusterConfig(scheduler=address)),
    ):
        pass
    assert caught.value.exit_code == 5


def test_a_custom_cluster_of_a_fixed_size():
    config = custom(scale=2)
    with connect(config) as client:
        client.wait_for_workers(2, timeout=LONG)
        assert list(client.nthreads().values()) == [1, 1]
        assert client.gather(client.map(abs, [-1, -2])) == [1, 2]
        cluster = client.cluster
    assert cluster.status.name == "closed"


def test_a_custom_cluster_that_follows_the_work_may_begin_with_nothing():
    with connect(custom(adapt={"minimum": 0, "maximum": 2})) as client:
        assert client.nthreads() == {}
        assert client.cluster._adaptive.maximum == 2
        offer = cluster_memory(client, None)
        assert (offer.threads, offer.limit_bytes) == (1, 10**9)
        assert 1 <= offer.workers <= 2


SCRIPT = """
import figrl

run = figrl.embed([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")], dim=2)
print(run.vectors.shape, run["a"].shape)
"""


@pytest.mark.parametrize("piped", [False, True])
def test_a_script_needs_no_guard_for_its_main_module(tmp_path, piped):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-" if piped else str(script)],
        input=SCRIPT if piped else None,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(4, 2) (2,)\n"


def test_a_limit_that_no_process_can_keep_is_refused_at_once():
    local = ClusterConfig(local=LocalCluster(workers=1))
    with (
        pytest.raises(ResourceError, match=r"takes 150 MB by itself, and its limit is 2 MB"),
        connect(local, 2_000_000),
    ):
        pass


def test_a_person_is_told_what_is_waited_for(monkeypatch):
    monkeypatch.setattr("figrl.engine.available._WORKER_WAIT_SECONDS", 0.3)
    monkeypatch.setattr("figrl.engine.available._TOLD_SECONDS", 0.1)
    told = []
    with connect(custom()) as client, pytest.raises(ResourceError, match="no worker that answers"):
        cluster_memory(client, None, told.append)
    assert told == ["Waiting for a worker of the Dask cluster, up to 0.3 s."]


def test_a_job_waits_for_workers_that_are_still_in_the_queue():
    waits = ClusterConfig.model_validate(
        custom(scale=2).model_dump(by_alias=True, exclude_none=True)
        | {"wait": {"workers": 2, "seconds": LONG}}
    )
    with connect(waits) as client:
        assert len(client.nthreads()) == 2


def test_a_job_does_not_wait_for_ever():
    section = {"class": "distributed.LocalCluster", "arguments": IN_PROCESS}
    config = {"custom": section, "wait": {"workers": 3, "seconds": 0.3}}
    with (
        pytest.raises(ResourceError, match=r"had 0 of 3 workers after 0\.3 s.*correct wait"),
        connect(ClusterConfig.model_validate(config)),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local: {workers: 2}\nwait: {workers: 2}", "a local one is started"),
        ("wait: {workers: 2}", "a local one is started"),
        ("scheduler: tcp://127.0.0.1:1\nwait: {workers: 0}", "wait.workers"),
        (
            "custom: {class: a.B, adapt: {minimum: 1, maximum: 4}}\nwait: {workers: 2}",
            "without work the cluster has only custom.adapt.minimum: 1",
        ),
    ],
)
def test_a_wait_that_could_not_end_well_is_refused(write, text, message):
    with pytest.raises(ConfigError, match=message):
        read_cluster_config(write(text))


def test_a_cluster_without_workers_is_an_error(monkeypatch):
    monkeypatch.setattr("figrl.engine.available._WORKER_WAIT_SECONDS", 0.2)
    with (
        connect(custom()) as client,
        pytest.raises(ResourceError, match=r"no worker that answers"),
    ):
        cluster_memory(client, None)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"class": "no_such_package.Cluster"}, r"'no_such_package.Cluster' cannot be imported"),
        ({"class": "distributed.NoCluster"}, r"'distributed.NoCluster' cannot be imported"),
        ({"class": "Cluster"}, r"'Cluster' cannot be imported"),
        ({"class": "collections.OrderedDict"}, r"is not a Dask cluster class"),
        ({"arguments": {"n_workers": "many"}}, r"does not start with these custom.arguments"),
        (
            {"arguments": IN_PROCESS | {"n_workers": 1, "n_wrokers": 1}},
            r"custom.arguments: .*'n_wrokers'",
        ),
    ],
)
# A LocalCluster that did not start leaves a coroutine behind that nobody awaits.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_custom_class_that_cannot_be_used_is_named(section, message):
    with pytest.raises(ConfigError, match=message) as caught, connect(custom(**section)):
        pass
    assert caught.value.exit_code == 2


def test_the_client_at_hand_is_the_one_given_or_the_current_one(client):
    with Session(client).open() as found:
        assert found is client
    with (
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
        other.as_current(),
        Session().open() as found,
    ):
        assert found is other
