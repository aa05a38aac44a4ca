"""The whole embedding against the paper in dense float64."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed as embed_accurately
from figrl import ingest
from figrl.errors import ConfigError
from figrl.learn.setup import Tiling
from figrl.store.arrays import open_zarr
from tests.cutting import cut_products
from tests.reference import DenseGraph, DensePaper, largest_angle, write_edges

embed = partial(embed_accurately, preset="paper")


def random_edges(seed: int, nodes: int, *, weighted: bool, parts: int = 1) -> list[tuple]:
    """Random edges in several components, some repeated, some loops."""
    rng = np.random.default_rng(seed)
    edges: list[tuple] = []
    for part in range(parts):
        ends = rng.integers(0, nodes, (4 * nodes, 2)) + part * nodes
        edges += [(int(a), int(b)) for a, b in ends]
    edges += edges[:5]
    if weighted:
        return [
            (a, b, float(w))
            for (a, b), w in zip(edges, rng.uniform(0.1, 5, len(edges)), strict=True)
        ]
    return edges


def check_against_paper(run, edges, *, dim, sketch_size, seed=0):
    graph = DenseGraph.of(edges)
    paper = DensePaper.of(graph, dim=dim, sketch_size=sketch_size, seed=seed)
    assert run.ids().to_pylist() == graph.ids
    exact = paper.singular_values
    np.testing.assert_allclose(run.singular_values, exact[:dim], rtol=1e-5, atol=1e-6 * exact[0])
    gaps = -np.diff(np.append(exact, 0.0))
    vectors = np.asarray(run.vectors)
    assert vectors.dtype == np.float32
    if gaps[dim - 1] > 0.02 * exact[0]:
        left = vectors / np.where(graph.inverse_root > 0, graph.inverse_root, 1)[:, None]
        assert largest_angle(left, paper.left) < 1e-3
    # A vector is fixed, sign and all, where its singular value stands apart from the others.
    apart = np.minimum(gaps[:dim], np.append(np.inf, gaps)[:dim]) > 0.02 * exact[0]
    scale = np.abs(paper.vectors).max()
    np.testing.assert_allclose(
        vectors[:, apart], paper.vectors[:, apart], rtol=1e-3, atol=1e-3 * scale
    )
    basis = np.asarray(open_zarr(run.path / "basis")[...])
    np.testing.assert_allclose(
        basis[:, apart], paper.basis[:, apart], rtol=1e-3, atol=1e-3 * np.abs(paper.basis).max()
    )
    return int(apart.sum())


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(12, 40),
    weighted=st.booleans(),
    parts=st.integers(1, 3),
    block_bits=st.integers(0, 7),
    sketch_size=st.integers(6, 37),
)
def test_it_is_the_paper(
    client, tmp_path_factory, seed, nodes, weighted, parts, block_bits, sketch_size
):
    folder = tmp_path_factory.mktemp("paper")
    edges = random_edges(seed, nodes, weighted=weighted, parts=parts)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=1 << block_bits)
    run = embed(folder / "store", dim=5, sketch_size=sketch_size, seed=seed, client=client)
    check_against_paper(run, edges, dim=5, sketch_size=sketch_size, seed=seed)


def test_a_spectrum_with_gaps_fixes_every_vector(client, tmp_path):
    # Cliques of different sizes hang on a path: their singular values stand apart.
    edges, first = [], 0
    for size in (4, 6, 9, 14, 22):
        edges += [(first + i, first + j) for i in range(size) for j in range(i)]
        edges += [(first, first + size)]
        first += size
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client, block_rows=8)
    run = embed(tmp_path / "store", dim=4, sketch_size=512, client=client)
    assert check_against_paper(run, edges, dim=4, sketch_size=512) >= 2


@pytest.fixture(scope="module")
def small(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    edges = random_edges(5, 300, weighted=True)
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=64)
    return folder / "store", edges


@pytest.mark.parametrize(
    "tiling",
    [Tiling(64, 299), Tiling(16, 299), Tiling(16, 64), Tiling(4, 7), Tiling(20, 100)],
    ids=str,
)
def test_slices_and_parts_of_the_operand_do_not_change_a_bit(client, small, monkeypatch, tiling):
    store, _ = small
    usual = np.asarray(embed(store, dim=8, sketch_size=50, client=client, seed=1).vectors)
    cut_products(monkeypatch, f"tiled-{tiling.slice_columns}", tiling, tiling)
    other = embed(store, dim=8, sketch_size=50, client=client, seed=1)
    np.testing.assert_array_equal(np.asarray(other.vectors), usual)


def test_memory_limits_do_not_change_a_bit(client, small):
    store, _ = small
    first = embed(store, dim=8, sketch_size=50, client=client, seed=2)
    vectors = np.asarray(first.vectors)
    shutil.rmtree(first.path)
    again = embed(store, dim=8, sketch_size=50, client=client, seed=2, memory_limit="620MB")
    assert again.run == first.run
    np.testing.assert_array_equal(np.asarray(again.vectors), vectors)


def test_the_seed_changes_the_sketch_and_a_seed_repeats_it(client, small):
    store, edges = small
    one = embed(store, dim=6, sketch_size=40, seed=3, client=client)
    two = embed(store, dim=6, sketch_size=40, seed=4, client=client)
    assert one.run != two.run
    assert not np.allclose(one.singular_values, two.singular_values, rtol=1e-4)
    check_against_paper(one, edges, dim=6, sketch_size=40, seed=3)


def test_a_node_without_edges_has_a_zero_vector(client, tmp_path):
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (9, 9)]
    path = write_edges(tmp_path / "edges.parquet", edges)
    ingest(path, store=tmp_path / "store", client=client)
    run = embed(tmp_path / "store", dim=2, sketch_size=8, client=client)
    assert not run[9].any()
    assert np.abs(run[2]).sum() > 0


def test_dimensions_without_information_are_zero(client, tmp_path):
    # A star has rank 2, whatever the number of its leaves.
    path = write_edges(tmp_path / "edges.parquet", [(0, leaf) for leaf in range(1, 12)])
    ingest(path, store=tmp_path / "store", client=client)
    run = embed(tmp_path / "store", dim=5, sketch_size=10, client=client)
    assert run.manifest["rank"] == 2
    assert not np.asarray(run.vectors)[:, 2:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 10, "sketch_size": 8}, "^dim is 10, but the sketch has only 8 columns"),
        ({"dim": 300, "sketch_size": 400}, "at most 298"),
        ({"dim": 8, "sketch_size": 40_000}, "32768"),
        ({"dim": 8, "sketch_size": 0}, "^sketch_size is 0"),
        ({"dim": 0}, "^dim is 0"),
        ({"dim": 8, "epsilon": 0.001}, "Allowed are 8 to 32768.*an epsilon of at least 0.0"),
        ({"dim": 8, "epsilon": 1.5}, "^epsilon is 1.5"),
        ({"dim": 8, "epsilon": 0.5, "sketch_size": 99}, "not both"),
    ],
)
def test_what_is_not_allowed_says_what_is(client, small, options, message):
    with pytest.raises(ConfigError, match=message):
        embed(small[0], client=client, **options)


def test_a_sketch_with_more_columns_than_nodes_is_factored_by_rows(client, small, monkeypatch):
    store, edges = small
    run = embed(store, dim=8, sketch_size=700, client=client)
    assert [s["name"] for s in run.manifest["stages"]] == ["sketch", "factor", "vectors"]
    assert check_against_paper(run, edges, dim=8, sketch_size=700) >= 1
    vectors = np.asarray(run.vectors)
    cut_products(monkeypatch, "in-slices", Tiling(512, 100), Tiling(8, 299))
    other = embed(store, dim=8, sketch_size=700, client=client)
    np.testing.assert_array_equal(np.asarray(other.vectors), vectors)


def test_the_papers_own_setting_fits_a_small_graph(client, small):
    run = embed(small[0], dim=200, epsilon=0.1, client=client, memory_limit="2GB")
    assert run.manifest["sketch_size"] == 20_000
    assert run.manifest["rank"] == 200


def test_epsilon_gives_the_size_of_the_papers_rule(client, small):
    run = embed(small[0], dim=4, epsilon=0.8, client=client)
    assert run.manifest["sketch_size"] == int(np.ceil(4 * np.log(299) / 0.8**2))
    same = embed(small[0], dim=4, sketch_size=run.manifest["sketch_size"], client=client)
    assert same.run == run.run
