"""Edges in ten forms: the same graph, the same vectors, the same new nodes, to the last bit."""

from __future__ import annotations

import os
import uuid

import dask.dataframe as dd
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import figrl
from figrl.errors import BadInputError, ConfigError
from tests.reference import write_edges

NODES = 40
NEW = [(50, 1), (50, 2), (51, 3), (51, 7), (52, 50)]
OF_52 = "1 of 3 new nodes has no edge .*: its vector is zero, but for what new neighbours pass on"


def _edges():
    """A ring with chords, each edge once and the smaller end first."""
    rng = np.random.default_rng(5)
    pairs = {(i, i + 1) for i in range(NODES - 1)}
    pairs |= {tuple(sorted(pair)) for pair in rng.integers(0, NODES, (60, 2)).tolist()}
    return sorted(pair for pair in pairs if pair[0] != pair[1])


EDGES = _edges()


def as_file(edges, folder):
    return write_edges(folder / "edges.parquet", edges)


def as_pandas(edges, _):
    return pd.DataFrame(edges, columns=["source", "target"])


def as_dask(edges, _):
    return dd.from_pandas(as_pandas(edges, _), npartitions=3)


def as_arrow(edges, _):
    return pa.Table.from_pandas(as_pandas(edges, _))


def as_polars(edges, _):
    return pl.DataFrame(edges, schema=["source", "target"], orient="row")


def as_networkx(edges, _):
    return nx.Graph(edges)


def as_directed_networkx(edges, _):
    return nx.DiGraph(edges)


def as_symmetric_matrix(edges, _):
    matrix = as_one_sided_matrix(edges, _)
    return matrix + matrix.T


def as_one_sided_matrix(edges, _):
    rows, columns = np.array(edges).T
    size = max(NODES, int(rows.max()) + 1)
    return sp.coo_array((np.ones(len(edges), np.int8), (rows, columns)), shape=(size, size))


def as_array(edges, _):
    return np.array(edges)


def as_pairs(edges, _):
    return [tuple(edge) for edge in edges]


KINDS = [
    as_file,
    as_pandas,
    as_dask,
    as_arrow,
    as_polars,
    as_networkx,
    as_directed_networkx,
    as_symmetric_matrix,
    as_array,
    as_pairs,
]


@pytest.fixture(scope="module")
def from_file(single, tmp_path_factory):
    """Graph, vectors and new vectors of the files."""
    folder = tmp_path_factory.mktemp("files")
    graph = figrl.ingest(as_file(EDGES, folder), store=folder / "store", client=single)
    run = figrl.embed(folder / "store", dim=8, client=single)
    new = write_edges(folder / "new.parquet", NEW)
    with pytest.warns(UserWarning, match=OF_52):
        folded = figrl.fold_in(folder / "store", new, out=folder / "out.parquet", client=single)
    return graph, np.asarray(run), folded.table()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__[3:])
def test_every_kind_of_input_gives_the_bits_of_the_file(single, tmp_path, from_file, kind):
    graph, vectors, new = from_file
    store = tmp_path / "store"
    edges = kind(EDGES, tmp_path)
    run = figrl.embed(edges, store=store, dim=8, client=single)
    assert (run.graph.nodes, run.graph.edges) == (graph.nodes, graph.edges)
    np.testing.assert_array_equal(np.asarray(run), vectors)
    with pytest.warns(UserWarning, match=OF_52):
        folded = figrl.fold_in(run, kind(NEW, tmp_path / "new"), client=single)
    assert folded.table().equals(new)
    again = figrl.ingest(edges, store=store, client=single)
    assert again.version == run.graph.version
    assert not (store / "work" / "edges").exists()


def weighted(edges):
    return [(a, b, 1.0 + (a + b) % 3) for a, b in edges]


@pytest.mark.parametrize("kind", ["networkx", "symmetric", "array", "pairs", "dask"])
def test_weights_are_those_of_the_file(single, tmp_path, kind):
    triples = weighted(EDGES)
    rows, columns, values = (np.array(part) for part in zip(*triples, strict=True))
    frame = pd.DataFrame({"source": rows, "target": columns, "score": values})
    network = nx.Graph()
    network.add_weighted_edges_from(triples)
    matrix = sp.csr_array((values, (rows, columns)), shape=(NODES, NODES))
    given = {
        "networkx": (network, {}),
        "symmetric": (matrix + matrix.T, {}),
        "array": (np.array(triples), {"weight": 3}),
        "pairs": (triples, {"weight": 3}),
        "dask": (dd.from_pandas(frame, npartitions=2), {"weight": "score"}),
    }
    edges, options = given[kind]
    graph = figrl.ingest(edges, store=tmp_path / "store", client=single, **options)
    file = write_edges(tmp_path / "e.parquet", triples)
    expected = figrl.ingest(file, store=tmp_path / "store", client=single)
    assert graph.weighted
    assert graph.version != expected.version
    for ours, theirs in zip(graph.row_groups(0), expected.row_groups(0), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_nodes_without_edges_are_kept(single):
    network = nx.Graph([(0, 1), (1, 2)])
    network.add_node(7)
    assert list(figrl.embed(network, dim=2, client=single).ids) == [0, 1, 2, 7]
    matrix = sp.coo_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(3, 3))
    graph = figrl.ingest(matrix, client=single)
    assert (graph.nodes, graph.edges) == (3, 1)


