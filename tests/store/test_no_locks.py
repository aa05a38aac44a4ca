"""A file system that cannot lock files: writing is refused, reading works, nothing is deleted."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from figrl.errors import ConfigError
from figrl.store.layout import store_paths
from figrl.store.lease import Lease, not_in_use
from figrl_jobs.main import main
from tests.reference import write_edges


@pytest.fixture(params=[errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS], ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    def flock(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)
    return os.strerror(request.param)


def test_writing_is_refused_with_the_reason_and_what_to_do(no_locks, tmp_path):
    with pytest.raises(ConfigError) as caught, store_paths(tmp_path).locked("embed"):
        pytest.fail("nothing keeps another job out")
    assert caught.value.exit_code == 2
    for part in (str(tmp_path), f"cannot lock files ({no_locks})", "Put the store on one that can"):
        assert part in caught.value.message
    assert not (tmp_path / ".owner.json").exists()


def test_a_run_can_be_read_and_is_not_deleted(no_locks, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    os.utime(tmp_path / "manifest.json", (0, 0))
    lease = Lease(tmp_path)
    with not_in_use(tmp_path) as free:
        assert not free
    lease.release()
    with not_in_use(tmp_path) as free:
        assert not free


def test_a_job_says_so(client, no_locks, tmp_path, capsys):
    edges = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3)])
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"scheduler: {client.scheduler.address}\n")
    store = tmp_path / "store"
    words = ["ingest", str(edges), "--store", str(store), "--cluster", str(cluster)]
    assert main(words) == 2
    assert "cannot lock files" in capsys.readouterr().err
    assert not (store / "graph").exists()
