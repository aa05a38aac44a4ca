"""Ids come back exactly as they were given, and rows are found by them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import distributed
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from figrl.engine.stage import Silent, StageResult
from figrl.errors import BadInputError
from figrl.ingestion.formats import text
from figrl.store.ids import IdIndex, IdKind, id_type, range_path, write_ids
from tests.ingestion.stored import assert_holds, ids_of, ingested
from tests.reference import write_edges

STRANGE = [
    "00123",
    "123",
    "1e5",
    "100000",
    "ü",
    "u\u0308",
    "",
    " ",
    "a\nb",
    'q"q',
    "\x00",
    "٣",
    "-0",
]


def stages_of(report: dict[str, Any]) -> list[str]:
    return [stage["name"] for stage in report["stages"]]


def quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_strange_strings(tmp_path: Path, client: distributed.Client, form: str) -> None:
    edges = [(a, b) for a, b in zip(STRANGE, STRANGE[1:] + STRANGE[:1], strict=True)]
    path = tmp_path / f"e.{form}"
    if form == "parquet":
        write_edges(path, edges)
    else:
        lines = [f"{quoted(a)},{quoted(b)}" for a, b in edges]
        path.write_text("\n".join(["source,target", *lines]), encoding="utf-8")
    graph, report = ingested(client, path, tmp_path / "store", block_rows=4)
    assert report["rows_rejected"] == 0
    assert ids_of(graph) == sorted(STRANGE, key=str.encode)
    assert_holds(graph, edges)


@pytest.mark.parametrize("form", ["parquet", "csv", "txt"])
def test_extreme_integers(tmp_path: Path, client: distributed.Client, form: str) -> None:
    low, high = -(2**63), 2**63 - 1
    edges = [(low, high), (high, 0), (low + 1, high - 1), (0, 2**53 + 1), (-1, 2**53)]
    path = tmp_path / f"e.{form}"
    if form == "parquet":
        write_edges(path, edges)
    else:
        separator = "," if form == "csv" else "\t"
        path.write_text("".join(f"{a}{separator}{b}\n" for a, b in edges))
    graph, _ = ingested(client, path, tmp_path / "store")
    assert graph.id_kind == "int"
    assert ids_of(graph) == [low, low + 1, -1, 0, 2**53, 2**53 + 1, high - 1, high]
    assert_holds(graph, edges)


@pytest.mark.parametrize(
    "odd",
    ["007", "-0", "+5", "1e5", str(2**63), str(-(2**63) - 1), "1" + "0" * 30],
)
@pytest.mark.parametrize("form", ["csv", "txt"])
def test_one_id_that_is_no_integer_makes_all_of_them_text(
    tmp_path: Path, client: distributed.Client, odd: str, form: str
) -> None:
    edges = [("1", "2"), ("2", "10"), (odd, "1"), ("3", odd)]
    separator = {"csv": ",", "txt": " "}[form]
    path = tmp_path / f"e.{form}"
    path.write_text("".join(f"{a}{separator}{b}\n" for a, b in edges))
    graph, _ = ingested(client, path, tmp_path / "store")
    assert graph.id_kind == "string"
    assert_holds(graph, edges)


class StoppedError(Exception):
    """Someone pulled the plug."""


class StopsBefore(Silent):
    """Ends the job when a stage begins; keeps the notes."""

    def __init__(self, stage: str = "") -> None:
        self.stage = stage
        self.notes: list[str] = []

    def started(self, result: StageResult) -> None:
        if result.name == self.stage:
            raise StoppedError

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("form", ["csv", "txt"])
def test_ids_that_are_integers_only_in_the_head(
    tmp_path: Path, client: distributed.Client, form: str
) -> None:
    separator = {"csv": ",", "txt": " "}[form]
    edges = [(f"{i % 150}", f"{10**9 + i % 7}") for i in range(8000)]
    edges.insert(7000, ("007", "word"))
    path = tmp_path / f"e.{form}"
    path.write_text("".join(f"{a}{separator}{b}\n" for a, b in edges))
    assert path.stat().st_size > 80_000
    monitor = StopsBefore("ids")
    with patch.object(text, "_PIECE_BYTES", 20_000):
        # The job dies after the text was read for the second time, and is taken up again.
        with pytest.raises(StoppedError):
            ingested(client, path, tmp_path / "store", monitor=monitor)
        graph, report = ingested(client, path, tmp_path / "store")
    assert len(monitor.notes) == 1
    assert f"{path}, row 7001" in monitor.notes[0]
    assert stages_of(report)[0] == "rescan"
    assert report["stages"][0]["computed"] == 0
    assert report["stages"][0]["blocks"] == (1 if form == "csv" else 6)
    assert graph.id_kind == "string"
    assert report["rows_read"] == 8001
    assert_holds(graph, edges)


def test_a_file_of_integers_and_one_of_words(tmp_path: Path, client: distributed.Client) -> None:
    (tmp_path / "0.txt").write_text("10 9\n9 1\n")
    (tmp_path / "1.csv").write_text("a,b\nx,9\n")
    graph, report = ingested(client, [tmp_path / "0.txt", tmp_path / "1.csv"], tmp_path / "store")
    assert stages_of(report)[0] == "scan"
    assert ids_of(graph) == ["1", "10", "9", "x"]
    assert_holds(graph, [("10", "9"), ("9", "1"), ("x", "9")])


def test_integers_may_be_asked_for_as_strings(tmp_path: Path, client: distributed.Client) -> None:
    (tmp_path / "e.txt").write_text("10 9\n9 1\n")
    graph, _ = ingested(client, tmp_path / "e.txt", tmp_path / "store", ids="string")
    assert ids_of(graph) == ["1", "10", "9"]
    assert graph.id_kind == "string"


def test_text_beside_parquet_has_to_hold_its_ids(
    tmp_path: Path, client: distributed.Client
) -> None:
    """Integers of Parquet never turn into strings behind one's back."""
    for order, names in enumerate((("a.parquet", "b.csv"), ("b.parquet", "a.csv"))):
        folder = tmp_path / str(order)
        write_edges(folder / names[0], [(1, 2)])
        (folder / names[1]).write_text("a,b\n2,3\nx,2\n")
        with pytest.raises(BadInputError, match="same schema") as caught:
            ingested(client, folder, tmp_path / "store")
        assert str(folder / names[0]) in caught.value.message
        assert str(folder / names[1]) in caught.value.message
    late = tmp_path / "late"
    write_edges(late / "a.parquet", [(1, 2)])
    (late / "b.csv").write_text("a,b\n" + "2,3\n" * 30_000 + "x,2\n")
    with pytest.raises(BadInputError, match=r"b\.csv, row 30002: the source id is not a 64-bit"):
        ingested(client, late, tmp_path / "store")


