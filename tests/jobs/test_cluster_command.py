"""``figrl cluster``: exit codes, what it prints, and where it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.reference import write_edges

GROUPS, SIZE = 4, 30


@pytest.fixture(scope="module")
def learnt(client, tmp_path_factory) -> Path:
    """A store with a run: four rings with chords, and an edge from each to the next."""
    from figrl import embed, ingest

    folder = tmp_path_factory.mktemp("learnt")
    edges = [
        (group * SIZE + node, group * SIZE + (node + step) % SIZE)
        for group in range(GROUPS)
        for node in range(SIZE)
        for step in (1, 2, 3, 7, 11)
    ]
    edges += [(group * SIZE, (group + 1) % GROUPS * SIZE) for group in range(GROUPS)]
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=32)
    embed(folder / "store", dim=4, sketch_size=24, client=client)
    return folder / "store"


def groups_found(path: Path | str) -> list[set[int]]:
    table = pq.read_table(path)
    found: dict[int, set[int]] = {}
    for node, cluster in zip(*(table[n].to_pylist() for n in ("id", "cluster")), strict=True):
        found.setdefault(cluster, set()).add(node)
    return sorted(found.values(), key=min)


PLANTED = [set(range(g * SIZE, (g + 1) * SIZE)) for g in range(GROUPS)]


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
def test_json_stands_alone_and_the_default_place_is_in_the_run(figrl, learnt, method):
    line = ["cluster", "--store", learnt, "--clusters", 4, "--method", method, "--json"]
    outcome = figrl(*line, "--verbose")
    assert outcome.code == 0
    report = outcome.json
    folder = learnt / "runs" / report["run"] / "clusters"
    assert report["out"] == str(folder / f"{method}-4.parquet")
    assert report["labels"] == str(folder / f"{method}-4.npy")
    assert groups_found(report["out"]) == PLANTED
    assert (report["smallest_cluster"], report["largest_cluster"]) == (SIZE, SIZE)
    # Of 604 edges 4 go from one group to another, and the groups are alike.
    assert report["modularity"] == pytest.approx(600 / 604 - 1 / 4, abs=1e-6)
    assert "labels: 4 blocks in" in outcome.err
    first = np.load(report["labels"])
    # It may be written again there, unasked.
    assert figrl(*line).code == 0
    np.testing.assert_array_equal(np.load(report["labels"]), first)


def test_words_for_people(figrl, learnt, tmp_path):
    out = tmp_path / "folder"
    line = ["cluster", "--store", learnt, "--clusters", 4, "--out", out, "--seed", 3]
    outcome = figrl(*line)
    assert outcome.code == 0
    for words in ("4 of 30 to 30 nodes", "kmeans, by scikit-learn", "0.7434", str(out), "Took"):
        assert words in outcome.out
    assert groups_found(out) == PLANTED
    assert {path.name for path in out.iterdir()} == {f"part-{i:06d}.parquet" for i in range(4)}
    outcome = figrl(*line)
    assert (outcome.code, outcome.out) == (2, "")
    assert "is there already" in outcome.err
    assert figrl(*line, "--overwrite").code == 0


def test_a_small_limit_is_told_of(figrl, learnt, tmp_path):
    out = tmp_path / "c.parquet"
    line = ["cluster", "--store", learnt, "--clusters", 4, "--out", out, "--memory-limit", "100MB"]
    outcome = figrl(*line)
    assert outcome.code == 0
    assert "kmeans, by dask-ml k-means||" in outcome.out
    assert "note: The vectors do not fit into the memory of a worker" in outcome.out
    assert groups_found(out) == PLANTED


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--clusters", "0"], "--clusters is 0; this graph has 120 nodes"),
        (["--clusters", "121"], "from 1 to 120"),
        (["--clusters", "many"], "many"),
        ([], "--clusters"),
        (["--clusters", "3", "--method", "magic"], "'magic'"),
        (["--clusters", "3", "--seed", "-5"], "--seed is -5"),
        (["--clusters", "3", "--memory-limit", "lots"], "'lots'"),
    ],
)
def test_wrong_options_end_with_2(figrl, learnt, words, part):
    before = sorted(learnt.rglob("*"))
    outcome = figrl("cluster", "--store", learnt, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert part in outcome.err
    assert sorted(learnt.rglob("*")) == before


def test_a_store_or_run_that_is_not_there_ends_with_3(figrl, learnt, store, tmp_path):
    outcome = figrl("cluster", "--store", tmp_path / "no", "--clusters", 3, "--json")
    assert outcome.json["exit_code"] == outcome.code == 3
    assert "There is no graph" in outcome.json["error"]
    outcome = figrl("cluster", "--store", store, "--clusters", 3)
    assert (outcome.code, outcome.out) == (3, "")
    assert "Nothing is learnt yet" in outcome.err
    outcome = figrl("cluster", "--store", learnt, "--clusters", 3, "--run", "nope")
    assert (outcome.code, outcome.out) == (3, "")
    assert "no finished run 'nope'" in outcome.err


def test_help_shows_how(figrl):
    outcome = figrl("cluster", "--help", on_cluster=False)
    assert outcome.code == 0
    for words in ("--method [kmeans|agglomerative]", "figrl cluster --store store --clusters 20"):
        assert words in outcome.out
    shown = figrl("--help", on_cluster=False).out
    assert shown.index("neighbors") < shown.index("\n  cluster") < shown.index("reindex")
