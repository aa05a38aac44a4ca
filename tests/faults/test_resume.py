"""What is finished is not done again; what another input or option would make is never reused."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from figrl import open_store
from figrl.engine.session import Session
from figrl.errors import BadInputError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.runs import run_embed
from tests.faults.workload import marked_blocks, output


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
