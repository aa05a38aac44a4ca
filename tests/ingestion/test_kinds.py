"""Bipartite and directed graphs: the stored matrix, the sides, the keys, and the hint."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from figrl.errors import ConfigError
from figrl.ingestion.build import IngestSizes
from figrl.ingestion.ingest import ingest_identity
from figrl.ingestion.options import IngestOptions
from figrl.store.ids import id_type, node_keys
from tests.ingestion.stored import (
    Edges,
    assert_holds,
    full_weights_of,
    ids_of,
    ingested,
    message_of,
)
from tests.ingestion.test_graph import assert_symmetric, edge_lists
from tests.reference import write_edges

PLAYS: Edges = [(7, 7), (7, 9), (8, 7), (7, 7), (3, 11)]


@given(
    edges=edge_lists(),
    kind=st.sampled_from(["bipartite", "directed"]),
    files=st.integers(1, 3),
    power=st.integers(0, 6),
)
def test_any_edges_in_any_files_and_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    client: distributed.Client,
    edges: Edges,
    kind: str,
    files: int,
    power: int,
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    ordered: Edges = []
    for number in range(files):
        part = edges[number::files]
        if part:
            path = write_edges(folder / "in" / f"{number}.parquet", part)
            pq.write_table(pq.read_table(path), path, row_group_size=7)
            ordered += part
    store = folder / "store"
    graph, report = ingested(client, folder / "in", store, block_rows=1 << power, kind=kind)
    assert_holds(graph, ordered, kind)
    assert_symmetric(graph)
    loops = sum(edge[0] == edge[1] for edge in edges) if kind == "directed" else 0
    proper = {edge[:2] for edge in edges if kind == "bipartite" or edge[0] != edge[1]}
    assert report["self_loops_dropped"] == loops
    assert report["repeated_edges_merged"] == len(edges) - loops - len(proper)


def test_a_bipartite_graph_by_hand(tmp_path: Path, client: distributed.Client) -> None:
    path = write_edges(tmp_path / "e.parquet", PLAYS)
    graph, report = ingested(client, path, tmp_path / "store", block_rows=2, kind="bipartite")
    assert ids_of(graph) == [3, 7, 8, 7, 9, 11]
    assert (graph.target_start, graph.nodes, graph.edges) == (3, 6, 4)
    pairs = {(1, 3), (1, 4), (2, 3), (0, 5)}
    assert set(full_weights_of(graph)) == pairs | {(j, i) for i, j in pairs}
    assert (report["self_loops_dropped"], report["repeated_edges_merged"]) == (0, 1)
    assert graph.side_nodes() == {"source": 3, "target": 3}
    assert "3 source and 3 target nodes" in repr(graph)
    assert report["notes"] == []


def test_a_directed_graph_has_every_node_on_both_sides(
    tmp_path: Path, client: distributed.Client
) -> None:
    path = write_edges(tmp_path / "e.parquet", [("a", "b"), ("b", "a"), ("a", "c"), ("c", "c")])
    graph, report = ingested(client, path, tmp_path / "store", block_rows=4, kind="directed")
    assert ids_of(graph) == ["a", "b", "c", "a", "b", "c"]
    assert (graph.target_start, graph.edges) == (3, 3)
    pairs = {(0, 4), (1, 3), (0, 5)}
    assert set(full_weights_of(graph)) == pairs | {(j, i) for i, j in pairs}
    assert (report["self_loops_dropped"], report["isolated_nodes"]) == (1, 1)


@pytest.mark.parametrize("kind", ["int", "string"])
def test_keys_differ_between_sides_and_depend_on_the_id_alone(
    tmp_path: Path, client: distributed.Client, kind: str
) -> None:
    ids = [3, 8, 7, 100] if kind == "int" else ["c", "h", "g", "long id"]
    edges = [(a, b) for a in ids for b in ids if a != b]
    found = []
    for number, (part, block_rows) in enumerate([(edges, 1), (edges[:6], 4), (edges[::-1], 64)]):
        path = write_edges(tmp_path / f"{number}.parquet", part)
        options = {"block_rows": block_rows, "kind": "directed"}
        graph, _ = ingested(client, path, tmp_path / "store", **options)
        keys = zarr.open_array(store=str(graph.keys_path), mode="r")[:].tolist()
        sides = graph.index.sides_at(np.arange(graph.nodes)).tolist()
        found.append(dict(zip(zip(ids_of(graph), sides, strict=True), keys, strict=True)))
    everything = found[0]
    assert len(set(everything.values())) == 8
    for other in found:
        assert all(everything[node] == key for node, key in other.items())
    one = pa.array(ids[:1], id_type(kind))  # type: ignore[arg-type]
    assert everything[ids[0], "source"] == node_keys(one)[0], "the key of an undirected graph"


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
def test_bits_do_not_depend_on_chunks_ranges_or_workers(
    tmp_path: Path, client: distributed.Client, single: distributed.Client, kind: str
) -> None:
    rng = np.random.default_rng(1)
    ends, weights = rng.integers(0, 3000, (60_000, 2)), rng.uniform(0.1, 5, 60_000)
    table = pa.table({"source": ends[:, 0], "target": ends[:, 1], "weight": weights})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=25_000)
    one, _ = ingested(client, tmp_path / "e.parquet", tmp_path / "one", kind=kind)
    small = IngestSizes(1 << 14, 1 << 20, 1 << 13, "int")
    with patch.object(IngestSizes, "for_memory", return_value=small):
        two, report = ingested(single, tmp_path / "e.parquet", tmp_path / "two", kind=kind)
    assert len(two.id_starts) > len(one.id_starts) > 2
    assert two.target_start == one.target_start
    assert {stage["name"]: stage["blocks"] for stage in report["stages"]}["relabel"] > 3
    assert ids_of(two) == ids_of(one)
    assert full_weights_of(two) == full_weights_of(one)
    for name in ("keys", "degrees"):
        a, b = (zarr.open_array(store=str(graph.path / name))[:] for graph in (one, two))
        np.testing.assert_array_equal(a, b)
    rows = np.array([0, one.target_start, one.nodes - 1, 1])
    assert two.index.take(rows).tolist() == one.index.take(rows).tolist()


def test_ids_of_two_types_are_refused(tmp_path: Path, client: distributed.Client) -> None:
    path = write_edges(tmp_path / "e.parquet", [(1, "x")])
    message = message_of(client, path, tmp_path / "store", kind="bipartite")
    assert "'source' is int64 and 'target' is string" in message
    assert "need ids of one type, whatever the kind of graph: cast one" in message


def test_text_with_words_on_one_side_is_read_as_text(
    tmp_path: Path, client: distributed.Client
) -> None:
    (tmp_path / "e.txt").write_text("7 seven\n8 7\n")
    graph, _ = ingested(client, tmp_path / "e.txt", tmp_path / "store", kind="bipartite")
    assert ids_of(graph) == ["7", "8", "7", "seven"]


@pytest.mark.parametrize(
    ("edges", "hinted"),
    [
        ([(1, 10), (2, 10), (2, 11)], True),
        ([(1, 10), (10, 11)], False),
        ([(1, 10), (2, 2)], False),
    ],
)
def test_a_hint_where_no_id_is_in_both_columns(
    tmp_path: Path, client: distributed.Client, edges: Edges, hinted: bool
) -> None:
    path = write_edges(tmp_path / "e.parquet", edges)
    for _ in range(2):  # also when the graph is there already
        _, report = ingested(client, path, tmp_path / "store")
        assert len(report["notes"]) == hinted
        assert all("--kind bipartite" in note for note in report["notes"])


@pytest.mark.parametrize("hinted", [True, False])
def test_the_hint_knows_the_columns_of_all_files(
    tmp_path: Path, client: distributed.Client, hinted: bool
) -> None:
    """An id that is a source in one file and a target in another is in both columns."""
    write_edges(tmp_path / "in" / "1.parquet", [(i, 1000 + i) for i in range(500)])
    late = [(i, 1000 + i) for i in range(500, 900)] + ([] if hinted else [(2000, 3)])
    write_edges(tmp_path / "in" / "2.parquet", late)
    small = IngestSizes(1 << 14, 1 << 15, 1 << 13, "int")
    with patch.object(IngestSizes, "for_memory", return_value=small):
        graph, report = ingested(client, tmp_path / "in", tmp_path / "store")
    assert len(graph.id_starts) > 3
    assert len(report["notes"]) == hinted


def test_an_unknown_kind_is_refused(tmp_path: Path, client: distributed.Client) -> None:
    import figrl

    with pytest.raises(ConfigError, match=r"kind is 'mixed'.*undirected.*bipartite.*directed"):
        figrl.ingest(tmp_path / "e", store=tmp_path / "store", client=client, kind="mixed")


def test_new_options_leave_the_name_of_an_undirected_graph() -> None:
    plain = IngestOptions().significant()
    assert set(plain) == {
        *("source", "target", "weight", "ids", "csv_header", "on_bad_edges", "block_rows")
    }
    assert ingest_identity([], IngestOptions(kind="undirected"))[1] == plain
    assert IngestOptions(kind="directed").significant()["kind"] == "directed"
