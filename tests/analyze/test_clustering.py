"""Clusters of a run: planted communities come back, whichever way they are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.cluster import AgglomerativeClustering

import figrl.analyze.clusters as calls
from figrl import embed, ingest, open_store
from figrl.analyze.clusters import find_clusters, run_cluster
from figrl.analyze.deviation import cluster_means
from figrl.analyze.kmeans import (
    agglomerative,
    fine_centers,
    kmeans_in_memory,
    nearest_center,
    ward,
)
from figrl.analyze.metrics import agreement, modularity
from figrl.engine.session import Session
from figrl.errors import BadInputError, ConfigError
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.overlay_update import run_fold_publish
from figrl.store.files import delete
from figrl.study.planted import PlantedGraph
from tests.reference import write_edges

PLANTED = PlantedGraph(
    nodes=2000, communities=6, edges_per_node=12, new_nodes=20, ids="string", seed=2
)
TINY = "100MB"
"""A limit that holds no worker's vectors, so that everything is done out of core."""


@pytest.fixture(scope="module")
def store(client, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    PLANTED.write_partitions(folder / "edges", 2)
    ingest(folder / "edges" / "known", store=folder / "store", client=client, block_rows=256)
    embed(folder / "store", dim=8, sketch_size=32, client=client)
    return folder / "store"


def truth_of(ids: list[str]) -> np.ndarray:
    return PLANTED.community(np.array([int(i.removeprefix("user/")) for i in ids]))


def blobs(rows: int, clusters: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, clusters, rows)
    spread = 10 * rng.normal(size=(clusters, 6))
    return (spread[truth] + rng.normal(size=(rows, 6))).astype(np.float32), truth


@pytest.mark.parametrize("clusters", [1, 2, 7, 299, 300])
def test_ward_is_that_of_scikit_learn(clusters):
    vectors = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    labels = ward(vectors, clusters)
    expected = AgglomerativeClustering(clusters).fit(vectors).labels_
    assert np.unique(labels).size == clusters
    assert len(set(zip(labels, expected, strict=True))) == clusters
    # Numbered in the order in which they are met.
    assert list(dict.fromkeys(labels.tolist())) == list(range(clusters))


def test_equal_vectors_stay_together():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    made = agglomerative(vectors, 5)
    np.testing.assert_array_equal(made.labels, np.repeat([0, 1, 2], 10))
    np.testing.assert_allclose(made.centers, np.eye(3))
    assert np.unique(agglomerative(vectors, 2).labels).size == 2
    assert agglomerative(np.ones((1, 4)), 1).labels.tolist() == [0]
    assert np.unique(agglomerative(np.zeros((30, 4)), 3, largest=20).labels).size == 1


def test_many_rows_and_clusters_begin_with_a_sample(monkeypatch):
    vectors, truth = blobs(4000, 20)
    exact, exact_centers = kmeans_in_memory(vectors, 20, starts=5)
    monkeypatch.setattr("figrl.analyze.kmeans.MOST_DISTANCES", 1000)
    monkeypatch.setattr("figrl.analyze.kmeans.SAMPLE_PER_CLUSTER", 100)
    labels, centers = kmeans_in_memory(vectors, 20)
    again, _ = kmeans_in_memory(vectors, 20)
    other, _ = kmeans_in_memory(vectors, 20, seed=1)
    np.testing.assert_array_equal(again, labels)
    assert agreement(labels, truth) > 0.95
    assert agreement(other, labels) > 0.95
    # The centres are those of all rows, not of the sample.
    np.testing.assert_allclose(centers, cluster_means(vectors, labels), rtol=1e-3, atol=1e-3)
    loss = [np.sum((vectors - c[at]) ** 2) for at, c in ((labels, centers), (exact, exact_centers))]
    assert loss[0] < 1.5 * loss[1]


def test_means_are_those_of_the_clusters():
    vectors, truth = blobs(200, 4)
    expected = [vectors[truth == c].astype(np.float64).mean(axis=0) for c in range(4)]
    np.testing.assert_allclose(cluster_means(vectors, truth), expected)


def test_many_vectors_are_joined_by_their_centres():
    vectors, truth = blobs(3000, 7)
    small, large = agglomerative(vectors, 7), agglomerative(vectors, 7, largest=100)
    assert (small.by, small.note) == ("Ward", None)
    assert large.by == "Ward on k-means centres"
    assert "100 centres" in large.note
    assert "3,000 vectors" in large.note
    assert large.centers.shape == (100, 6)
    assert agreement(small.labels, truth) == pytest.approx(1.0)
    assert agreement(large.labels, truth) == pytest.approx(1.0)
    np.testing.assert_array_equal(
        large.labels, large.groups[nearest_center(vectors, large.centers)]
    )
    again = agglomerative(vectors, 7, largest=100)
    np.testing.assert_array_equal(again.labels, large.labels)


def test_centres_for_ward_are_many_but_no_more_than_it_can_hold():
    assert fine_centers(5, 25_000) == 1000
    assert fine_centers(300, 25_000) == 3000
    assert fine_centers(500, 25_000) == 4000
    assert fine_centers(3000, 25_000) == 6000
    assert fine_centers(500, 2000) == 2000
    assert fine_centers(500, 100) == 500


@pytest.mark.parametrize(("method", "by"), [("kmeans", "scikit-learn"), ("agglomerative", "Ward")])
def test_planted_communities_are_found(client, store, method, by):
    report = run_cluster(store, 6, Session(client), method=method)
    assert (report["method"], report["by"], report["nodes"]) == (method, by, 2000)
    assert report["notes"] == []
    folder = store / "runs" / report["run"] / "clusters"
    assert report["out"] == str(folder / f"{method}-6.parquet")
    table = pq.read_table(report["out"])
    assert table.schema.names == ["id", "cluster"]
    assert table.schema.field("cluster").type == pa.int32()
    embedding = open_store(store).embedding()
    ids = table["id"].to_pylist()
    assert ids == embedding.ids().to_pylist()
    labels = table["cluster"].to_numpy()
    assert agreement(labels, truth_of(ids)) > 0.98
    kept = np.load(report["labels"])
    assert report["labels"] == str(folder / f"{method}-6.npy")
    assert kept.dtype == np.int32
    np.testing.assert_array_equal(kept, labels)
    sizes = np.bincount(labels, minlength=6)
    assert report["smallest_cluster"] == sizes.min()
    assert report["largest_cluster"] == sizes.max()
    assert report["empty_clusters"] == 0
    exact = modularity(embedding.graph, labels)
    assert report["modularity"] == pytest.approx(exact, abs=1e-6)
    assert [stage["name"] for stage in report["stages"]] == ["centers", "labels", "join"]
    assert report["stages"][1]["blocks"] == embedding.graph.blocks == 8
    assert not list((store / "work").glob("cluster-*"))
    assert {path.name for path in folder.glob(".*")} == {".lock"}


@pytest.mark.parametrize(
    ("method", "by"),
    [("kmeans", "dask-ml k-means||"), ("agglomerative", "Ward on k-means centres")],
)
def test_out_of_core_is_nearly_as_good(client, store, tmp_path, method, by):
    near = run_cluster(store, 6, Session(client), method=method, out=tmp_path / "near")
    session = Session(client, TINY)
    far = run_cluster(store, 6, session, method=method, out=tmp_path / "far")
    assert far["by"] == by
    assert "do not fit into the memory of a worker" in far["notes"][0]
    assert ("1,000 centres" in far["notes"][-1]) == (method == "agglomerative")
    assert abs(far["modularity"] - near["modularity"]) < 0.02
    assert len(list((tmp_path / "far").glob("part-*.parquet"))) == 8
    table = pq.read_table(tmp_path / "far")
    ids = table["id"].to_pylist()
    assert sorted(ids) == open_store(store).embedding().ids().to_pylist()
    assert agreement(table["cluster"].to_numpy(), truth_of(ids)) > 0.97
    first = np.load(far["labels"]).tobytes()
    run_cluster(store, 6, session, method=method, out=tmp_path / "far", overwrite=True)
    assert np.load(far["labels"]).tobytes() == first


def test_labels_are_the_nearest_centres(client, store, tmp_path, monkeypatch):
    centers = []
    deliver = calls.deliver

    def keep(job, *args):
        centers.append(np.load(job.marks.parent / "centers.npy").astype(np.float64))
        deliver(job, *args)

    monkeypatch.setattr(calls, "deliver", keep)
    out = find_clusters(store, 9, out=tmp_path / "c.parquet", client=client)
    labels = pq.read_table(out)["cluster"].to_numpy()
    vectors = np.asarray(open_store(store).embedding().vectors).astype(np.float64)
    distances = np.linalg.norm(vectors[:, None] - centers[0][None], axis=2)
    assert centers[0].shape == (9, 8)
    own = distances[np.arange(2000), labels]
    np.testing.assert_allclose(own, distances.min(axis=1), rtol=1e-4)


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
@pytest.mark.parametrize("where", ["modularity", "deliver", "delete"])
def test_a_job_that_was_killed_goes_on_to_the_same_bits(
    client, store, tmp_path, method, where, monkeypatch
):
    out = tmp_path / "c.parquet"
    whole = run_cluster(store, 5, Session(client), method=method, out=tmp_path / "w.parquet")
    with monkeypatch.context() as patch:
        if where == "delete":
            patch.setattr(calls.files, where, _killed_at_work_folder)
        else:
            patch.setattr(calls, where, _killed)
        with pytest.raises(KeyboardInterrupt):
            run_cluster(store, 5, Session(client), method=method, out=out)
    report = run_cluster(store, 5, Session(client), method=method, out=out)
    # Once parts are delivered nothing is left to go on from.
    reused = {stage["name"]: stage["reused"] for stage in report["stages"]}
    again = 0 if where == "delete" else 1
    assert (reused["centers"], reused["labels"]) == (again, 8 * again)
    assert pq.read_table(out).equals(pq.read_table(whole["out"]))
    assert out.read_bytes() == Path(whole["out"]).read_bytes()


def _killed(*_, **__):
    raise KeyboardInterrupt


def _killed_at_work_folder(path):
    if path.name.startswith("cluster-"):
        raise KeyboardInterrupt
    delete(path)


def test_fewer_distinct_vectors_than_clusters(client, tmp_path):
    """Rings of three: every node is like every other of its ring."""
    edges = [(3 * ring + a, 3 * ring + b) for ring in range(4) for a, b in ((0, 1), (1, 2), (2, 0))]
    ingest(write_edges(tmp_path / "e.parquet", edges), store=tmp_path / "s", client=client)
    embed(tmp_path / "s", dim=3, sketch_size=8, client=client)
    for method in ("kmeans", "agglomerative"):
        for limit in (None, TINY):
            report = run_cluster(tmp_path / "s", 12, Session(client, limit), method=method)
            labels = np.load(report["labels"])
            assert labels.min() >= 0
            assert report["empty_clusters"] == 12 - np.unique(labels).size
            assert report["smallest_cluster"] >= 1


def test_nodes_folded_in_since_are_left_out_and_named(client, store, tmp_path):
    copied = shutil.copytree(store, tmp_path / "store")
    new = store.parent / "edges" / "new"
    run_fold_publish(copied, new, FoldInOptions(), Session(client))
    assert len(open_store(copied).embedding()) == 2020
    report = run_cluster(copied, 3, Session(client))
    assert pq.read_table(report["out"]).num_rows == report["nodes"] == 2000
    assert report["notes"] == [
        "20 nodes that were folded in since the run was learnt are in no cluster."
    ]


@pytest.mark.parametrize("clusters", [-1, 0, 2001])
def test_a_number_of_clusters_that_cannot_be_is_refused(client, store, clusters):
    with pytest.raises(ConfigError, match=rf"--clusters is {clusters:,}; .* from 1 to 2,000"):
        find_clusters(store, clusters, client=client)


def test_other_options_that_cannot_be_are_refused(client, store, tmp_path):
    with pytest.raises(ConfigError, match="--method is 'spectral'"):
        find_clusters(store, 3, method="spectral", client=client)
    with pytest.raises(ConfigError, match="--seed is -1"):
        find_clusters(store, 3, seed=-1, client=client)
    with pytest.raises(BadInputError, match="no finished run 'nope'"):
        find_clusters(store, 3, run="nope", client=client)
    out = tmp_path / "mine.parquet"
    out.write_text("mine")
    with pytest.raises(ConfigError, match=r"is there already"):
        find_clusters(store, 3, out=out, client=client)
    assert out.read_text() == "mine"
    with pytest.raises(ConfigError, match=r"was not written by figrl"):
        find_clusters(store, 3, out=out, client=client, overwrite=True)
    assert out.read_text() == "mine"
