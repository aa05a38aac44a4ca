"""The deep sketch, regularisation, representations and smoothing against dense algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed, fold_in, ingest
from figrl.errors import ConfigError
from figrl.learn.balance import balance, mean_taken_out
from figrl.learn.setup import Tiling
from figrl.learn.smooth import local_weight, recurrence
from figrl.store.files import delete
from tests.cutting import cut_products
from tests.learn.test_embed import random_edges
from tests.reference import DenseDeep, DenseGraph, krylov_space, largest_angle, write_edges

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


OPTIONS = {"dim": 6, "width": 12, "regularization": 2.5}
LOOKS = [
    {"representation": "degree"},
    {"representation": "product"},
    {"representation": "unit", "smoothing": 0},
    {"representation": "unit", "smoothing": 1},
    {"representation": "unit", "smoothing": 4},
    {"representation": "unit", "smoothing": 0, "prominence": 0.5},
    {"representation": "unit", "smoothing": 3, "prominence": 0.75},
]


@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_vectors_are_those_of_dense_algebra(client, planted, depth, look):
    store, graph = planted
    options = OPTIONS | {"depth": depth} | look
    run = embed(store, client=client, **options)
    exact = DenseDeep.of(graph, **options)
    np.testing.assert_allclose(run.eigenvalues, exact.values, atol=1e-5)
    assert run.manifest["smoothing_steps"] == look.get("smoothing", 0)
    signs = np.sign((np.asarray(run.vectors) * exact.vectors).sum(axis=0))
    gaps = np.abs(np.diff(np.append(np.abs(exact.values), 0)))
    assert gaps.min() > 2e-3, "the test needs eigenvalues that stand apart"
    scale = np.abs(exact.vectors).max()
    np.testing.assert_allclose(run.vectors * signs, exact.vectors, atol=2e-3 * scale)


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(60, 90),
    weighted=st.booleans(),
    parts=st.integers(1, 3),
    block_bits=st.integers(2, 7),
    # Spaces of more dimensions than the graph has nodes are all rounding in the end.
    width=st.integers(4, 8),
    depth=st.integers(1, 6),
    regularization=st.sampled_from(["auto", 0, 0.5]),
    representation=st.sampled_from(["degree", "unit", "product"]),
)
def test_any_sketch_of_any_graph(
    client,
    tmp_path_factory,
    seed,
    nodes,
    weighted,
    parts,
    block_bits,
    width,
    depth,
    regularization,
    representation,
):
    """Ritz values, the space they span, the certificate, and the fold-in of known nodes."""
    folder = tmp_path_factory.mktemp("deep")
    edges = random_edges(seed, nodes, weighted=weighted, parts=parts)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=1 << block_bits)
    dim = min(4, width * depth)
    options = {"dim": dim, "width": width, "depth": depth, "representation": representation}
    smoothing = {"smoothing": seed % 3} if representation == "unit" else {}
    run = embed(
        folder / "store",
        seed=seed,
        regularization=regularization,
        client=client,
        **options,
        **smoothing,
    )
    graph = DenseGraph.of(edges)
    _check_fold_in(client, folder / "store", graph, run, folder)
    if run.manifest["spec"]["depth"] == 1 and representation == "degree":
        return
    tau = run.manifest["spec"]["regularization"]
    exact = DenseDeep.of(graph, seed=seed, regularization=tau, **options)
    positive = exact.values > 0 if representation == "product" else np.full(dim, True)
    np.testing.assert_allclose(run.eigenvalues[positive], exact.values[positive], atol=1e-5)
    certificate = run.manifest["certificate"]
    all_values = np.linalg.eigvalsh(exact.matrix)
    assert certificate["square_norm"] == pytest.approx((exact.matrix**2).sum(), rel=1e-5)
    for value, residual in zip(run.eigenvalues, certificate["residuals"], strict=True):
        assert np.abs(all_values - value).min() <= residual + 1e-5
    captured = np.square(exact.matrix @ exact.left[:, positive]).sum()
    assert certificate["captured"] == pytest.approx(captured, rel=1e-3, abs=1e-6)
    if representation == "degree":
        gap = _gap_after(graph, exact, seed, options)
        left = np.asarray(run.vectors) * np.sqrt(graph.degrees)[:, None]
        if gap > 0.02:
            assert largest_angle(left, exact.left) < 1e-3


def _gap_after(graph, exact, seed, options):
    """Distance of the size of the last eigenvalue to the next one."""
    space = krylov_space(exact.matrix, graph.projection(options["width"], seed), options["depth"])
    sizes = np.sort(np.abs(np.linalg.eigvalsh(space.T @ exact.matrix @ space)))[::-1]
    after = sizes[options["dim"]] if sizes.size > options["dim"] else 0.0
    return sizes[options["dim"] - 1] - after


def test_a_deep_sketch_finds_the_eigenvectors(client, planted):
    store, graph = planted
    run = embed(store, client=client, representation="degree", depth=20, **OPTIONS)
    root = 1 / np.sqrt(graph.degrees + OPTIONS["regularization"])
    values, vectors = np.linalg.eigh(root[:, None] * graph.weights * root[None, :])
    order = np.argsort(-np.abs(values))[: OPTIONS["dim"]]
    np.testing.assert_allclose(run.eigenvalues, values[order], atol=1e-5)
    left = np.asarray(run.vectors) * np.sqrt(graph.degrees)[:, None]
    assert largest_angle(left, vectors[:, order]) < 1e-3
    np.testing.assert_allclose(left.T @ left, np.eye(OPTIONS["dim"]), atol=1e-4)
    assert max(run.manifest["certificate"]["residuals"]) < 2e-3


# Eight of the combinations, in which every pair of values of two options stands once.
SAMPLE = [
    {
        "depth": (1, 4)[z],
        "regularization": ("auto", 0)[x ^ z],
        **(LOOKS[0], LOOKS[1], LOOKS[3], LOOKS[6])[2 * x + y],
    }
    for x, y, z in itertools.product((0, 1), repeat=3)
] + [{"depth": 5, "regularization": "auto", "representation": "unit", "smoothing": "auto"}]


@pytest.mark.parametrize("point", SAMPLE, ids=lambda point: "-".join(map(str, point.values())))
def test_every_combination_folds_in_exactly_and_has_the_same_bits_in_any_tiles(
    client, planted, tmp_path, monkeypatch, point
):
    store, graph = planted
    options = {"dim": 5, "width": 12, **point}
    run = embed(store, client=client, **options)
    vectors = np.asarray(run.vectors)
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).sum(axis=1).min() > 0
    _check_fold_in(client, store, graph, run, tmp_path)
    nodes = graph.weights.shape[0]
    cut = [(Tiling(4, nodes), Tiling(4, 64)), (Tiling(12, 50), Tiling(5, 30, groups=2))]
    # Chains of products: one, two at a time, and more than there are at once; in slices or not.
    cut += [
        (Tiling(4, nodes, 1, holds_graph=True), Tiling(2, nodes, 1)),
        (Tiling(4, nodes, 2), Tiling(5, nodes, 2, holds_graph=True)),
        (Tiling(12, nodes, 100, holds_graph=True), Tiling(3, nodes, 100)),
    ]
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


def test_dense_graphs_keep_more_of_the_vectors_before_smoothing():
    assert local_weight(0.0) == 0
    assert local_weight(0.05) == pytest.approx(0.2)
    assert local_weight(0.6) == 0.5


@pytest.mark.parametrize("steps", [1, 2, 5, 30])
def test_the_filter_keeps_what_is_the_same_everywhere_and_damps_the_rest(steps):
    """By its values at eigenvalues of P; the last step multiplies them once more."""
    points = np.linspace(-1, 1, 2001)
    before, latest = np.zeros_like(points), np.ones_like(points)
    for factor, share in recurrence(steps):
        before, latest = latest, factor * points * latest - share * before
    assert latest[-1] == pytest.approx(1)
    exact = np.cosh(steps * np.arccosh(1 / 0.85))
    inside = np.abs(points) <= 0.85
    np.testing.assert_allclose(
        latest[inside], np.cos(steps * np.arccos(points[inside] / 0.85)) / exact, atol=1e-9
    )


def test_balanced_directions_are_more_even_and_rows_as_long_as_before():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)) * [1, 2, 4, 8, 16, 0]
    even = rows @ balance(rows.T @ rows / 500, 0.0)
    assert np.square(even).sum() == pytest.approx(np.square(rows).sum())
    before, after = (np.linalg.svd(each)[1][:5] for each in (rows, even))
    ratios = (after / after[0]) / (before / before[0]) ** 0.65
    np.testing.assert_allclose(ratios, 1, rtol=1e-6)
    np.testing.assert_array_equal(balance(np.zeros((3, 3)), 0.0), np.eye(3))


def test_the_common_mean_is_taken_out_of_dense_graphs_alone():
    assert mean_taken_out(0.2) == 0
    assert mean_taken_out(0.5) == pytest.approx(0.6)
    rng = np.random.default_rng(0)
    rows = rng.normal([9, 0, 0, 0, 0, 0], size=(500, 6))
    gram = rows.T @ rows / 500
    kept, left = (rows @ balance(gram, share) for share in (0.0, 0.6))
    # The other directions stay as they were, but for the scale of all.
    common = np.linalg.eigh(gram)[1][:, -1]
    others = (part - np.outer(part @ common, common) for part in (kept, left))
    first, second = others
    scale = np.linalg.norm(second) / np.linalg.norm(first)
    np.testing.assert_allclose(second, scale * first, atol=1e-9)
    np.testing.assert_allclose(left @ common, 0.4 * scale * (kept @ common), atol=1e-9)


def test_linked_nodes_of_a_bipartite_graph_are_close(client, tmp_path):
    """Eigenvalues come as pairs of both signs; those below zero must not cancel the others."""
    rng = np.random.default_rng(0)
    edges = set()
    for user in range(300):
        group = user % 6
        for item in rng.integers(0, 20, 8):
            edges.add((user, 1000 + 20 * group + int(item)))
        edges.add((user, 1000 + int(rng.integers(0, 120))))
    path = write_edges(tmp_path / "edges.parquet", sorted(edges))
    ingest(path, store=tmp_path / "store", client=client, block_rows=BLOCK_ROWS)
    ends = np.array(sorted(edges))
    for options in ({}, {"smoothing": 0}, {"representation": "product"}):
        run = embed(tmp_path / "store", dim=16, client=client, **options)
        users, items = run.lookup(ends[:, 0]), run.lookup(ends[:, 1])
        shuffled = items[rng.permutation(len(items))]
        linked, others = (np.einsum("ij,ij->i", users, x).mean() for x in (items, shuffled))
        assert linked > 2 * others
        units = run.lookup(np.unique(ends))
        units = units / np.linalg.norm(units, axis=1, keepdims=True)
        assert np.linalg.norm(units.mean(axis=0)) < 0.8


def test_the_dot_product_of_a_full_product_is_the_weight(client, tmp_path):
    """A graph of few directions, all of them positive: cliques with weights of their nodes."""
    rng = np.random.default_rng(3)
    edges = []
    for clique in range(4):
        sizes = rng.uniform(1, 3, 40)
        edges += [
            (40 * clique + i, 40 * clique + j, float(sizes[i] * sizes[j]))
            for i in range(40)
            for j in range(i)
        ]
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client, block_rows=BLOCK_ROWS)
    run = embed(tmp_path / "store", dim=4, representation="product", client=client)
    vectors = np.asarray(run.vectors, np.float64)
    weights = DenseGraph.of(edges).weights
    off_diagonal = ~np.eye(len(weights), dtype=bool)
    found = (vectors @ vectors.T)[off_diagonal]
    assert np.abs(found - weights[off_diagonal]).max() < 0.1 * weights.max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"representation": "degree", "smoothing": 2}, "smoothing is for the unit"),
        ({"representation": "product", "smoothing": 1}, "smoothing is for the unit"),
        ({"representation": "product", "prominence": 1}, "prominence is for the unit"),
        ({"prominence": 11}, "^prominence is 11: has to be auto, or a weight from 0 to 10"),
        ({"smoothing": "much"}, "^smoothing is 'much': has to be auto, or a number of steps"),
        ({"smoothing": 101}, "from 0 to 100"),
        ({"width": 3, "depth": 1}, "has only 3 columns .width 3 x depth 1.. Give a width of"),
        ({"width": 8, "sketch_size": 64}, "Give width or sketch_size, not both"),
        ({"regularization": "lots"}, "^regularization is 'lots': has to be auto, or a number"),
        ({"regularization": -1}, "has to be auto, or a number from 0 on"),
        ({"depth": 0}, "^depth is 0"),
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
        width=spec["width"],
        depth=8,
        regularization=mean,
        client=client,
    )
    assert same.run == first.run
