"""Rivals on the page: their tables, what was skipped, and the figures that the paper prints."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from figrl.study import paper, peers
from figrl.study.page import Section, render, shown
from figrl.study.parts.rivals import rival_dim, rival_keys, rival_picture, rival_tables
from figrl.study.parts.timing import printed_table
from tests.study.rivals.planted import planted_lists, separation

OURS = {
    ("karate", "k-means"): {"modularity": 0.37, "permanence": 0.5, "nmi": 0.9},
    ("dolphins", "k-means"): {"modularity": 0.48, "permanence": 0.2, "nmi": None},
}
MEASURED = {"modularity": 0.25, "permanence": -0.125, "nmi": 0.75}
RESULTS = {
    ("karate", "LINE", 17): {"k-means": MEASURED},
    ("karate", "GraphSAGE", 17): {"skipped": "took more than 120 s"},
    ("dolphins", "LINE", 31): {"k-means": MEASURED | {"nmi": None}},
}


def test_measured_and_printed_values_stand_side_by_side():
    modularity, permanence, nmi = rival_tables(["karate", "dolphins"], ["k-means"], OURS, RESULTS)
    karate = dict(zip(modularity.columns, modularity.rows[0], strict=True))
    assert (karate["figrl"], karate["FI-GRL, printed"]) == (0.37, 0.410)
    assert (karate["LINE"], karate["LINE, printed"]) == (0.25, 0.403)
    assert (karate["GraphSAGE"], karate["GraphSAGE, printed"]) == ("took more than 120 s", 0.381)
    assert (karate["DeepWalk"], karate["DeepWalk, printed"]) == (None, 0.396)
    dolphins = dict(zip(permanence.columns, permanence.rows[1], strict=True))
    assert (dolphins["LINE"], dolphins["LINE, printed"]) == (-0.125, -0.166)
    assert nmi.rows == [["karate", "k-means", 0.9, None, "took more than 120 s", 0.75, None]]
    picture = rival_picture(["karate", "dolphins"], OURS, RESULTS)
    text = render("t", [], [Section("s", "S", [], [modularity, permanence, nmi], [picture])])
    for column in (*modularity.columns, *nmi.columns):
        assert f">{column}</th>" in text
    assert "took more than 120 s</td>" in text


def test_every_rival_of_the_paper_is_measured():
    assert tuple(peers.RIVALS) == paper.METHODS[1:]
    assert [key.method for key in rival_keys("karate", 34, quick=False)] == list(peers.RIVALS)
    assert (rival_dim(34), rival_dim(9877)) == (17, 100)
    assert set(paper.TIMED[len(paper.SKETCH_SIZES) :]) < set(peers.RIVALS)


def test_running_times_are_those_of_the_paper():
    assert paper.SECONDS["ca-HepTh"]["DeepWalk"] == 15 * 60 + 59
    assert paper.SECONDS["email-Enron"]["GraphSAGE"] == 4 * 3600 + 39 * 60
    assert paper.SECONDS["com-dblp"][1000] == 2 * 60 + 14
    assert math.isinf(paper.SECONDS["youtube"]["node2vec"])
    table = printed_table()
    assert (len(table.rows), len(table.columns)) == (7, 10)
    assert [shown(cell) for cell in table.rows[-1][-3:]] == ["16,740", *["more than 10 h"] * 2]


@pytest.mark.parametrize("name", ["LINE", "DeepWalk", "node2vec"])
def test_rivals_learn_from_a_matrix(name):
    if not peers.is_installed(name):
        pytest.skip(f"{peers.RIVALS[name][0]} is not installed")
    matrix = sparse.csr_matrix(planted_lists().matrix())
    vectors = peers.RIVALS[name][1](matrix, 16)
    assert vectors.shape == (120, 16)
    assert np.isfinite(vectors).all()
    assert separation(vectors) > 0.9
