"""Workers that die, in every stage and in every way to share products out: the same bits."""

from __future__ import annotations

from dataclasses import replace

import dask
import pytest

from figrl import open_store
from figrl.ingestion.build import IngestSizes
from figrl.learn.setup import Tiling
from tests.cutting import cut_products
from tests.faults.processes import PRELOAD, Faults
from tests.faults.stories import (
    MIDDLE,
    blocks_of,
    local_cluster,
    store_before,
)
from tests.faults.workload import JOBS, NODES, bits

# The story of a job starts it many times.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four workers with the faults that are planned for them: none yet."""
    faults = Faults(tmp_path_factory.mktemp("faults"))
    faults.plan("die", [])
    settings = {
        "distributed.worker.preload": [str(PRELOAD)],
        # How long Dask calls a worker that has died with the result of a block that it finished.
        "distributed.comm.timeouts.connect": "5s",
    }
    with pytest.MonkeyPatch.context() as patch, dask.config.set(settings):
        patch.setenv("FIGRL_TEST_FAULTS", str(faults.folder))
        with local_cluster(4) as client:
            client.wait_for_workers(4)
            yield client, faults


def test_four_workers_give_the_bits_of_two(workload, alone, four, tmp_path):
    client, faults = four
    faults.plan("die", [])
    for job in JOBS:
        report = workload.run(job, tmp_path / "store", client)
        assert blocks_of(report) == blocks_of(alone[1][job])
        assert bits(tmp_path / "store", job) == bits(alone[0], job)


def test_a_worker_dies_while_edges_are_regrouped(workload, alone, four, tmp_path, monkeypatch):
    client, faults = four
    for_memory = IngestSizes.for_memory
    monkeypatch.setattr(
        IngestSizes, "for_memory", lambda *given: replace(for_memory(*given), fan_in=5)
    )
    block = ("edges-regroup-001", "0-000002-000002")
    faults.plan("die", [block])
    faults.take_log()
    report = workload.run("ingest", tmp_path / "store", client)
    assert faults.happened(block)
    assert blocks_of(report)["edges-regroup-001"] == 20
    assert all(stage["reused"] == 0 for stage in report["stages"])
    assert bits(tmp_path / "store", "ingest") == bits(alone[0], "ingest")


def test_a_worker_dies_in_each_stage(workload, alone, four, tmp_path):
    client, faults = four
    planned = [block for job in JOBS for block in MIDDLE[job]]
    faults.plan("die", planned)
    faults.take_log()
    store = tmp_path / "store"
    for job in JOBS:
        report = workload.run(job, store, client)
        assert blocks_of(report) == blocks_of(alone[1][job])
        assert all(stage["reused"] == 0 for stage in report["stages"])
        assert bits(store, job) == bits(alone[0], job)
        committed = faults.take_log()
        assert len(committed) == len(set(committed)) == sum(blocks_of(report).values())
    assert [block for block in planned if not faults.happened(block)] == []


WAYS = {
    # Each worker has a slice of two or four columns through two products at a time.
    "chains": (
        (Tiling(4, NODES, 2, holds_graph=True), Tiling(2, NODES, 2)),
        [("sketch-001", "0001"), ("sketch-003", "0000"), ("smooth-001", "0001")],
    ),
    # Row groups of a slice, past which the operand goes in parts.
    "a grid": (
        (Tiling(4, 2_000, groups=2), Tiling(2, 1_000, groups=3)),
        [
            ("sketch-002", "0001-000000"),
            ("sketch-003", "0000-000001"),
            ("smooth-001", "0001-000002"),
        ],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_dies_in_products_that_are_shared_out(
    workload, alone, four, tmp_path, monkeypatch, way
):
    client, faults = four
    tilings, planned = WAYS[way]
    faults.plan("die", planned)
    faults.take_log()
    store = store_before("embed", alone[0], tmp_path)
    cut_products(monkeypatch, open_store(alone[0]).embedding().run, *tilings)
    report = workload.run("embed", store, client)
    assert [block for block in planned if not faults.happened(block)] == []
    committed = faults.take_log()
    assert len(committed) == len(set(committed)) == sum(blocks_of(report).values())
    assert bits(store, "embed") == bits(alone[0], "embed")
