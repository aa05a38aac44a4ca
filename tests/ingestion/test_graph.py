"""The stored graph is the one that the edges tell of, whatever the sizes it was made with."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import figrl
from figrl.engine.capacity import ClusterMemory
from figrl.errors import ResourceError
from figrl.ingestion import partition
from figrl.ingestion.build import IngestSizes
from figrl.store.graph import Graph, edges_path
from figrl.store.ids import id_type, node_keys
from tests.ingestion.stored import (
    Edges,
    assert_holds,
    degrees_of,
    full_weights_of,
    ids_of,
    ingested,
    weights_of,
)
from tests.reference import write_edges

MIXED: Edges = [
    (1, 2, 0.125),
    (2, 1, 0.25),
    (1, 2, 0.5),
    (3, 3, 9.0),
    (4, 5, 1.0),
    (2, 2, 5.0),
    (7, 7, 1.0),
]


def assert_symmetric(graph: Graph) -> None:
    """Both directions of an edge have the same weight, to the last bit."""
    entries = full_weights_of(graph)
    assert all(entries[j, i] == weight for (i, j), weight in entries.items())


@st.composite
def edge_lists(draw: st.DrawFn) -> Edges:
    """Edges over a small pool of ids: repeats, both ways round, self-loops, separate parts."""
    pool = draw(
        st.one_of(
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30, unique=True),
            st.lists(st.text(max_size=5), min_size=1, max_size=30, unique=True),
        )
    )
    end = st.sampled_from(pool)
    weight = st.sampled_from([1.0, 0.1, 0.7, 1e-3, 1e4]) | st.floats(1e-6, 1e6)
    columns = (end, end, weight) if draw(st.booleans()) else (end, end)
    return draw(st.lists(st.tuples(*columns), min_size=1, max_size=80))


@settings(max_examples=15)
@given(
    edges=edge_lists(), files=st.integers(1, 3), power=st.integers(0, 6), group=st.integers(3, 40)
)
def test_any_edges_in_any_files_and_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    client: distributed.Client,
    edges: Edges,
    files: int,
    power: int,
    group: int,
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    ordered: Edges = []
    for number in range(files):
        part = edges[number::files]
        if part:
            path = write_edges(folder / "in" / f"{number}.parquet", part)
            pq.write_table(pq.read_table(path), path, row_group_size=group)
            ordered += part
    graph, report = ingested(client, folder / "in", folder / "store", block_rows=1 << power)
    assert_holds(graph, ordered)
    pairs = [frozenset(edge[:2]) for edge in edges]
    proper = [pair for pair in pairs if len(pair) == 2]
    ends = {end for edge in edges for end in edge[:2]}
    assert report["rows_read"] == len(edges)
    assert report["rows_rejected"] == 0
    assert report["self_loops_dropped"] == len(pairs) - len(proper)
    assert report["repeated_edges_merged"] == len(proper) - len(set(proper))
    assert report["isolated_nodes"] == len(ends - {end for pair in proper for end in pair})
    assert report["max_neighbours"] == int((weights_of(graph) > 0).sum(axis=1).max())
    assert graph.blocks == -(-len(ends) // (1 << power))
    assert_symmetric(graph)


def test_rules_on_a_graph_by_hand(tmp_path: Path, client: distributed.Client) -> None:
    path = write_edges(tmp_path / "e.parquet", MIXED)
    graph, report = ingested(client, path, tmp_path / "store", block_rows=2)
    assert ids_of(graph) == [1, 2, 3, 4, 5, 7]
    total = 0.875
    assert full_weights_of(graph) == {(0, 1): total, (1, 0): total, (3, 4): 1.0, (4, 3): 1.0}
    assert degrees_of(graph).tolist() == [total, total, 0.0, 1.0, 1.0, 0.0]
    counts = {
        "rows_read": 7,
        "rows_rejected": 0,
        "self_loops_dropped": 3,
        "repeated_edges_merged": 2,
        "isolated_nodes": 2,
        "max_neighbours": 1,
        "nodes": 6,
        "edges": 2,
        "blocks": 3,
        "block_rows": 2,
        "weighted": True,
        "id_kind": "int",
        "already_done": False,
    }
    assert {name: report[name] for name in counts} == counts
    assert not (graph.path / "work").exists()
    plain = write_edges(tmp_path / "plain.parquet", [edge[:2] for edge in MIXED])
    graph, report = ingested(client, plain, tmp_path / "store")
    assert full_weights_of(graph) == {(0, 1): 1.0, (1, 0): 1.0, (3, 4): 1.0, (4, 3): 1.0}
    assert degrees_of(graph).tolist() == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert not graph.weighted


def test_a_graph_of_self_loops_has_nodes_and_no_edge(
    tmp_path: Path, client: distributed.Client
) -> None:
    (tmp_path / "e.txt").write_text("a a\nb b\na a\n")
    graph, report = ingested(client, tmp_path / "e.txt", tmp_path / "store", block_rows=1)
    assert_holds(graph, [("a", "a"), ("b", "b")])
    assert (report["self_loops_dropped"], report["isolated_nodes"], graph.edges) == (3, 2, 0)


def test_weights_are_left_out_where_all_are_one(tmp_path: Path, client: distributed.Client) -> None:
    edges = [(0, 1, 1.0), (2, 3, 2.0), (4, 5, 0.5), (5, 4, 0.5), (6, 7, 1.0), (7, 6, 1.0)]
    graph, _ = ingested(
        client, write_edges(tmp_path / "e.parquet", edges), tmp_path / "store", block_rows=2
    )
    names = [pq.read_schema(edges_path(graph.path, block)).names for block in range(4)]
    plain, heavy = ["row", "column"], ["row", "column", "weight"]
    # Halves that add up to one keep the column, ones that add up to two need it.
    assert names == [plain, heavy, heavy, heavy]
    assert [weights is None for block in range(4) for *_, weights in graph.row_groups(block)] == [
        True,
        False,
        False,
        False,
    ]
    assert_holds(graph, edges)
    ones = [(a, b, 1.0) for a, b in ((0, 1), (1, 2), (3, 4))]
    graph, _ = ingested(client, write_edges(tmp_path / "1.parquet", ones), tmp_path / "store")
    assert not graph.weighted
    assert_holds(graph, ones)


@dataclass(frozen=True)
class FixedSizes:
    """Stands in for the choice of sizes by memory."""

    chunk_edges: int
    range_bytes: int
    build_entries: int

    def __call__(self, memory: ClusterMemory, id_kind: Any) -> IngestSizes:
        return IngestSizes(self.chunk_edges, self.range_bytes, self.build_entries, id_kind)


def stored_bytes(graph: Graph) -> dict[str, bytes]:
    """All files that do not tell of the sizes by design, as ranges of ids and the manifest do."""
    files = [
        path for name in ("edges", "degrees", "keys") for path in (graph.path / name).rglob("*")
    ]
    return {
        str(path.relative_to(graph.path)): path.read_bytes() for path in files if path.is_file()
    }


@pytest.mark.parametrize("kind", ["int", "string"])
def test_sizes_leave_no_trace(tmp_path: Path, client: distributed.Client, kind: str) -> None:
    chance = random.Random(1)
    names = [chance.getrandbits(60) for _ in range(70)]
    ids: list[Any] = names if kind == "int" else [f"{name:x}" for name in names]
    edges = [(*chance.choices(ids, k=2), chance.uniform(0, 2)) for _ in range(200)]
    edges += [
        (*(edge[:2] if chance.random() < 0.5 else edge[1::-1]), chance.random()) for edge in edges
    ] * 2
    path = write_edges(tmp_path / "e.parquet", edges)
    graph, _ = ingested(client, path, tmp_path / "default", block_rows=32)
    assert_holds(graph, edges)
    assert_symmetric(graph)
    expected = stored_bytes(graph)
    assert len([name for name in expected if name.startswith("edges")]) == 3
    ends = Counter(end for edge in edges if edge[0] != edge[1] for end in edge[:2])
    largest = max(ends.values())
    for sizes in (FixedSizes(100, 8000, 10**6), FixedSizes(33, 10**6, largest)):
        store = tmp_path / f"store-{sizes.chunk_edges}"
        with patch.object(IngestSizes, "for_memory", sizes):
            small, report = ingested(client, path, store, block_rows=32)
        blocks = {stage["name"]: stage["blocks"] for stage in report["stages"]}
        assert blocks["relabel"] == -(-len(edges) // sizes.chunk_edges)
        assert (blocks["ids"] > 5) == (sizes.range_bytes == 8000)
        assert stored_bytes(small) == expected
        assert ids_of(small) == ids_of(graph)
        assert small.version == graph.version


@settings(max_examples=100)
@given(counts=st.lists(st.integers(0, 25), max_size=8), weighted=st.booleans())
def test_row_groups_do_not_depend_on_the_parts(counts: list[int], *, weighted: bool) -> None:
    total = sum(counts)
    whole = [np.arange(total), np.arange(total) * 2, np.arange(total) / 2][: 3 if weighted else 2]
    parts = [
        tuple(column[stop - count : stop] for column in whole)
        for count, stop in zip(counts, np.cumsum(counts), strict=True)
    ]
    with patch.object(partition, "ROW_GROUP_EDGES", 10):
        groups = list(partition.row_groups(iter(parts)))
    sizes = [10] * (total // 10) + [total % 10] * (total % 10 > 0)
    assert [group[0].size for group in groups] == sizes
    assert {len(group) for group in groups} <= {len(whole)}
    for place, column in enumerate(whole):
        assert [value for group in groups for value in group[place]] == column.tolist()


def test_a_node_that_does_not_fit_is_named(tmp_path: Path, client: distributed.Client) -> None:
    path = write_edges(tmp_path / "e.parquet", [("hub", f"leaf {i}") for i in range(9)])
    with (
        patch.object(IngestSizes, "for_memory", FixedSizes(100, 10**6, 8)),
        pytest.raises(ResourceError, match=r"'hub' alone has 9 edges .*--memory-limit") as caught,
    ):
        ingested(client, path, tmp_path / "store")
    assert caught.value.exit_code == 5


def test_keys_follow_from_ids(tmp_path: Path, client: distributed.Client) -> None:
    path = write_edges(tmp_path / "e.parquet", [("b", "a"), ("c", "")])
    graph, _ = ingested(client, path, tmp_path / "store", block_rows=1)
    expected = node_keys(pa.array(["", "a", "b", "c"], id_type("string")))
    keys = np.asarray(zarr.open_array(store=str(graph.keys_path), mode="r")[:])
    assert keys.tolist() == expected.tolist()


def test_the_same_input_is_ingested_once(tmp_path: Path, client: distributed.Client) -> None:
    path, store = write_edges(tmp_path / "e.parquet", [(1, 2), (2, 3)]), tmp_path / "store"
    first, report = ingested(client, path, store)
    assert not report["already_done"]
    before = {file: file.stat().st_mtime_ns for file in first.path.rglob("*") if file.is_file()}
    again, report = ingested(client, path, store)
    assert report["already_done"]
    assert again == first
    assert before == {f: f.stat().st_mtime_ns for f in first.path.rglob("*") if f.is_file()}
    # Another option, another file, another content, another time of change: another graph.
    versions = {first.version, ingested(client, path, store, block_rows=1)[0].version}
    versions.add(
        ingested(client, write_edges(tmp_path / "f.parquet", [(1, 2), (2, 3)]), store)[0].version
    )
    os.utime(path, ns=(1, 1))
    versions.add(ingested(client, path, store)[0].version)
    write_edges(path, [(1, 2), (2, 4)])
    changed, _ = ingested(client, path, store)
    assert_holds(changed, [(1, 2), (2, 4)])
    assert len(versions | {changed.version}) == 5
    assert_holds(first, [(1, 2), (2, 3)])
    assert figrl.ingest(path, store=store, client=client) == changed
