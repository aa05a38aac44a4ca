"""Ingesting for a test, and reading back all that was stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from figrl.engine.session import Session
from figrl.engine.stage import Monitor, Silent
from figrl.errors import BadInputError
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.store.graph import Graph, edges_path, open_graph
from figrl.store.layout import existing_store
from tests.reference import DenseGraph

Edges = list[tuple[Any, ...]]


def ingested(
    client: distributed.Client,
    edges: Any,
    store: Path,
    *,
    monitor: Monitor | None = None,
    **options: Any,
) -> tuple[Graph, dict[str, Any]]:
    """Ingest and return the graph with the report of the job."""
    session = Session(client, monitor=monitor or Silent())
    report = run_ingest(edges, store, IngestOptions(**options), session)
    return open_graph(existing_store(store), report["graph_version"]), report


def message_of(client: distributed.Client, edges: Any, store: Path, **options: Any) -> str:
    """Ingest what cannot be ingested; return what a person is told."""
    with pytest.raises(BadInputError) as caught:
        ingested(client, edges, store, **options)
    assert type(caught.value) is BadInputError
    assert caught.value.exit_code == 3
    assert not list(store.glob("graph/*/manifest.json"))
    return caught.value.message


def ids_of(graph: Graph) -> list[Any]:
    """Ids of all rows, block by block."""
    ids: list[Any] = []
    for block in range(graph.blocks):
        ids += graph.index.ids_of(*graph.block_range(block)).to_pylist()
    return ids


def degrees_of(graph: Graph) -> Any:
    """Degrees of all rows."""
    return zarr.open_array(store=str(graph.degrees_path), mode="r")[:]


def weights_of(graph: Graph) -> Any:
    """The weight matrix, dense, from the runs that a product reads."""
    matrix = np.zeros((graph.nodes, graph.nodes))
    before = (-1, -1)
    for block in range(graph.blocks):
        start, stop = graph.block_range(block)
        for rows, columns, weights in graph.row_groups(block):
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
                assert start <= i < stop
                assert before < (i, j), "entries are sorted, and each is there once"
                before = (i, j)
            matrix[rows, columns] = 1.0 if weights is None else weights
    return matrix


def full_weights_of(graph: Graph) -> dict[tuple[int, int], float]:
    """Entries with their weights in float64, as they lie on disk; 1 where the column is missing."""
    entries: dict[tuple[int, int], float] = {}
    for block in range(graph.blocks):
        table = pq.read_table(edges_path(graph.path, block))
        weights = table["weight"].to_pylist() if table.num_columns > 2 else [1.0] * len(table)
        pairs = zip(table["row"].to_pylist(), table["column"].to_pylist(), strict=True)
        entries |= dict(zip(pairs, weights, strict=True))
    return entries


def assert_holds(graph: Graph, edges: Edges, kind: str = "undirected") -> None:
    """Compare all that is stored with the rules of ingest, spelt out on a dense matrix."""
    sided = kind != "undirected"
    expected = DenseGraph.with_sides(edges, kind) if sided else DenseGraph.of(edges)
    assert (graph.kind, graph.target_start) == (kind, expected.target_start)
    assert ids_of(graph) == expected.ids
    assert graph.nodes == len(expected.ids)
    assert graph.edges == np.count_nonzero(expected.weights) // 2
    np.testing.assert_allclose(weights_of(graph), expected.weights, rtol=1e-6, atol=0)
    np.testing.assert_allclose(degrees_of(graph), expected.degrees, rtol=1e-12, atol=0)
    assert np.isclose(graph.mean_degree, expected.degrees.mean(), rtol=1e-12, atol=0)


def quarantined(graph: Graph) -> list[dict[str, Any]]:
    """Rows that were set aside, in the order of the input."""
    rows: list[dict[str, Any]] = []
    for path in sorted((graph.path / "quarantine").glob("*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows
