"""The estimator: vectors of `embed`, rows that are folded in, and the rules of scikit-learn."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

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
from figrl.api.estimator import _in_threads

KARATE = nx.karate_club_graph()
SKIPPED = {"check_array_api_input"}
"""Needs a setting of SciPy for the whole process; other arrays than NumPy's are not taken."""


def random_matrix(rows: int, columns: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.3)
    if rows == columns:
        np.fill_diagonal(dense, 0)
    return sp.csr_array(dense)


def frame(sources, targets):
    return pd.DataFrame({"source": sources, "target": targets})


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
        (
            random_matrix(6, 4),
            {},
            r"has the shape \(6, 4\).*a column for each node.*kind='bipartite'",
        ),
        (
            np.array(KARATE.edges),
            {},
            r"\(78, 2\).*pandas\.DataFrame\(X, columns=\['source', 'target'\]\)",
        ),
        (pd.DataFrame([[1, 2]] * 3, columns=["a", "b"]), {}, "those of X are a, b: rename them"),
        (np.eye(6), {}, "no edge: all its entries off the diagonal are zero"),
        (sp.csr_array((6, 6)), {"kind": "directed"}, "no edge: all its entries off the diagonal"),
        (np.zeros((6, 3)), {"kind": "bipartite"}, "no edge: all its entries are zero"),
        (frame(["a", "b"], ["a", "b"]), {}, "no edge: all its entries off the diagonal are zero"),
        (frame([], []), {}, "The frame of edges is empty. Give at least one edge"),
        (frame(["a", None], ["b", "c"]), {}, r"1 value is missing in 'source'.*dropna\(\)"),
        (frame([1, 2], ["b", "c"]), {}, "not of one type: 1 and 'b'"),
        (frame([1, "a"], ["b", "c"]), {}, "does not hold values of one type"),
        (random_matrix(6, 6), {"kind": "directed", "random_state": -1}, "^random_state is -1: "),
        (random_matrix(6, 6), {}, "not symmetric.*kind='directed'"),
        (random_matrix(6, 6), {"kind": "tree"}, "kind='tree' is none of"),
        (random_matrix(6, 6) + random_matrix(6, 6).T, {"dim": 9}, "dim is 9"),
    ],
)
def test_what_cannot_be_learnt_is_a_value_error(matrix, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        FIGRL(**{"dim": 2, **options}).fit(matrix)
    assert "kernel" not in str(refused.value)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (KARATE, r"no networkx Graph\. Give networkx\.to_scipy_sparse_array\(graph\)"),
        ("edges.csv", r"no path: 'edges\.csv'\. Read the file, or give it to figrl\.embed"),
    ],
)
def test_what_is_neither_a_matrix_nor_a_frame_is_a_type_error(graph, message):
    model = FIGRL(dim=2)
    with pytest.raises(TypeError, match=message):
        model.fit(graph)
    model.fit(nx.to_scipy_sparse_array(KARATE))
    with pytest.raises(TypeError, match=message):
        model.transform(graph)


def test_a_frame_of_pandas_is_named_by_the_ids_of_the_nodes():
    edges = frame([5, 3, 3, 9, 9], [3, 9, 7, 7, 5])
    model = FIGRL(dim=2)
    vectors = model.fit_transform(edges)
    assert isinstance(vectors, np.ndarray)
    named = model.set_output(transform="pandas").fit_transform(edges)
    assert named.index.tolist() == [3, 5, 7, 9]
    assert named.columns.tolist() == ["figrl0", "figrl1"]
    np.testing.assert_array_equal(named, vectors)
    new = frame([30, 20], [3, 9])
    assert model.transform(new).index.tolist() == [20, 30]
    with pytest.raises(ValueError, match="target 8 is none of the nodes that were learnt"):
        model.transform(frame([30], [8]))
    with pytest.raises(ValueError, match="not of one type: 3 and 'x'"):
        model.transform(frame([30], ["x"]))


def test_its_cluster_listens_on_loopback_only_and_serves_nothing(tmp_path):
    with _in_threads(str(tmp_path)) as client:
        server = client.cluster.scheduler.http_server
        places = {listening.getsockname()[0] for listening in server._sockets.values()}
        [worker] = client.cluster.workers.values()
        places |= {one.getsockname()[0] for one in worker.http_server._sockets.values()}
        assert places == {"127.0.0.1"}
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{server.port}/health")
