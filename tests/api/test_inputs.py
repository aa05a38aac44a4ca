"""Edges in ten forms: the same graph, the same vectors, the same new nodes, to the last bit."""

from __future__ import annotations

import dask.dataframe as dd
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import figrl
from tests.reference import write_edges

NODES = 40
NEW = [(50, 1), (50, 2), (51, 3), (51, 7), (52, 50)]


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


def as_lazy_polars(edges, _):
    return as_polars(edges, _).lazy()


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
    as_pandas,
    as_dask,
    as_arrow,
    as_polars,
    as_lazy_polars,
    as_networkx,
    as_directed_networkx,
    as_symmetric_matrix,
    as_one_sided_matrix,
    as_array,
    as_pairs,
]


@pytest.fixture(scope="module")
def from_file(client, tmp_path_factory):
    """Store, vectors and new vectors of the files."""
    folder = tmp_path_factory.mktemp("files")
    graph = figrl.ingest(as_file(EDGES, folder), store=folder / "store", client=client)
    run = figrl.embed(folder / "store", dim=8, client=client)
    new = write_edges(folder / "new.parquet", NEW)
    folded = figrl.fold_in(folder / "store", new, out=folder / "out.parquet", client=client)
    return graph, np.asarray(run.vectors), folded.table()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__[3:])
def test_every_kind_of_input_gives_the_bits_of_the_file(client, tmp_path, from_file, kind):
    graph, vectors, new = from_file
    store = tmp_path / "store"
    own = figrl.ingest(kind(EDGES, tmp_path), store=store, client=client)
    assert (own.nodes, own.edges, own.weighted) == (graph.nodes, graph.edges, False)
    assert not (store / "work" / "edges").exists()
    run = figrl.embed(store, dim=8, client=client)
    np.testing.assert_array_equal(np.asarray(run.vectors), vectors)
    out = tmp_path / "new.parquet"
    folded = figrl.fold_in(store, kind(NEW, tmp_path), out=out, client=client)
    assert folded.table().equals(new)
    again = figrl.ingest(kind(EDGES, tmp_path), store=store, client=client)
    assert again.version == own.version
