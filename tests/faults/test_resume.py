"""The same bits whatever happens: more workers, dead workers, a dead job. No work is done twice."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from figrl import open_store
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig
from figrl.engine.session import Session
from figrl.errors import BadInputError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.setup import Tiling
from figrl.learn.spec import EmbedOptions
from figrl.serve.runs import run_embed
from tests.cutting import cut_products
from tests.faults.processes import PRELOAD, Faults, Figrl
from tests.faults.workload import JOBS, NODES, Block, Workload, bits, marked_blocks, output

# The story of a job starts it many times.
pytestmark = pytest.mark.timeout(1800)

# A block in the middle of each stage.
MIDDLE = {
    "ingest": [
        ("scan", "000008"),
        ("ranges", "all"),
        ("ids", "000000"),
        ("relabel", "000008-0000"),
        ("build", "000008"),
    ],
    "embed": [
        ("sketch-001", "0000-000008"),
        ("sketch-003", "0000-000008"),
        ("factor", "000003"),
        ("factor-solve", "all"),
        ("vectors", "000008"),
        ("smooth-002", "0000-000008"),
        ("smooth-mix", "000008"),
        ("smooth-balance", "all"),
        ("embedding", "000008"),
    ],
    "fold-in": [("match", "000000"), ("weigh", "000001"), ("fold", "000001"), ("join", "all")],
    "export": [("export", "000008")],
}

# What those blocks have written when their job is killed, beside and in the store.
WRITTEN = {
    "scan": ["store/graph/*/work/scan/000008-0000.*"],
    "build": [
        "store/graph/*/edges/part-000008.parquet",
        "store/graph/*/degrees/c/8",
        "store/graph/*/keys/c/8",
    ],
    "sketch-003": ["store/runs/*/sketch/c/8/2"],
    "factor-solve": ["store/runs/*/ritz/values.npy", "store/runs/*/ritz/coefficients.npy"],
    "vectors": ["store/runs/*/work/smooth-000/c/8/0"],
    "smooth-002": ["store/runs/*/work/smooth-002/c/8/0"],
    "smooth-mix": ["store/runs/*/work/smooth-mixed/c/8/0"],
    "smooth-balance": ["store/runs/*/work/balance.npy"],
    "embedding": ["store/runs/*/embedding/c/8/0", "store/runs/*/basis/c/8/0"],
    "fold": ["store-out/.new.parquet.figrl/*/parts/part-000001.parquet"],
    "export": ["store-out/.vectors.figrl/*/parts/part-000008.parquet"],
}


def local_cluster(workers):
    local = {"workers": workers, "threads_per_worker": 1, "memory_limit": "2GB"}
    return connect(ClusterConfig(local=local))


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    return Workload.write(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def alone(workload, tmp_path_factory):
    """A store on which all jobs ran undisturbed, with two workers; and the reports."""
    store = tmp_path_factory.mktemp("alone") / "store"
    with local_cluster(2) as client:
        reports = {job: workload.run(job, store, client) for job in JOBS}
    return store, reports


def key_of(stage):
    """Name of the folder of a stage's marks."""
    return stage["name"] + ("" if stage["step"] is None else f"-{stage['step']:03d}")


def blocks_of(report):
    """Blocks of each stage."""
    return {key_of(stage): stage["blocks"] for stage in report["stages"]}


def test_each_stage_has_blocks_to_lose(alone):
    _, reports = alone
    assert blocks_of(reports["ingest"]) == {
        "scan": 18,
        "ranges": 1,
        "ids": 1,
        "relabel": 18,
        "build": 18,
    }
    assert blocks_of(reports["embed"]) == {
        **{f"sketch-{number:03d}": 18 for number in range(1, 5)},
        "factor": 5,
        "factor-solve": 1,
        "norm": 18,
        "vectors": 18,
        "smooth-001": 18,
        "smooth-002": 18,
        "smooth-mix": 18,
        "smooth-003": 18,
        "smooth-gram": 5,
        "smooth-balance": 1,
        "embedding": 18,
    }
    fold_in = {"match": 1, "weigh": 3, "fold": 3, "join": 1}
    assert blocks_of(reports["fold-in"]).items() >= fold_in.items()
    assert blocks_of(reports["export"]) == {"export": 18}
    for report in reports.values():
        assert all(stage["reused"] == 0 for stage in report["stages"])


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


# One worker holds the whole graph, and does products in a row.
IN_A_ROW = [(name, "0000") for name in ("sketch-001", "smooth-001")]


