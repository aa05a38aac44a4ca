"""Powers, regularisation, the Ritz step, representations and smoothing against dense algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed, fold_in, ingest
from figrl.errors import ConfigError
from figrl.learn.setup import Tiling
from figrl.learn.sketch import LEAST_CONDITION, Pace
from figrl.store.files import delete
from tests.cutting import cut_products
from tests.learn.test_embed import random_edges
from tests.reference import DenseAccurate, DenseGraph, largest_angle, write_edges

BLOCK_ROWS = 64


def planted_edges(seed: int, *, weighted: bool = False, pairs: int = 0) -> list[tuple]:
    """Six communities of unequal density, so that six eigenvalues stand apart; and loose pairs."""
    rng = np.random.default_rng(seed)
    edges = []
    for community in range(6):
        ends = rng.integers(0, 40, (120 + 60 * community, 2)) + 40 * community
        edges += [(int(a), int(b)) for a, b in ends]
    edges += [(int(a), int(b)) for a, b in rng.integers(0, 240, (60, 2))]
    edges += [(1000 + 2 * pair, 1001 + 2 * pair) for pair in range(pairs)]
    if weighted:
        return [
            (a, b, float(w))
            for (a, b), w in zip(edges, rng.uniform(0.5, 2, len(edges)), strict=True)
        ]
    return edges


@pytest.fixture(scope="module")
def planted(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    edges = planted_edges(1, weighted=True)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=BLOCK_ROWS)
    return folder / "store", DenseGraph.of(edges)


OPTIONS = {"dim": 6, "sketch_size": 24, "regularization": 2.5}


@pytest.mark.parametrize("power_iterations", [0, 1])
@pytest.mark.parametrize(
    "look",
    [
        {"representation": "degree"},
        {"representation": "unit", "exponent": 0.5},
        {"representation": "unit", "smoothing": 1},
        {"representation": "unit", "smoothing": 3},
    ],
    ids=str,
)
def test_vectors_are_those_of_dense_algebra(client, planted, power_iterations, look):
    store, graph = planted
    options = OPTIONS | {"power_iterations": power_iterations, "smoothing": 0} | look
    given_options = {k: v for k, v in options.items() if k != "smoothing" or v}
    if look["representation"] == "unit":
        given_options["smoothing"] = options["smoothing"]
    run = embed(store, client=client, **given_options)
    exact = DenseAccurate.of(graph, **options)
    np.testing.assert_allclose(run.eigenvalues, exact.values, atol=2e-4)
    signs = np.sign((np.asarray(run.vectors) * exact.vectors).sum(axis=0))
    gaps = np.abs(np.diff(np.append(np.abs(exact.values), 0)))
    assert gaps.min() > 2e-3, "the test needs eigenvalues that stand apart"
    scale = np.abs(exact.vectors).max()
    np.testing.assert_allclose(run.vectors * signs, exact.vectors, atol=0.01 * scale)


@pytest.mark.parametrize("power_iterations", [6, 20, 60])
def test_many_powers_find_the_eigenvectors(client, planted, power_iterations):
    store, graph = planted
    run = embed(
        store,
        client=client,
        representation="degree",
        power_iterations=power_iterations,
        **OPTIONS,
    )
    names = [stage["name"] for stage in run.manifest["stages"]]
    assert any(name == "orthonormalise" for name in names)
    root = 1 / np.sqrt(graph.degrees + OPTIONS["regularization"])
    values, vectors = np.linalg.eigh(root[:, None] * graph.weights * root[None, :])
    order = np.argsort(-np.abs(values))[: OPTIONS["dim"]]
    np.testing.assert_allclose(run.eigenvalues, values[order], atol=1e-5)
    left = np.asarray(run.vectors) * np.sqrt(graph.degrees)[:, None]
    assert largest_angle(left, vectors[:, order]) < 2e-3
    np.testing.assert_allclose(left.T @ left, np.eye(OPTIONS["dim"]), atol=1e-4)
    assert max(run.manifest["certificate"]["residuals"]) < 2e-3


# Eight of the 32 combinations, in which every pair of values of two options stands once.
SAMPLE = [
    {
        "power_iterations": (0, 3)[z],
        "regularization": ("auto", 0)[x ^ z],
        "projection": ("gaussian", "sparse-sign")[y ^ z],
        "look": ("degree", "unit", "smooth-1", "smooth-4")[2 * x + y],
    }
    for x, y, z in itertools.product((0, 1), repeat=3)
]
LOOKS = {
    "degree": {"representation": "degree"},
    "unit": {"representation": "unit", "smoothing": 0, "exponent": 0.5},
    "smooth-1": {"representation": "unit", "smoothing": 1},
    "smooth-4": {"representation": "unit", "smoothing": 4},
}


def options_of(point: dict) -> dict:
    options = {key: value for key, value in point.items() if key != "look"}
    return {"dim": 5, "sketch_size": 20, **options, **LOOKS[point["look"]]}


@pytest.mark.parametrize("point", SAMPLE, ids=lambda point: "-".join(map(str, point.values())))
def test_every_combination_folds_in_exactly_and_has_the_same_bits_in_any_tiles(
    client, planted, tmp_path, monkeypatch, point
):
    store, graph = planted
    options = options_of(point)
    run = embed(store, client=client, **options)
    vectors = np.asarray(run.vectors)
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).sum(axis=1).min() > 0
    _check_fold_in(client, store, graph, run, tmp_path)
    nodes = graph.weights.shape[0]
    cut = [(Tiling(12, nodes), Tiling(4, 64))]
    if options["projection"] == "gaussian":
        # Products in a row: more than there are at once, and two at a time.
        cut += [(Tiling(64, nodes, chain), Tiling(64, nodes, chain)) for chain in (2, 100)]
    for tilings in cut:
        cut_products(monkeypatch, "in-other-tiles", *tilings)
        other = embed(store, client=client, **options)
        np.testing.assert_array_equal(np.asarray(other.vectors), vectors)
        delete(other.path)


def _check_fold_in(client, store, graph, run, folder):
    """A seen node with its own edges gets its own vector."""
    halves = [
        (graph.ids[i], graph.ids[j], graph.weights[i, j] / 2)
        for i, j in zip(*np.nonzero(graph.weights), strict=True)
    ]
    folded = fold_in(
        store,
        write_edges(folder / "own.parquet", halves),
        out=folder / "folded.parquet",
        degrees="stored",
        known="recompute",
        run=run.run,
        client=client,
    ).table()
    own = run.lookup(folded["id"].to_pylist())
    found = np.array(folded["vector"].to_pylist())
    np.testing.assert_allclose(found, own, atol=2e-4 * np.abs(own).max())


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(30, 60),
    weighted=st.booleans(),
    parts=st.integers(1, 3),
    power_iterations=st.integers(0, 8),
    regularization=st.sampled_from(["auto", 0, 0.5]),
)
def test_the_certificate_holds(
    client, tmp_path_factory, seed, nodes, weighted, parts, power_iterations, regularization
):
    folder = tmp_path_factory.mktemp("certificate")
    edges = random_edges(seed, nodes, weighted=weighted, parts=parts)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=32)
    run = embed(
        folder / "store",
        dim=4,
        sketch_size=8,
        seed=seed,
        representation="degree",
        power_iterations=power_iterations,
        regularization=regularization,
        client=client,
    )
    certificate = run.manifest["certificate"]
    graph = DenseGraph.of(edges)
    tau = run.manifest["spec"]["regularization"]
    root = 1 / np.sqrt(graph.degrees + tau)
    root[~np.isfinite(root)] = 0
    matrix = root[:, None] * graph.weights * root[None, :]
    squares = np.sort(np.linalg.eigvalsh(matrix) ** 2)[::-1]
    assert certificate["square_norm"] == pytest.approx((matrix**2).sum(), rel=1e-5)
    left = np.asarray(run.vectors) * np.sqrt(graph.degrees)[:, None]
    cost = ((matrix - left @ (left.T @ matrix)) ** 2).sum()
    relative = cost / squares[4:].sum() - 1
    assert certificate["exact_cost"] == pytest.approx(max(relative, 0), abs=1e-4)
    if certificate["cost_bound"] is not None:
        assert relative <= certificate["cost_bound"]
    if power_iterations == 8:
        assert certificate["cost_bound"] < 1


def test_loose_pairs_do_not_fill_the_dimensions(client, tmp_path):
    angles = {}
    for name, pairs in (("without", 0), ("with", 30)):
        edges = planted_edges(3, pairs=pairs)
        path = write_edges(tmp_path / name / "edges.parquet", edges)
        ingest(path, store=tmp_path / name / "store", client=client, block_rows=BLOCK_ROWS)
        run = embed(tmp_path / name / "store", dim=6, representation="degree", client=client)
        known = [i for i in run.ids().to_pylist() if i < 240]
        angles[name] = run.lookup(known)
    assert largest_angle(angles["without"], angles["with"]) < 0.2


def walk_at(pace: Pace, shares_of_one) -> tuple[list[float], int]:
    """The condition after each product, and how often it was measured."""
    condition, left, looks = 1.0, [], 0
    for share in shares_of_one:
        condition *= share
        left.append(condition)
        pace.advance(1)
        if pace.until_measured == 0:
            looks += 1
            condition = 1.0 if pace.is_ill_conditioned(condition) else condition
    return left, looks


@pytest.mark.parametrize("share_of_one", [0.9, 0.5, 0.2, 0.05])
def test_the_condition_is_measured_often_enough_for_any_graph(share_of_one):
    left, _ = walk_at(Pace(), [share_of_one] * 200)
    assert min(left) >= min(LEAST_CONDITION, share_of_one**2) * 0.999


def test_the_pace_is_not_deceived_by_a_mild_beginning():
    # As with many weak directions and a few strong ones: it gets worse faster and faster.
    left, _ = walk_at(Pace(), [0.9, 0.8, 0.5, 0.3, 0.2] + [0.15] * 40)
    assert min(left) > 1e-5


def test_the_condition_is_not_measured_after_every_product():
    _, looks = walk_at(Pace(), [0.7] * 40)
    assert looks <= 14


def test_weak_directions_survive_many_powers(client, tmp_path):
    """Four dense communities far ahead of a random graph, of which eight directions are wanted."""
    rng = np.random.default_rng(0)
    edges = [(int(a), int(b)) for a, b in rng.integers(0, 3000, (30_000, 2))]
    for community in range(4):
        ends = rng.integers(0, 60, (1500, 2)) + 60 * community
        edges += [(int(a), int(b)) for a, b in ends]
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client, block_rows=1024)
    run = embed(
        tmp_path / "store",
        dim=12,
        sketch_size=24,
        power_iterations=30,
        representation="degree",
        client=client,
    )
    assert run.manifest["rank"] == 12
    graph = DenseGraph.of(edges)
    root = 1 / np.sqrt(graph.degrees + run.manifest["spec"]["regularization"])
    values = np.linalg.eigvalsh(root[:, None] * graph.weights * root[None, :])
    exact = np.sort(np.abs(values))[::-1][:12]
    np.testing.assert_allclose(np.abs(run.eigenvalues[:5]), exact[:5], atol=1e-4)
    # Weak directions of both signs come in no order, but all of them are strong enough.
    assert 0.98 < run.manifest["certificate"]["captured"] / (exact**2).sum() <= 1.0001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"representation": "degree", "smoothing": 2}, "--smoothing is for the unit"),
        ({"certificate": "no"}, "unit representation weighs vectors by eigenvalues"),
        ({"regularization": "lots"}, "--regularization is 'lots': has to be auto, or a number"),
        ({"regularization": -1}, "has to be auto, or a number from 0 on"),
        ({"power_iterations": -1}, "--power-iterations is -1"),
    ],
)
def test_what_does_not_go_together_is_refused(client, planted, options, message):
    with pytest.raises(ConfigError, match=message):
        embed(planted[0], dim=4, client=client, **options)


def test_options_that_come_to_the_same_are_the_same_run(client, planted):
    first = embed(planted[0], dim=4, client=client)
    mean = first.graph.mean_degree
    spec = first.manifest["spec"]
    same = embed(
        planted[0],
        dim=4,
        sketch_size=8,
        regularization=mean,
        smoothing=spec["smoothing"],
        client=client,
    )
    assert same.run == first.run
