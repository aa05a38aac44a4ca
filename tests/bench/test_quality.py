"""The benchmark of quality, from the files of small graphs to its tables; no peer is needed."""

from __future__ import annotations

import gzip
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from figrl import ingest
from figrl.bench import held_back
from figrl.bench.methods import OTHERS, OWN, REFERENCE, Method, low_pass
from figrl.bench.options import OPTIONS, as_method
from figrl.bench.plot import plot_report
from figrl.bench.problems import MEASURES, Case, make_problems, read_labels
from figrl.bench.quality import bench_quality, compare_with_peers
from figrl.bench.results import HeldBack, Score
from figrl.bench.selection import Selection
from figrl.bench.tables import report_tables, write_tables
from figrl.engine.session import Session
from figrl.study import peers
from figrl.study.graphs import write_pairs

PEER = Method("pycleora", kind="peer")


def write(path: Path, rows: np.ndarray) -> None:
    text = "\n".join("\t".join(map(str, row)) for row in rows.tolist())
    path.write_bytes(gzip.compress(f"# a comment\n{text}\n".encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups of 30 nodes, as a graph, as users and items, and as arcs to later groups."""
    path, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    inside = rng.integers(0, 30, (600, 2)) + 30 * rng.integers(0, 3, (600, 1))
    write(path / "three.txt.gz", np.concatenate([inside, rng.integers(0, 90, (60, 2))]))
    write(path / "three.labels.tsv.gz", np.stack([np.arange(95), np.arange(95) // 30], axis=1))
    taken = np.unique(np.concatenate([inside, np.stack([np.arange(90)] * 2, axis=1)]), axis=0)
    part = (rng.random(len(taken)) < 0.8) | (taken[:, 0] == taken[:, 1])
    write(path / "shop.train.txt.gz", taken[part])
    write(path / "shop.test.txt.gz", taken[~part])
    sources = rng.integers(0, 60, 900)
    targets = (sources // 30 + 1) * 30 + rng.integers(0, 30, 900)
    back = np.stack([targets[:150], sources[:150]], axis=1)
    arcs = np.unique(np.concatenate([np.stack([sources, targets], axis=1), back]), axis=0)
    write(path / "trust.directed.txt.gz", arcs)
    return path


def random_vectors(nodes: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((nodes, 8)).astype(np.float32)


def test_labels_are_read_by_id_and_may_be_several(tmp_path):
    write(tmp_path / "a.labels.tsv.gz", np.array([[5, 1], [9, 2], [5, 2], [7, 3]]))
    classes = read_labels(tmp_path / "a.labels.tsv.gz", np.array([3, 5, 9]))
    assert classes.tolist() == [[False, False], [True, True], [False, True]]
    assert read_labels(tmp_path / "none", np.array([1])) is None


def test_groups_in_vectors_are_seen_by_all_measures(folder):
    (whole, links) = make_problems(folder, Case("three", ("clusters", "labels", "links"), 8))
    assert whole.nodes == links.nodes == 90
    right = np.eye(3, dtype=np.float32)[np.arange(90) // 30]
    found = whole.score(right, "cosine") | links.score(right, "cosine")
    assert found["NMI"] == pytest.approx(1)
    assert found["micro-F1"] == found["macro-F1"] == 1
    assert found["AUC"] > 0.75
    assert found["mean length"] == pytest.approx(3**-0.5)
    assert found["linked cosine"] > 0.9 > 0.5 > found["random cosine"]
    by_chance = whole.score(random_vectors(90), "cosine")
    assert by_chance["modularity"] < 0.2 < 0.55 < found["modularity"]
    assert by_chance["micro-F1"] < 0.6


def test_items_of_the_own_group_are_recommended(folder):
    (problem,) = make_problems(folder, Case("shop", ("items",), 8))
    groups = np.concatenate([np.arange(90) // 30] * 2)
    # The seen ones of a group are left out, and its others fit among the best 20.
    found = problem.score(np.eye(3)[groups], "cosine")
    assert found["recall@20"] > 2.5 * problem.score(random_vectors(180), "dot")["recall@20"]


def test_arcs_have_a_direction(folder):
    (problem,) = make_problems(folder, Case("trust", ("arcs",), 8))
    arcs = np.unique(problem.pairs, axis=0)
    assert arcs[:, 0].max() < problem.sources <= arcs[:, 1].min()
    # With the same vector as source and as target, an arc and its reverse score the same.
    ids = np.concatenate([np.arange(problem.sources), np.arange(problem.nodes - problem.sources)])
    found = problem.score(random_vectors(problem.nodes)[ids], "dot")
    assert 0.3 < found["arc AUC"] < 0.7
    # The group of a source is one before that of its targets, but for the arcs back.
    vectors = np.zeros((problem.nodes, 4), np.float32)
    sources, groups = np.arange(problem.sources), np.eye(4, dtype=np.float32)
    vectors[sources] = groups[sources // 30 + 1]
    vectors[problem.sources :] = groups[np.arange(problem.nodes - problem.sources) // 30]
    found = problem.score(vectors, "cosine")
    assert found["arc AUC"] > 0.75
    assert found["reversed AUC"] > 0.9


def test_only_what_is_wanted_is_measured(folder):
    lines: list[str] = []
    chosen = Selection(folder, ["three", "gone"], measures=["AUC"], notify=lines.append)
    cases = [Case("three", ("clusters", "links"), 8), Case("gone", ("links",)), Case("x", ())]
    (problem,) = chosen.problems(cases)
    assert problem.learnt == "four fifths of the edges"
    assert chosen.keep({"AUC": 0.5, "hits@10": 0.1}) == {"AUC": 0.5}
    assert lines[0] == "  three, four fifths of the edges"
    assert "gone is skipped" in lines[1]
    assert chosen.choose([*OWN, PEER]) == [*OWN, PEER]
    assert Selection(folder, methods=["pycleora"]).choose([*OWN, PEER]) == [PEER]


def test_a_method_is_learnt_measured_or_named_as_skipped(folder, monkeypatch):
    monkeypatch.setattr(peers, "is_installed", lambda name: False)
    unknown = Method("other", {"no_such_option": 1})
    rows = [OWN[0], PEER, unknown]
    case = Case("three", ("clusters", "labels"), 6)
    own, peer, other = bench_quality(Selection(folder), cases=[case], methods=rows)
    assert own.measures["NMI"] > 0.9
    assert own.measures["micro-F1"] > 0.8
    assert own.seconds > 0
    assert own.peak_bytes > 0
    assert peer.skipped == "pycleora is not installed"
    assert "no_such_option" in str(other.skipped)


def test_the_reference_is_the_low_pass_of_users_and_items(folder, tmp_path, client):
    (problem,) = make_problems(folder, Case("shop", ("items",), 20))
    edges = write_pairs(tmp_path / "edges.parquet", problem.pairs)
    ingest(edges, store=tmp_path / "store", client=client)
    users, out = problem.sources, tmp_path / "vectors.npy"
    low_pass(str(tmp_path / "store"), 20, str(out), users)
    vectors = np.load(out)
    taken = np.zeros((users, problem.nodes - users))
    taken[problem.pairs[:, 0], problem.pairs[:, 1] - users] = 1
    scaled = taken / np.sqrt(np.outer(taken.sum(axis=1), taken.sum(axis=0)))
    right = np.linalg.svd(scaled)[2][:20].T
    expected = taken @ right @ right.T
    np.testing.assert_allclose(vectors[:users] @ vectors[users:].T, expected, atol=1e-4)
    assert REFERENCE.fits(problem)
    (whole,) = make_problems(folder, Case("three", ("clusters",), 6))
    assert not REFERENCE.fits(whole)


def test_folded_in_nodes_are_compared_with_the_graph_learnt_whole(folder, client, monkeypatch):
    monkeypatch.setattr(held_back, "score_method", lambda *_: scores()[0])
    monkeypatch.setattr(held_back, "stored", nullcontext)
    monkeypatch.setattr(held_back, "local_session", lambda: nullcontext(Session(client)))
    monkeypatch.setattr(held_back, "SHARES", (0.3,))
    chosen = Selection(folder, measures=["modularity", "mean length"], methods=["figrl"])
    cases = [Case("three", ("clusters",), 6)]
    first, second = held_back.bench_held_back(chosen, cases=cases, draws=1)
    assert (first.measure, first.share, first.whole) == ("modularity", 0.3, 0.7)
    assert 0.45 < first.folded < 0.67
    assert first.describe()["ratio"] == first.folded / 0.7
    assert second.measure == "mean length"


def test_a_peer_is_compared_by_the_metric_it_is_trained_on():
    metrics = {method.name: method.metric for method in OTHERS}
    assert {name for name, metric in metrics.items() if metric == "dot"} == {"fastnode2vec"}


def test_options_are_named_as_in_a_command():
    assert as_method({}) == Method("the preset", {}, "cosine")
    assert as_method({"sketch_size": 9}).name == "--sketch-size 9"
    assert as_method({"representation": "product"}).metric == "dot"
    assert len({as_method(options).name for options in OPTIONS}) == len(OPTIONS)


def scores() -> list[Score]:
    whole, part = "the whole graph", "four fifths of the edges"
    return [
        Score("g", "figrl", whole, 2.0, 10, {"modularity": 0.7, "mean length": 0.9}),
        Score("g", "pycleora", whole, 4.0, 10, {"modularity": 0.5, "mean length": 0.1}),
        Score("g", "fastrp", whole, 1.0, 10, {"modularity": 0.4, "mean length": 0.1}),
        Score("g", "fastnode2vec", whole, skipped="took more than 120 s"),
        Score("g", "figrl", part, 3.0, 10, {"AUC": 0.8}),
        Score("g", "fastrp", part, 1.0, 10, {"AUC": 1.0}),
        Score("shop", "low-pass SVD", "users and items", 1.0, 10, {"recall@20": 0.3}),
    ]


def test_figrl_is_compared_with_the_best_peer():
    found = compare_with_peers(scores())
    first, second = found["ratios"]
    assert (first["measure"], first["best_peer"]) == ("modularity", "pycleora")
    assert first["ratios"] == {"figrl": pytest.approx(1.4)}
    assert first["seconds_ratios"] == {"figrl": 0.5}
    assert (second["measure"], second["ratios"]) == ("AUC", {"figrl": 0.8})
    assert (first["skipped"], second["skipped"]) == (["fastnode2vec"], [])
    assert found["wins"] == {"figrl": {"won": 1, "of": 2}}


def report() -> dict:
    held = [HeldBack("g", "figrl", "AUC", share, 0.8, 0.4) for share in (0.1, 0.2)]
    parts = [{"part": "quality", **score.describe()} for score in scores()]
    return {
        "machine": {"cores": 2, "load_average": 0.25},
        "lines": [],
        "figures": [],
        "scores": parts,
        "held_back": [one.describe() for one in held],
        **compare_with_peers(scores()),
    }


def test_there_is_a_table_for_each_measure():
    tables = report_tables(report())
    assert list(tables) == ["quality", "held-back"]
    by_title = {table.title: table for table in tables["quality"]}
    modularity = by_title[MEASURES["modularity"]]
    assert list(modularity.columns) == ["method", "g"]
    assert modularity.rows == [["figrl", "0.700"], ["pycleora", "0.500"], ["fastrp", "0.400"]]
    assert "| figrl | **0.700** |" in modularity.markdown()
    seconds = by_title["Seconds (load average before the run: 0.2 on 2 cores)"]
    assert seconds.rows[0] == ["figrl", "2", "-"]
    assert by_title["Skipped"].rows[0][3] == "took more than 120 s"
    (wins,) = (table for title, table in by_title.items() if "no peer" in title)
    assert wins.rows == [["figrl", "1 of 2"]]
    (held,) = tables["held-back"]
    assert held.rows == [["AUC", "g", "figrl", "0.800", "0.500", "0.500"]]


def test_tables_are_written_between_markers(tmp_path):
    write_tables(report(), tmp_path / "new.md")
    made = (tmp_path / "new.md").read_text()
    assert "| figrl | **0.700** |" in made
    page = tmp_path / "page.md"
    markers = [
        f"<!-- {place} of figrl bench {part} -->"
        for part in ("quality", "held-back")
        for place in ("begin", "end")
    ]
    page.write_text("above\n{}\nstale\n{}\nbetween\n{}\n{}\nbelow\n".format(*markers))
    write_tables(report(), page)
    once = page.read_text()
    write_tables(report(), page)
    assert page.read_text() == once
    assert "stale" not in once
    assert once.startswith("above\n")
    assert "\nbetween\n" in once
    assert once.endswith("\nbelow\n")
    # A part without markers is added.
    page.write_text("above\n{}\n{}\n".format(*markers[:2]))
    write_tables(report(), page)
    assert markers[2] in page.read_text().rpartition(markers[1])[2]


def test_quality_is_plotted_against_seconds(tmp_path):
    plot_report(report(), tmp_path / "quality.png")
    assert (tmp_path / "quality.png").stat().st_size > 5000
