"""The relative deviation score against its definition, in memory and block by block."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import figrl.analyze.holes as calls
from figrl import embed, find_holes, ingest
from figrl.analyze.clusters import clusters_locked
from figrl.analyze.deviation import DeviationTask, score_vectors
from figrl.analyze.holes import HoleOptions, hole_stages, run_holes
from figrl.analyze.influence import influence_stages
from figrl.engine.session import Session
from figrl.engine.stage import Memory, list_stages
from figrl.errors import ConfigError, ResourceError, StoreInUseError
from figrl.store.files import read_json
from tests.reference import write_edges

KARATE = [(int(a), int(b)) for a, b in nx.karate_club_graph().edges()]


def literal_scores(vectors, labels):
    """Spelt out after the paper, a node at a time."""
    clusters = {int(c): vectors[labels == c].astype(float) for c in np.unique(labels)}
    centers = {c: rows.mean(axis=0) for c, rows in clusters.items()}
    radii = {
        c: sum(np.linalg.norm(row - centers[c]) for row in rows) for c, rows in clusters.items()
    }
    found = []
    for vector, own in zip(vectors.astype(float), labels, strict=True):
        away = np.linalg.norm(vector - centers[own])
        ratios = [0.0]
        for other in clusters:
            toward = np.linalg.norm(vector - centers[other])
            if other != own and radii[own] > 0:
                ratios.append(away / radii[own] / (toward / radii[other]) if radii[other] else 0.0)
        found.append(max(ratios))
    return np.array(found)


@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 60), clusters=st.integers(1, 6))
def test_scores_are_those_of_the_definition(seed, nodes, clusters):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((nodes, 3)).astype(np.float32)
    labels = rng.integers(0, clusters, nodes)
    found = score_vectors(vectors, labels)
    np.testing.assert_allclose(found.scores, literal_scores(vectors, labels), rtol=1e-5, atol=1e-9)
    assert (found.toward[found.scores > 0] != labels[found.scores > 0]).all()
    assert (found.toward[found.scores == 0] == -1).all()


def test_a_node_between_two_clusters_scores_highest():
    left = np.random.default_rng(0).normal([-1, 0], 0.1, (20, 2))
    right = np.random.default_rng(1).normal([1, 0], 0.1, (20, 2))
    vectors = np.concatenate([left, right, [[-0.1, 0.0]]]).astype(np.float32)
    labels = np.array([0] * 20 + [1] * 20 + [0])
    found = score_vectors(vectors, labels)
    assert found.scores.argmax() == 40
    assert found.toward[40] == 1


@pytest.fixture(scope="module")
def karate(client, tmp_path_factory):
    store = tmp_path_factory.mktemp("karate") / "store"
    path = write_edges(store.parent / "edges.parquet", KARATE)
    ingest(path, store=store, client=client, block_rows=8)
    embed(store, dim=3, sketch_size=32, client=client)
    return store


def test_the_holes_of_karate_link_both_clubs(client, karate):
    table = find_holes(karate, count=3, clusters=2, client=client)
    holes = table["id"].to_pylist()
    assert len(set(holes)) == 3
    graph = nx.karate_club_graph()
    for node in holes:
        assert len({graph.nodes[other]["club"] for other in graph[node]}) == 2
    assert table["score"].to_pylist() == sorted(table["score"].to_pylist(), reverse=True)
    assert table["rank"].to_pylist() == [1, 2, 3]


def test_blocks_find_what_is_found_in_memory(client, karate):
    from figrl import open_store

    report = run_holes(karate, Session(client), count=34, clusters=3, runs=200)
    run = open_store(karate).embedding()
    labels = np.load(run.path / "clusters" / "kmeans-3.npy")
    scores = score_vectors(np.asarray(run.vectors), labels).scores
    by_id = {hole["id"]: hole for hole in report["holes"]}
    ids = run.ids().to_pylist()
    np.testing.assert_allclose([by_id[node]["score"] for node in ids], scores, rtol=1e-6)
    assert [by_id[node]["cluster"] for node in ids] == labels.tolist()
    assert all(hole["shii_lt"] >= 0 and hole["shii_ic"] >= 0 for hole in report["holes"])
    task = DeviationTask(run.graph, run.path, run.path, run.path, 3, 3, 34)
    planned = list_stages(hole_stages(task, HoleOptions(runs=200)))
    assert [stage.name for stage in planned] == [stage["name"] for stage in report["stages"]]
    assert all(stage.memory.task_bytes > 0 for stage in planned)
    again = run_holes(karate, Session(client), count=34, clusters=3, runs=200)
    assert again["holes"] == report["holes"]


def test_holes_that_were_stopped_go_on_with_the_same_clusters(client, karate, monkeypatch):
    from figrl import open_store

    options = {"count": 4, "clusters": 3, "runs": 1200, "seed": 5}
    whole = run_holes(karate, Session(client), **options)
    assert [stage["name"] for stage in whole["stages"]][-3:] == [
        "lists",
        "influence-lt",
        "influence-ic",
    ]
    # Clusters that were found are kept, with what was told of them.
    told = open_store(karate).embedding().path / "clusters" / "kmeans-3-seed-5.json"
    assert read_json(told)["modularity"] == whole["modularity"]
    with monkeypatch.context() as patch:
        patch.setattr(calls, "cluster_embedding", _not_again)
        patch.setattr(calls, "influence_stages", _killed_at_cascades)
        with pytest.raises(KeyboardInterrupt):
            run_holes(karate, Session(client), **options)
    monkeypatch.setattr(calls, "cluster_embedding", _not_again)
    again = run_holes(karate, Session(client), **options)
    assert again["holes"] == whole["holes"]
    reused = {stage["name"]: (stage["blocks"], stage["reused"]) for stage in again["stages"]}
    assert reused["scores"] == (5, 5)
    assert reused["lists"] == reused["highest"] == (1, 1)
    assert reused["influence-lt"] == (16, 16)
    assert reused["influence-ic"] == (16, 0)
    assert not list((karate / "work").glob("holes-*"))


def _not_again(*_, **__):
    raise AssertionError("the clusters were found before")


def _killed_at_cascades(task, **sizes):
    if task.model == "ic":
        raise KeyboardInterrupt
    return influence_stages(task, **sizes)


def test_work_of_other_searches_is_not_kept_for_ever(client, karate, monkeypatch):
    options = {"count": 4, "clusters": 3, "runs": 100, "seed": 6}
    monkeypatch.setattr(calls, "influence_stages", _killed_at_cascades)
    for probability in (0.1, 0.2):
        with pytest.raises(KeyboardInterrupt):
            run_holes(karate, Session(client), **options, probability=probability)
        assert len(list((karate / "work").glob("holes-*"))) == 1
    monkeypatch.undo()
    run_holes(karate, Session(client), **options)
    assert not list((karate / "work").glob("holes-*"))


@pytest.mark.parametrize("damage", ["no labels", "other labels", "no json", "empty json"])
def test_clusters_that_are_not_whole_are_found_again(client, karate, damage):
    from figrl import open_store

    options = {"count": 4, "clusters": 2, "seed": 8}
    whole = run_holes(karate, Session(client), **options)
    labels = open_store(karate).embedding().path / "clusters" / "kmeans-2-seed-8.npy"
    told = labels.with_suffix(".json")
    if damage == "other labels":
        np.save(labels, np.zeros(3, np.int32))
    elif damage == "empty json":
        told.write_text("")
    else:
        (labels if damage == "no labels" else told).unlink()
    assert run_holes(karate, Session(client), **options)["holes"] == whole["holes"]
    assert np.load(labels).shape == (34,)
    assert read_json(told)["clusters"] == 2


@pytest.mark.parametrize(
    ("name", "runs", "message"),
    [
        ("influence_memory", 10, r"needs 5 GB.*neighbours of all 34 nodes.*leave out --runs"),
        ("deviation_memory", 0, r"needs 5 GB.*centres of 2 clusters.*fewer --clusters"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_work(
    client, karate, monkeypatch, name, runs, message
):
    before = sorted(karate.rglob("*"))
    monkeypatch.setattr(calls, name, lambda *_, **__: Memory(5 * 10**9))
    with pytest.raises(ResourceError, match=message):
        run_holes(karate, Session(client), count=3, clusters=2, runs=runs, seed=9)
    assert sorted(karate.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "-n is 0. Allowed are 1 to 34"),
        ({"clusters": 1}, "--clusters is 1. .*allowed are 2 to 34"),
        ({"runs": -1}, "--runs is -1"),
        ({"probability": 1.5}, "--probability is 1.5"),
    ],
)
def test_what_is_not_allowed_says_what_is(client, karate, options, message):
    with pytest.raises(ConfigError, match=message):
        run_holes(karate, Session(client), **options)


def test_clusters_of_a_run_are_written_by_one_job_at_a_time(client, karate):
    from figrl import find_clusters, open_store

    run = open_store(karate).embedding()
    with (
        clusters_locked(run, "holes"),
        pytest.raises(StoreInUseError, match=r"clusters is in use by 'holes'"),
    ):
        find_clusters(karate, 2, client=client)
    find_clusters(karate, 2, seed=7, client=client)
    assert (run.path / "clusters" / "kmeans-2-seed-7.npy").exists()
