"""``figrl holes`` and ``figrl study``: exit codes, what they print, and where they write."""

from __future__ import annotations

import gzip
from pathlib import Path

import networkx as nx
import pytest

from tests.reference import write_edges


@pytest.fixture(scope="module")
def learnt(client, tmp_path_factory) -> Path:
    from figrl import embed, ingest

    folder = tmp_path_factory.mktemp("karate")
    edges = [(f"member {a + 1}", f"member {b + 1}") for a, b in nx.karate_club_graph().edges()]
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client)
    embed(folder / "store", dim=3, sketch_size=32, client=client)
    return folder / "store"


def test_holes_are_named_by_their_ids(figrl, learnt):
    line = ["holes", "--store", learnt, "-n", 3, "--clusters", 2, "--runs", 300]
    outcome = figrl(*line, "--json")
    assert outcome.code == 0
    ids = {hole["id"] for hole in outcome.json["holes"]}
    assert len(ids) == 3
    assert ids <= {f"member {number}" for number in range(1, 35)}
    assert all(0 < hole["shii_ic"] < hole["shii_lt"] for hole in outcome.json["holes"])
    told = figrl(*line)
    assert told.code == 0
    assert all(hole in told.out for hole in ids)
    assert "SHII, LT" in told.out
    assert not list((learnt / "work").glob("holes*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", 0], "-n is 0. Allowed are 1 to 34"),
        (["--clusters", 35], "--clusters is 35"),
        (["--probability", 2], "--probability is 2.0"),
    ],
)
def test_holes_that_cannot_be_are_a_usage_error(figrl, learnt, words, message):
    outcome = figrl("holes", "--store", learnt, *words, "--json")
    assert outcome.code == 2
    assert message in outcome.json["error"]


def test_a_part_of_the_study(figrl, tmp_path):
    with gzip.open(tmp_path / "karate.txt.gz", "wt") as file:
        file.writelines(f"{a}\t{b}\n" for a, b in nx.karate_club_graph().edges())
    out = tmp_path / "study"
    words = ["study", "karate", "--data", tmp_path, "--out", out, "--quick", "--json"]
    outcome = figrl(*words, "--verbose")
    assert outcome.code == 0
    assert outcome.json["page"] == str(out / "quick" / "karate.html")
    assert outcome.json["tables"] == [str(out / "quick" / "csv" / "karate.csv")]
    assert "karate: 6 blocks in" in outcome.err
    again = figrl(*words[:-1], "--verbose")
    assert "6 of them done before" in again.err
    assert "1 CSV files" in again.out


def test_a_study_without_graphs_says_which_are_wanted(figrl, tmp_path):
    outcome = figrl("study", "all", "--data", tmp_path, "--out", tmp_path / "out", "--json")
    assert outcome.code == 3
    assert "karate.txt.gz" in outcome.json["error"]
    assert figrl("study", "colours", "--data", tmp_path, "--out", tmp_path).code == 2
