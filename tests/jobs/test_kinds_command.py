"""Kinds of graph and decay on the command line."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.learn.test_embed import random_edges
from tests.reference import write_edges


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """Edges between users 0 to 39 and items 20 to 59."""
    edges = [(a, b + 20) for a, b in random_edges(4, 40, weighted=False)]
    edges += [(i, i + 20) for i in range(40)]
    return write_edges(tmp_path_factory.mktemp("plays") / "plays.parquet", edges)


def test_a_bipartite_graph_from_edges_to_neighbours(figrl, plays, tmp_path):
    store = tmp_path / "store"
    ingested = figrl("ingest", plays, "--store", store, "--kind", "bipartite")
    assert ingested.code == 0
    assert "A graph of 80 nodes" in ingested.out
    assert "bipartite (40 source, 40 target)" in ingested.out
    paper = ("--preset", "paper", "--dim", 4, "--sketch-size", 30)
    assert figrl("embed", "--store", store, *paper).code == 0
    asked = ("neighbors", "--store", store, 30, "-n", 2)
    missing = figrl(*asked)
    assert missing.code == 2
    assert "30 is on both sides" in missing.err
    assert "--side" in missing.err
    found = figrl(*asked, "--side", "source", "--json").json["neighbors"]
    assert [row["neighbor_side"] for row in found] == ["target", "target"]
    shown = figrl(*asked, "--side", "source", "--among", "source").out
    assert shown.splitlines()[0].split() == [
        *("id", "side", "rank", "neighbor", "neighbor", "side", "cosine")
    ]
    unknown = figrl("neighbors", "--store", store, 5, "--side", "target")
    assert unknown.code == 3
    assert "not in the graph as a target: 5" in unknown.err
    new = write_edges(tmp_path / "new.parquet", [(900, 3), (900, 4)])
    folded = figrl(
        *("fold-in", new, "--store", store, "--side", "target", "--out", tmp_path / "v.parquet")
    )
    assert folded.code == 0
    assert pq.read_table(tmp_path / "v.parquet").drop(["vector"]).to_pylist() == [
        {"id": 900, "side": "target"}
    ]
    holes = figrl("holes", "--store", store, "-n", 2, "--clusters", 3)
    assert holes.out.split()[:3] == ["rank", "id", "side"]
    assert "(bipartite, 80 nodes" in figrl("status", "--store", store).out


def test_the_hint_is_in_the_summary_and_the_report(figrl, tmp_path):
    path = write_edges(tmp_path / "e.parquet", [(1, 10), (2, 10)])
    words = ("ingest", path, "--store", tmp_path / "store")
    assert "note: No id is in both columns" in figrl(*words).out
    assert "--kind bipartite" in figrl(*words, "--json").json["notes"][0]


def test_decay_on_the_command_line(figrl, tmp_path):
    (tmp_path / "e.csv").write_text("a,b,at\n1,2,2026-01-01\n2,3,2026-01-31\n")
    words = ("ingest", tmp_path / "e.csv", "--store", tmp_path / "store", "--time", "at")
    assert "--time and --half-life belong together" in figrl(*words).err
    done = figrl(*words, "--half-life", "30d", "--as-of", "2026-01-31", "--json")
    assert (done.code, done.json["weighted"]) == (0, True)
    assert done.json["mean_degree"] == pytest.approx((0.5 + 1.5 + 1.0) / 3)
    shown = figrl(*words, "--half-life", "30d")
    assert "30d, up to 2026-01-31 00:00:00+00:00" in shown.out


def test_wrong_kinds_and_sides_are_usage_errors(figrl, store, tmp_path):
    assert figrl("ingest", "e.csv", "--store", tmp_path, "--kind", "mixed").code == 2
    assert figrl("neighbors", "--store", tmp_path, 1, "--side", "left").code == 2
