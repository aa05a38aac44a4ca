"""Strangers: other users of the machine, files that nobody named, certificates."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import dask
import psutil
import pytest
from distributed.security import Security

from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig, LocalCluster, read_cluster_config
from figrl.engine.security import TlsFiles, private_folder
from figrl.errors import ConfigError, ResourceError
from figrl_jobs.main import main
from tests.reference import write_edges
from tests.waiting import LONG, wait_until

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
NOBODY = 65534

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def key_modes():
    """Modes of each private key that was on the disk while a cluster started, and of its folder."""
    return []


@pytest.fixture(scope="module")
def others():
    """Where this process listened before: the cluster that all tests share has no certificates."""
    return set(listening(os.getpid()))


@pytest.fixture(scope="module")
def local(key_modes, others):
    """Client of a local cluster as figrl starts it."""
    load = ssl.SSLContext.load_cert_chain

    def watched(self, certfile, keyfile=None, password=None):
        key_modes.append(
            [stat.S_IMODE(p.stat().st_mode) for p in (Path(keyfile).parent, Path(keyfile))]
        )
        return load(self, certfile, keyfile, password)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_cert_chain", watched)
        config = ClusterConfig(local=LocalCluster(workers=1, threads_per_worker=1))
        with connect(config) as client:
            patch.undo()
            yield client


def processes_of(client):
    """This process, with the scheduler and a nanny, and that of the worker."""
    return [os.getpid(), *client.run(os.getpid).values()]


def listening(*pids):
    """Addresses at which processes listen."""
    found = {
        connection.laddr
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    return sorted(f"{address.ip}:{address.port}" for address in found)


def intrude(folder, addresses):
    """What a stranger did: folders that code of his created, and pages that he saw."""
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.intruder", str(NOBODY)]
    done = subprocess.run(
        [*command, str(folder), *addresses],
        capture_output=True,
        text=True,
        timeout=LONG,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["uid"] == NOBODY
    return len(list(folder.iterdir())), seen["pages"]


@as_root
def test_another_user_cannot_run_code_in_a_local_cluster(local, others, tmp_path):
    addresses = sorted({*listening(*processes_of(local))} - others)
    # Scheduler, nanny, worker, and the HTTP servers of scheduler and worker.
    assert len(addresses) == 5
    assert intrude(tmp_path / "intrusions", addresses) == (0, [])
    assert local.submit(abs, -1).result(timeout=LONG) == 1


@as_root
def test_the_same_stranger_runs_code_in_a_cluster_without_certificates(client, tmp_path):
    addresses = [client.scheduler.address, *client.nthreads()]
    code, _ = intrude(tmp_path / "intrusions", [a.removeprefix("tcp://") for a in addresses])
    assert code >= len(addresses)


def test_keys_of_a_local_cluster_are_nowhere_to_be_read(local, key_modes):
    assert local.scheduler.address.startswith("tls://127.0.0.1:")
    assert len(key_modes) > 0
    assert all(folder == 0o700 for folder, _ in key_modes)
    for pid in processes_of(local):
        process = psutil.Process(pid)
        assert "PRIVATE KEY" not in "".join([*process.cmdline(), *process.environ().values()])


def test_files_of_workers_are_in_a_private_folder(local):
    (used,) = local.run(lambda dask_worker: dask_worker.local_directory).values()
    assert Path(used).is_relative_to(private_folder())
    assert stat.S_IMODE(private_folder().stat().st_mode) == 0o700


@pytest.mark.parametrize("how", ["open to others", "link", "of another user"])
def test_a_folder_that_a_stranger_prepared_is_not_used(tmp_path, monkeypatch, how):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared = tmp_path / f"figrl-{os.getuid()}"
    if how == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        prepared.symlink_to(tmp_path / "elsewhere")
    else:
        prepared.mkdir(mode=0o700)
        if how == "open to others":
            prepared.chmod(0o777)
        elif os.getuid() == 0:
            os.chown(prepared, NOBODY, NOBODY)
        else:
            pytest.skip("only root can give a folder away")
    found = private_folder()
    assert found != prepared
    assert found.parent == tmp_path
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_cluster_file_that_was_not_named_runs_nothing(tmp_path, monkeypatch, capsys):
    """In the working folder; the job runs on a local cluster, and says so."""
    trap = tmp_path / "trap"
    content = json.dumps({"custom": {"class": "os.mkdir", "arguments": {"path": str(trap)}}})
    (tmp_path / "cluster.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert read_cluster_config() == ClusterConfig()
    edges = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3)])
    words = ["ingest", str(edges), "--store", str(tmp_path / "store")]
    assert main(words) == 0
    assert "cluster.yaml in this folder is not used" in capsys.readouterr().err
    # Named, it is refused, and still nothing is called.
    assert main([*words, "--cluster", "cluster.yaml"]) == 2
    assert "'os.mkdir' is not a Dask cluster class" in capsys.readouterr().err
    assert not trap.exists()


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """Folder of the cluster that docs/operations.md tells how to start, by its own commands."""
    folder = tmp_path_factory.mktemp("documented")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    text = OPERATIONS.read_text().split("## A cluster of your own")[1].replace("8786", port)
    certificate, commands = re.findall(r"```bash(?: no-run)?\n(.*?)```", text, re.DOTALL)
    (folder / "cluster.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    subprocess.run(["bash", "-ec", certificate], cwd=folder, check=True, capture_output=True)
    lines = commands.replace("\\\n", " ").replace("16GB", "1GB").splitlines()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *shlex.split(line)],
            cwd=folder,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for line in lines
    ]
    try:
        yield folder, [process.pid for process in started]
    finally:
        for process in started:
            # With the worker processes that it started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=LONG)


def test_the_documented_cluster_is_reached_with_its_certificates_alone(documented, tmp_path):
    folder, pids = documented
    config = read_cluster_config(folder / "cluster.yaml")
    assert config.scheduler is not None
    assert config.scheduler.startswith("tls://127.0.0.1:")
    with connect(config) as client:
        client.wait_for_workers(2, timeout=LONG)
        workers = client.run(os.getpid)
        assert all(address.startswith("tls://127.0.0.1:") for address in workers)
        assert client.submit(abs, -5).result(timeout=LONG) == 5
        addresses = listening(*pids, *workers.values())
    assert {address.split(":")[0] for address in addresses} == {"127.0.0.1"}
    assert stat.S_IMODE((folder / "figrl.key").stat().st_mode) == 0o600
    cert, key = temporary_pem()
    (tmp_path / "own.pem").write_text(cert + key)
    other = TlsFiles(ca_file=str(folder / "figrl.crt"), cert=str(tmp_path / "own.pem"))
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        pytest.raises(ResourceError, match=r"No Dask scheduler answers at tls://.*certificates"),
        connect(config.model_copy(update={"security": other})),
    ):
        pass


def test_a_job_on_the_documented_cluster_leaves_no_key_behind(documented, tmp_path, capsys):
    folder, _ = documented
    edges = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3), (3, 1)])
    store = tmp_path / "store"
    cluster = ["--cluster", str(folder / "cluster.yaml")]
    assert main(["submit", "ingest", str(edges), "--store", str(store), *cluster, "--json"]) == 0

    def ended():
        states = [json.loads(path.read_text()) for path in store.glob("jobs/*/state.json")]
        return [state for state in states if state["state"] in ("done", "failed")]

    wait_until(ended, "the submitted job has ended")
    assert ended()[0]["state"] == "done", ended()
    printed = capsys.readouterr()
    texts = [printed.out, printed.err, *(p.read_text() for p in store.rglob("*.json*"))]
    secret = (folder / "figrl.key").read_text().splitlines()[1]
    assert not any(secret in text or "PRIVATE KEY" in text for text in texts)


def temporary_pem():
    """A certificate and its key."""
    made = Security.temporary()
    return made.tls_client_cert, made.tls_client_key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheduler: tls://127.0.0.1:1", "needs certificates: add security"),
        (
            "scheduler: tcp://127.0.0.1:1\nsecurity: {ca_file: a, cert: b}",
            "security is for .*tls://",
        ),
        ("local: {}\nsecurity: {ca_file: a, cert: b}", "security is for .*tls://"),
        ("scheduler: tls://127.0.0.1:1\nsecurity: {cert: a}", "'security.ca_file' is missing"),
    ],
)
def test_certificates_are_given_where_they_are_used(tmp_path, text, message):
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_cluster_config(tmp_path / "cluster.yaml")


def test_certificates_that_cannot_be_used_are_named(tmp_path):
    cert, key = temporary_pem()
    (tmp_path / "a.crt").write_text(cert)
    (tmp_path / "a.key").write_text(key)
    (tmp_path / "other.key").write_text(temporary_pem()[1])
    (tmp_path / "locked.key").write_text(key.replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE"))
    for name, message in {
        "none.key": r"security\.key: .*none\.key cannot be read: No such file",
        "other.key": r"security: the certificates cannot be used \(.*MISMATCH",
        "locked.key": r"security\.key: the key in .*locked\.key has a password",
    }.items():
        content = {"ca_file": "a.crt", "cert": "a.crt", "key": name}
        file = tmp_path / "cluster.yaml"
        file.write_text(json.dumps({"scheduler": "tls://127.0.0.1:1", "security": content}))
        config = read_cluster_config(file)
        with pytest.raises(ConfigError, match=message), connect(config):
            pass
