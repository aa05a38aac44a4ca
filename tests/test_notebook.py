"""The calls of a notebook: the client at hand is found, and nothing else is started."""

from __future__ import annotations

import dask
import distributed
import numpy as np
import pytest

from figrl import embed, fold_in, ingest, open_store
from tests.learn.test_embed import random_edges
from tests.reference import write_edges


@pytest.fixture
def no_new_cluster(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a cluster was started although a client was at hand")

    monkeypatch.setattr(distributed, "LocalCluster", refuse)


@pytest.mark.usefixtures("no_new_cluster")
def test_the_current_client_is_used_and_vectors_are_lazy(client, tmp_path):
    edges = random_edges(1, 50, weighted=False)
    with client.as_current():
        graph = ingest(
            write_edges(tmp_path / "edges.parquet", edges), store=tmp_path / "s", block_rows=16
        )
        run = embed(tmp_path / "s", dim=4, sketch_size=20)
        new = write_edges(tmp_path / "new.parquet", [(900, 1), (900, 2)])
        folded = fold_in(tmp_path / "s", new, out=tmp_path / "new-vectors.parquet")
        assert dask.is_dask_collection(run.vectors)
        assert run.vectors.shape == (graph.nodes, 4)
        mean = run.vectors.mean(axis=0).compute()
    np.testing.assert_allclose(mean, np.asarray(run.vectors).mean(axis=0), rtol=1e-4, atol=1e-7)
    assert folded.table()["id"].to_pylist() == [900]
    assert open_store(tmp_path / "s").embedding().run == run.run


def test_without_a_client_a_local_cluster_is_started_for_the_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def none_at_hand() -> None:
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "get_client", none_at_hand)
    path = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3), (3, 1)])
    assert ingest(path, store=tmp_path / "s").edges == 3