def test_an_integer_beyond_int64_is_a_bad_row(tmp_path: Path, client: distributed.Client) -> None:
    table = pa.table(
        {"a": pa.array([1, 2**63, None], pa.uint64()), "b": pa.array([2, 3, 4], pa.uint64())}
    )
    pq.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(BadInputError, match=f"row 2: .*not a 64-bit integer .source '{2**63}'"):
        ingested(client, tmp_path / "e.parquet", tmp_path / "store")
    graph, report = ingested(
        client, tmp_path / "e.parquet", tmp_path / "store", on_bad_edges="quarantine"
    )
    assert ids_of(graph) == [1, 2]
    assert report["rows_rejected"] == 2


IDS = st.one_of(
    st.tuples(st.just("int"), st.sets(st.integers(-40, 40) | st.integers(-(2**63), 2**63 - 1))),
    st.tuples(st.just("string"), st.sets(st.text("ab", max_size=5))),
)


@settings(max_examples=100)
@given(ids=IDS, asked=IDS, cuts=st.lists(st.integers(0, 30), max_size=6))
def test_index_over_ranges_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    ids: tuple[IdKind, set[Any]],
    asked: tuple[IdKind, set[Any]],
    cuts: list[int],
) -> None:
    """Ranges may be empty, hold one id, or all of them."""
    kind, values = ids
    inside = sorted(values)
    bounds = [0, *sorted(min(cut, len(inside)) for cut in cuts), len(inside)]
    folder = tmp_path_factory.mktemp("ids")
    for number, (start, stop) in enumerate(pairwise(bounds)):
        write_ids(range_path(folder, number), {"id": pa.array(inside[start:stop], id_type(kind))})
    index = IdIndex(folder, tuple(bounds))
    wanted = sorted((asked[1] if asked[0] == kind else set()) | set(inside[::2]))
    rows = index.rows_of(pa.array(wanted, id_type(kind)))
    assert rows.tolist() == [inside.index(v) if v in values else -1 for v in wanted]
    assert len(index) == len(inside)
    for start in range(len(inside)):
        stop = min(len(inside), start + 1 + len(cuts))
        assert index.ids_of(start, stop).to_pylist() == inside[start:stop]
