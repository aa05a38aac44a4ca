"""A scheduler and workers in processes of their own: the bits of a local cluster."""

from __future__ import annotations

import json
import os
import time

import distributed
import pytest

from figrl import embed, export, fold_in, ingest, open_store
from figrl.engine.stage import Block, Silent, Stage
from figrl.errors import FigrlError
from figrl_jobs.main import main
from tests.dask_processes import start_scheduler, start_worker, stop
from tests.faults.workload import EMBED, INGEST, JOBS, Workload, bits, output
from tests.staging import run_stage
from tests.waiting import LONG

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Address of a scheduler with two workers; three processes beside this one."""
    scheduler, address = start_scheduler(tmp_path_factory.mktemp("scheduler"))
    workers = [start_worker(address) for _ in range(2)]
    try:
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=LONG)
            found = client.run(os.getpid)
        assert sorted(found.values()) == sorted(worker.pid for worker in workers)
        yield address
    finally:
        stop([*workers, scheduler])


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    return Workload.write(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def local(workload, client, tmp_path_factory):
    """Bits of all jobs on the local cluster of the tests."""
    store = tmp_path_factory.mktemp("local") / "store"
    for job in JOBS:
        workload.run(job, store, client)
    return {job: bits(store, job) for job in JOBS}


def test_commands_on_a_running_scheduler(address, workload, local, tmp_path, capsys):
    cluster, store = tmp_path / "cluster.yaml", tmp_path / "store"
    cluster.write_text(f"scheduler: {address}\n")
    for job in JOBS:
        command = [*workload.command(job, store), "--cluster", str(cluster), "--json"]
        assert main(command) == 0
        report = json.loads(capsys.readouterr().out)
        assert len(report["workers"]) == 2
        assert bits(store, job) == local[job]


def test_calls_with_a_client(address, workload, local, tmp_path):
    store = tmp_path / "store"
    with distributed.Client(address, set_as_default=False) as client:
        graph = ingest(workload.edges, store=store, client=client, **INGEST.model_dump())
        run = embed(store, client=client, **EMBED.model_dump())
        new = fold_in(store, workload.new_edges, out=output(store, "fold-in"), client=client)
        export(store, out=output(store, "export"), client=client)
    assert {job: bits(store, job) for job in JOBS} == local
    assert open_store(store).graph == graph
    assert open_store(store).embedding().run == run.run
    assert new.counts["nodes_folded_in"] == new.table().num_rows == 70_000


def test_a_current_client_is_found(address, workload, local, tmp_path):
    store = tmp_path / "store"
    with distributed.Client(address, set_as_default=False) as client, client.as_current():
        ingest(workload.edges, store=store, **INGEST.model_dump())
        embed(store, **EMBED.model_dump())
    assert bits(store, "embed") == local["embed"]


def _nap(seconds):
    time.sleep(seconds)
    return {}


def test_the_scheduler_goes_away(tmp_path):
    scheduler, address = start_scheduler(tmp_path)
    worker = start_worker(address)
    try:
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=LONG)

            class KillScheduler(Silent):
                def advanced(self, result):
                    scheduler.kill()

            blocks = [Block(f"{i}", (0.2,)) for i in range(20)]
            stage = Stage("naps", _nap, blocks)
            expected = r"cluster went away during stage 'naps'.*Finished blocks are kept"
            with pytest.raises(FigrlError, match=expected) as caught:
                run_stage(client, tmp_path / "marks", stage, KillScheduler())
            assert caught.value.exit_code == 1
            assert 1 <= len(list((tmp_path / "marks" / "naps").glob("*.json"))) < 20
    finally:
        stop([worker, scheduler])