def test_rows_of_a_bipartite_matrix_are_sources(single):
    matrix = sp.coo_array(([1, 1, 1], ([0, 0, 1], [0, 3, 4])), shape=(2, 5))
    graph = figrl.ingest(matrix, kind="bipartite", client=single)
    assert graph.side_nodes() == {"source": 2, "target": 3}


def one_row(value):
    return pd.DataFrame({"source": [value], "target": [value]})


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        (np.ones((3, 3)), {}, "the array: column 3 .* Give weight=3 .* weight='none'"),
        (np.ones(3), {}, r"the array has the shape \(3,\).*weight=3"),
        ([(1, 2), (3,)], {}, r"the list of pairs, row 2: \(3,\) is no pair"),
        ([(1, "a"), ("b", 2)], {}, "the list of pairs: column 1 does not hold values of one type"),
        ([], {}, "the list of pairs is empty"),
        (nx.grid_2d_graph(2, 2), {}, "the networkx Graph.*relabel_nodes"),
        (nx.path_graph(3), {"weight": "score"}, "no edge has the attribute 'score'"),
        (sp.csr_array([[0, 1], [2, 0]]), {}, r"\(0, 1\) is 1 and \(1, 0\) is 2.*kind='directed'"),
        (sp.csr_array((2, 3)), {}, "not as many rows as columns.*kind='bipartite'"),
        (pd.DataFrame({"a": [1.5], "b": [2]}), {}, "the pandas DataFrame: .*source and target"),
        (
            one_row(1.5),
            {},
            "is double: it holds floating-point .* cast the column to int64",
        ),
        (one_row(None), {}, "'source' is null: it holds no values. Ids .*: write ids into the"),
        (one_row([1]), {}, r"'source' is list<item: int64>: it holds lists\. .*one id in each row"),
        (one_row({"a": 1}), {}, "it holds dictionaries. Ids .*: take the id out of each"),
        (
            one_row(uuid.UUID(int=1)),
            {},
            r"it holds UUIDs\. Ids .*strings, as astype\(str\)",
        ),
        (one_row(1).iloc[:0], {}, r"^the pandas DataFrame is empty\. Give at least one edge"),
        (pd.DataFrame(), {}, "^the pandas DataFrame is empty"),
        (pa.table(one_row(1)).slice(1), {}, "^the Arrow Table is empty"),
        (np.empty((0, 2), int), {}, "^the array is empty"),
        (nx.Graph(), {}, "^the networkx Graph has no edges"),
        (
            [(1, 2, {"weight": 3})],
            {},
            r"column 3 holds dictionaries, such as {'weight': 3}, .*edges\(data='weight'\)",
        ),
        (
            nx.Graph([(1, 2, {"weight": {"a": 1}})]),
            {},
            "'weight' of its edges holds dictionaries, such as {'a': 1}, .* weight='none'",
        ),
        (pd.DataFrame({"u": [1], "v": [2]}), {"weight": "w"}, r"no column 'w' \(given with weight"),
        (7, {}, "from an int. Give paths, a frame"),
    ],
)
def test_errors_name_what_was_given_and_arguments(edges, options, message):
    with pytest.raises((BadInputError, ConfigError), match=message):
        figrl.ingest(edges, **options)


@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_a_bad_row_is_named_by_its_place_in_the_frame(single, tmp_path, kind):
    frame = pd.DataFrame({"source": [1, 2, 3, 4], "target": [2, 3, 4, 1], "weight": [1, 1, 0, 1]})
    edges = dd.from_pandas(frame, npartitions=2) if kind == "dask" else frame
    place = {"pandas": "the pandas DataFrame, row 3", "dask": "partition 1, row 1"}[kind]
    with pytest.raises(BadInputError, match=f"{place}: the weight .*on_bad_edges='quarantine'"):
        figrl.ingest(edges, store=tmp_path / "store", client=single)
    assert not (tmp_path / "store" / "work" / "edges").exists()
    graph = figrl.ingest(edges, store=tmp_path / "s", on_bad_edges="quarantine", client=single)
    assert graph.edges == 3


def test_partitions_are_written_by_workers_and_found_again(single, tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.mkdir()
    frame = dd.from_map(partition, range(3), folder=log, meta=partition(0, None))

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("figrl.ingestion.ingest.ingest_graph", killed)
        with pytest.raises(KeyboardInterrupt, match="make the same call again"):
            figrl.ingest(frame, store=tmp_path / "store", client=single)
    made = figrl.ingest(frame, store=tmp_path / "store", client=single)
    assert made.edges == 12
    pids = [path.name.partition("-")[2] for path in log.iterdir()]
    assert len(pids) == 3
    assert str(os.getpid()) not in pids


def partition(number, folder):
    """A part of a frame, which tells who made it."""
    if folder is not None:
        (folder / f"{number}-{os.getpid()}").touch(exist_ok=False)
    first = np.arange(4 * number, 4 * number + 4)
    return pd.DataFrame({"source": first, "target": first + 1})
