"""Exported files: the contract of other programs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from figrl import embed, export, ingest, open_store
from figrl.errors import BadInputError, ConfigError
from tests.reference import write_edges

IDS = ["00123", "1e5", "ü", "", "a b", "A", "0", "日本", "x" * 300]


@pytest.fixture(scope="module")
def words(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    edges = [(IDS[i], IDS[j]) for i in range(len(IDS)) for j in range(i)]
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=4)
    return embed(folder / "store", dim=3, sketch_size=16, client=client), folder / "store"


@pytest.mark.parametrize("name", ["vectors.parquet", "vectors"])
def test_ids_and_vectors_come_back_exactly(client, words, tmp_path, name):
    run, store = words
    out = export(store, out=tmp_path / name, client=client)
    table = pq.read_table(out)
    assert out.is_dir() == (name == "vectors")
    assert table.schema.field("id").type == pa.string()
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 3)
    assert table["id"].to_pylist() == sorted(IDS, key=str.encode)
    values = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 3)
    np.testing.assert_array_equal(values, np.asarray(run.vectors))


def test_integers_come_back_exactly(client, tmp_path):
    ids = [-(2**63), 2**63 - 1, 0, -1, 7, 12]
    edges = [(a, b) for a in ids for b in ids if a < b]
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client, block_rows=2)
    run = embed(tmp_path / "store", dim=2, sketch_size=8, client=client)
    table = pq.read_table(export(tmp_path / "store", out=tmp_path / "v.parquet", client=client))
    assert table.schema.field("id").type == pa.int64()
    assert table["id"].to_pylist() == sorted(ids)
    np.testing.assert_array_equal(run[2**63 - 1], np.asarray(run.vectors)[-1])


def test_an_export_is_not_overwritten_unasked(client, words, tmp_path):
    _, store = words
    export(store, out=tmp_path / "v", client=client)
    with pytest.raises(ConfigError, match=r"is there already.*overwrite=True"):
        export(store, out=tmp_path / "v", client=client)
    export(store, out=tmp_path / "v", client=client, overwrite=True)
    assert pq.read_table(tmp_path / "v").num_rows == len(IDS)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize("name", ["v.parquet", "v"])
def test_a_job_killed_after_its_delivery_can_be_run_again(
    client, words, tmp_path, monkeypatch, name
):
    """The marks are still there, but the parts that they stand for have gone to their place."""
    _, store = words
    with monkeypatch.context() as patch:
        patch.setattr("figrl.serve.output.clear", lambda space: None)
        export(store, out=tmp_path / name, client=client)
    first = pq.read_table(tmp_path / name)
    assert list(tmp_path.glob(f".{name}.figrl/export-*/marks/export/*.json"))
    export(store, out=tmp_path / name, client=client, overwrite=True)
    assert pq.read_table(tmp_path / name).equals(first)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_run_that_is_not_there_is_named(client, words, tmp_path):
    run, store = words
    with pytest.raises(BadInputError, match=f"no finished run 'nope'.*{run.run}"):
        export(store, out=tmp_path / "v", run="nope", client=client)


class TestEmbeddingInANotebook:
    def test_lookup_takes_any_order_and_repeats(self, words):
        run, _ = words
        vectors = np.asarray(run.vectors)
        ids = run.ids().to_pylist()
        wanted = ["ü", "00123", "ü", ""]
        np.testing.assert_array_equal(run.lookup(wanted), vectors[[ids.index(i) for i in wanted]])
        assert run.lookup([]).shape == (0, 3)
        assert len(run) == len(IDS)

    def test_unknown_ids_are_named(self, words):
        with pytest.raises(KeyError, match="2 of the ids are not in the graph: '123', 'zz'"):
            words[0].lookup(["ü", "zz", "123"])
        with pytest.raises(KeyError, match="ids of this graph are string"):
            words[0].lookup([5])
        with pytest.raises(TypeError, match="write \\['ü'\\] for one"):
            words[0].lookup("ü")

    def test_objects_show_themselves(self, words):
        run, store = words
        assert repr(run).startswith(f"<Embedding {run.run}: 9 nodes x 3 dimensions")
        assert "<table>" in run._repr_html_()
        opened = open_store(store)
        assert f"published run {run.run}" in repr(opened)
        assert opened.embedding().run == run.run
        assert "9 nodes, 36 unweighted edges, string ids" in repr(opened.graph)

    def test_a_store_without_a_run_says_what_to_do(self, client, tmp_path):
        ingest(
            write_edges(tmp_path / "e.parquet", [(1, 2), (2, 3)]),
            store=tmp_path / "s",
            client=client,
        )
        with pytest.raises(BadInputError, match=r"Nothing is learnt yet.*figrl\.embed"):
            open_store(tmp_path / "s").embedding()
        with pytest.raises(BadInputError, match=r"There is no graph in .*figrl\.ingest"):
            open_store(tmp_path / "elsewhere")