def test_one_worker_that_is_killed_in_every_row_of_products_gives_the_same_bits(
    workload, alone, tmp_path
):
    story = kill_in_each_stage("embed", workload, alone[0], tmp_path, IN_A_ROW, workers=1)
    names = [name for name in blocks_of(story.report) if name.startswith(("sketch-", "smooth-0"))]
    assert names == ["sketch-001", "smooth-001"]
    for place, attempt in enumerate(story.attempts):
        assert attempt.block not in attempt.after
        assert set(IN_A_ROW[:place]) <= attempt.after
    assert story.done.isdisjoint(story.computed)
    assert bits(story.store, "embed") == bits(alone[0], "embed")


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
    store = _store_before("embed", alone[0], tmp_path)
    cut_products(monkeypatch, open_store(alone[0]).embedding().run, *tilings)
    report = workload.run("embed", store, client)
    assert [block for block in planned if not faults.happened(block)] == []
    committed = faults.take_log()
    assert len(committed) == len(set(committed)) == sum(blocks_of(report).values())
    assert bits(store, "embed") == bits(alone[0], "embed")


@dataclass(frozen=True)
class Attempt:
    """A job that was killed at a block: the marks before it, those it made, those after it."""

    block: Block
    before: set[Block]
    committed: list[Block]
    after: set[Block]


@dataclass(frozen=True)
class Story:
    """A job that was killed in each of its stages and came to its end after all."""

    store: Path
    attempts: list[Attempt]
    done: set[Block]
    report: dict[str, Any]
    computed: list[Block]


def kill_in_each_stage(job, workload, complete, folder, blocks, *, workers=2):
    """Run a job to its end, in as many processes as it has stages, and one more."""
    store, faults = _store_before(job, complete, folder), Faults(folder / "faults")
    cluster = folder / "cluster.yaml"
    threads = 2 // workers
    cluster.write_text(
        f"local: {{workers: {workers}, threads_per_worker: {threads}, memory_limit: 2GB}}\n"
    )
    command = [*workload.command(job, store), "--cluster", str(cluster), "--json"]
    attempts = []
    for block in blocks:
        before = marked_blocks(store)
        faults.plan("wait", [block])
        Figrl.start(command, faults.environment, folder).kill_when(
            lambda block=block: faults.happened(block), f"block {block} is reached"
        )
        attempts.append(Attempt(block, before, faults.take_log(), marked_blocks(store)))
        if block[1] != "all" or block[0] == "factor-solve":
            _spoil(store, block[0])
    faults.plan("wait", [])
    done = marked_blocks(store)
    report = Figrl.start(command, faults.environment, folder).report()
    return Story(store, attempts, done, report, faults.take_log())


@pytest.fixture(scope="module")
def stories(workload, alone, tmp_path_factory):
    """Stories of all jobs, two at a time: most of each is the start of processes."""
    folders = {job: tmp_path_factory.mktemp(job) for job in JOBS}
    with ThreadPoolExecutor(2) as pool:
        return {
            job: pool.submit(kill_in_each_stage, job, workload, alone[0], folders[job], MIDDLE[job])
            for job in JOBS
        }


@pytest.mark.parametrize("job", JOBS)
def test_the_job_is_killed_in_each_stage(stories, alone, job):
    story = stories[job].result()
    for attempt in story.attempts:
        assert len(attempt.committed) == len(set(attempt.committed))
        assert attempt.before.isdisjoint(attempt.committed)
        assert attempt.before | set(attempt.committed) == attempt.after
        assert attempt.block not in attempt.after
    assert blocks_of(story.report) == blocks_of(alone[1][job])
    assert len(story.computed) == len(set(story.computed))
    assert story.done.isdisjoint(story.computed)
    for stage in story.report["stages"]:
        assert stage["reused"] == sum(name == key_of(stage) for name, _ in story.done)
        assert stage["computed"] == sum(name == key_of(stage) for name, _ in story.computed)
        assert stage["computed"] == stage["blocks"] - stage["reused"]
    assert bits(story.store, job) == bits(alone[0], job)
    assert marked_blocks(story.store) == set()


def _store_before(job, complete, folder):
    """Copy a store on which all jobs ran, as it was before one of them did."""
    store = folder / "store"
    if job == "ingest":
        return store
    shutil.copytree(complete, store)
    if job == "embed":
        shutil.rmtree(store / "runs")
        (store / "current").unlink()
    return store


