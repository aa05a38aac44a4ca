"""The estimator: vectors of `embed`, rows that are folded in, and the rules of scikit-learn."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import figrl
from figrl import FIGRL

KARATE = nx.karate_club_graph()
SKIPPED = {"check_array_api_input"}
"""Needs a setting of SciPy for the whole process; other arrays than NumPy's are not taken."""


def random_matrix(rows: int, columns: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.3)
    if rows == columns:
        np.fill_diagonal(dense, 0)
    return sp.csr_array(dense)


@parametrize_with_checks([FIGRL(dim=3)])
def test_it_follows_the_rules_of_scikit_learn(estimator, check):
    if check.func.__name__ in SKIPPED:
        pytest.skip("needs SCIPY_ARRAY_API")
    check(estimator)


def test_its_vectors_are_those_of_embed(client, tmp_path):
    run = figrl.embed(KARATE, store=tmp_path / "store", dim=8, client=client)
    vectors = FIGRL(dim=8).fit_transform(nx.to_scipy_sparse_array(KARATE))
    np.testing.assert_array_equal(vectors, run.lookup(list(range(34))))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("undirected", {}),
        ("undirected", {"smoothing": 0}),
        ("undirected", {"representation": "product"}),
        ("undirected", {"preset": "paper", "width": 8}),
        ("bipartite", {}),
        ("bipartite", {"representation": "product"}),
        ("directed", {}),
    ],
)
def test_rows_that_were_learnt_are_folded_in_to_their_vectors(kind, options):
    matrix = random_matrix(30, 22 if kind == "bipartite" else 30)
    if kind == "undirected":
        matrix = matrix + matrix.T
    model = FIGRL(dim=4, kind=kind, **options)
    vectors = model.fit_transform(matrix)
    np.testing.assert_allclose(model.transform(matrix), vectors, atol=1e-5 * abs(vectors).max())
    if kind != "undirected":
        assert model.target_embedding_.shape == (matrix.shape[1], 4)


def test_a_frame_of_edges_is_its_matrix():
    names = np.array([f"n{i:02d}" for i in range(34)])
    ends = np.array(KARATE.edges)
    frame = pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]})
    model = FIGRL(dim=4).fit(frame)
    matrix = nx.to_scipy_sparse_array(KARATE, weight=None)
    np.testing.assert_array_equal(model.embedding_, FIGRL(dim=4).fit(matrix).embedding_)
    assert list(model.ids_) == list(names)
    new = pd.DataFrame({"source": ["z", "y", "z"], "target": ["n00", "n33", "n01"]})
    rows = np.zeros((2, 34))
    rows[0, 33] = rows[1, 0] = rows[1, 1] = 1
    np.testing.assert_array_equal(model.transform(new), model.transform(rows))
    with pytest.raises(ValueError, match="target 'unknown' is none of the nodes"):
        model.transform(pd.DataFrame({"source": ["z"], "target": ["unknown"]}))


def test_it_is_a_step_of_a_pipeline_and_of_a_grid_search():
    plays, liked = random_matrix(60, 25), np.arange(60) % 2
    search = GridSearchCV(
        make_pipeline(FIGRL(dim=2, kind="bipartite"), LogisticRegression()),
        {"figrl__dim": [2, 4]},
        cv=2,
        error_score="raise",
    )
    assert search.fit(plays, liked).best_params_["figrl__dim"] in (2, 4)
    model = clone(FIGRL(dim=3, kind="bipartite")).fit(plays)
    assert list(model.get_feature_names_out()) == ["figrl0", "figrl1", "figrl2"]


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (random_matrix(6, 4), {}, "square"),
        (random_matrix(6, 6), {}, "not symmetric.*kind='directed'"),
        (random_matrix(6, 6), {"kind": "tree"}, "kind='tree' is none of"),
        (random_matrix(6, 6) + random_matrix(6, 6).T, {"dim": 9}, "dim is 9"),
    ],
)
def test_what_cannot_be_learnt_is_a_value_error(matrix, options, message):
    with pytest.raises(ValueError, match=message):
        FIGRL(**{"dim": 2, **options}).fit(matrix)