def _spoil(store, stage):
    """Cut in half what the block in the middle has written, and leave litter beside it."""
    for pattern in WRITTEN.get(stage, []):
        paths = list(store.parent.glob(pattern))
        assert paths, f"{pattern} names no file"
        for path in paths:
            os.truncate(path, path.stat().st_size // 2)
            path.with_name(f".{path.name}.0badf00d.tmp").write_bytes(b"half")


def _times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_finished_job_does_nothing(workload, alone, tmp_path, client):
    store = tmp_path / "store"
    shutil.copytree(alone[0], store)
    for job in ("ingest", "embed"):
        before = _times(output(store, job))
        report = workload.run(job, store, client)
        assert report["already_done"] is True
        after = _times(output(store, job))
        after.pop(store / "graph" / "latest", None)
        assert after.items() <= before.items()
        told = alone[1][job] | {"already_done": True, "store": str(store)}
        assert report == told


def _small_files(folder, *, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for number in range(3):
        ends = rng.integers(0, 200, (2, 900))
        table = pa.table({"source": ends[0], "target": ends[1]})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=300)
    return folder


def _computed_all(report):
    return [stage for stage in report["stages"] if stage["reused"]] == []


def test_a_changed_option_of_ingest_makes_another_graph(client, tmp_path):
    edges, store = _small_files(tmp_path / "edges"), tmp_path / "store"
    first = run_ingest(edges, store, IngestOptions(block_rows=64), Session(client))
    second = run_ingest(edges, store, IngestOptions(block_rows=32), Session(client))
    assert first["graph_version"] != second["graph_version"]
    assert (first["blocks"], second["blocks"]) == (4, 7)
    assert not second["already_done"]
    assert _computed_all(second)
    assert open_store(store).graph.version == second["graph_version"]
    again = run_ingest(edges, store, IngestOptions(block_rows=64), Session(client))
    assert again["already_done"]
    assert open_store(store).graph.version == first["graph_version"]


def test_changed_input_never_meets_the_blocks_of_an_ingest_that_stopped(client, tmp_path):
    edges, store = _small_files(tmp_path / "edges"), tmp_path / "store"
    broken = pa.table({"source": [1, 2], "target": pa.array([2, None], pa.int64())})
    pq.write_table(broken, edges / "part-3.parquet")
    config = IngestOptions(block_rows=64)
    with pytest.raises(BadInputError, match=r"part-3.parquet, row 2: the target id is missing"):
        run_ingest(edges, store, config, Session(client))
    assert {stage for stage, _ in marked_blocks(store)} == {"scan"}
    (edges / "part-3.parquet").unlink()
    report = run_ingest(edges, store, config, Session(client))
    assert _computed_all(report)
    fresh = run_ingest(edges, tmp_path / "fresh", config, Session(client))
    assert fresh["graph_version"] == report["graph_version"]
    version = f"graph/{report['graph_version']}/edges"
    for path in (tmp_path / "fresh" / version).iterdir():
        assert path.read_bytes() == (store / version / path.name).read_bytes()


def test_one_edge_more_makes_another_graph(client, tmp_path):
    edges, store = _small_files(tmp_path / "edges"), tmp_path / "store"
    first = run_ingest(edges, store, IngestOptions(), Session(client))
    path = edges / "part-1.parquet"
    more = pa.concat_tables([pq.read_table(path), pa.table({"source": [500], "target": [501]})])
    pq.write_table(more, path, row_group_size=300)
    second = run_ingest(edges, store, IngestOptions(), Session(client))
    assert second["graph_version"] != first["graph_version"]
    assert second["nodes"] == first["nodes"] + 2
    assert second["edges"] == first["edges"] + 1
    assert _computed_all(second)


@pytest.mark.parametrize("change", [{"seed": 1}, {"dim": 5}, {"sketch_size": 24}])
def test_a_changed_option_of_embed_makes_another_run(client, tmp_path, change):
    edges, store = _small_files(tmp_path / "edges"), tmp_path / "store"
    run_ingest(edges, store, IngestOptions(block_rows=64), Session(client))
    options = {"dim": 4, "sketch_size": 16}
    first = run_embed(store, EmbedOptions(**options), Session(client))
    kept = np.asarray(open_store(store).embedding(first["run"]).vectors)
    second = run_embed(store, EmbedOptions(**options | change), Session(client))
    assert second["run"] != first["run"]
    assert _computed_all(second)
    opened = open_store(store)
    assert opened.runs == [first["run"], second["run"]]
    assert opened.embedding().run == second["run"]
    np.testing.assert_array_equal(np.asarray(opened.embedding(first["run"]).vectors), kept)
    again = run_embed(store, EmbedOptions(**options), Session(client))
    assert again["already_done"]
    assert open_store(store).embedding().run == first["run"]
