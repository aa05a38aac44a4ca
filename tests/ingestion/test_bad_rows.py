"""Rows that are no edge: the file, the row and the remedy are told, or the row is set aside."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import distributed
import pyarrow.parquet as pq
import pytest

from figrl import ingest
from figrl.errors import BadInputError
from tests.ingestion.stored import assert_holds, ingested, message_of, quarantined
from tests.reference import write_edges

NAN, INF = float("nan"), float("inf")
REMEDY = "Correct or remove the row, or set such rows aside with --on-bad-edges quarantine."

# Each has one bad row, after a row 1 and before a row 3 (or 4) that are good: row, reason, and
# source, target and weight as they are set aside.
BAD_ROWS: dict[str, tuple[Any, int, str, tuple[str | None, ...]]] = {
    "null source.parquet": (
        [(1, 2), (None, 3), (2, 3)],
        2,
        "source id is missing",
        (None, "3", None),
    ),
    "null target.parquet": (
        [("a", "b"), ("b", None), ("b", "c")],
        2,
        "target id is missing",
        ("b", None, None),
    ),
    "nan.parquet": (
        [(1, 2, 1.0), (2, 3, NAN), (2, 3, 2.0)],
        2,
        "weight is not finite",
        ("2", "3", "nan"),
    ),
    "inf.parquet": (
        [(1, 2, 1.0), (2, 3, INF), (2, 3, 2.0)],
        2,
        "weight is not finite",
        ("2", "3", "inf"),
    ),
    "zero.parquet": (
        [(1, 2, 1.0), (2, 3, 0.0), (2, 3, 2.0)],
        2,
        "weight is not positive",
        ("2", "3", "0.0"),
    ),
    "negative.parquet": (
        [(1, 2, 1), (2, 3, -4), (2, 3, 2)],
        2,
        "weight is not positive",
        ("2", "3", "-4"),
    ),
    "null weight.parquet": (
        [(1, 2, 1.0), (2, 3, None), (2, 3, 2.0)],
        2,
        "weight is missing",
        ("2", "3", None),
    ),
    "null source.csv": ("a,b\n1,2\n,3\n2,3\n", 3, "source id is missing", (None, "3", None)),
    "null first.csv": ("a,b\n,2\n1,2\n2,3\n", 2, "source id is missing", (None, "2", None)),
    "all null.csv": ("a,b,w\n1,2,1\n,,\n2,3,2\n", 3, "source id is missing", (None, None, None)),
    "null weight.csv": ("1,2,1\n2,3,\n2,3,2\n", 2, "weight is missing", ("2", "3", None)),
    "first weight.csv": ("a,b,w\n7,8,\n1,2,1\n2,3,2\n", 2, "weight is missing", ("7", "8", None)),
    "word.csv": ("1,2,1\n2,3,x\n2,3,2\n", 2, "weight is not a number", ("2", "3", "x")),
    "hex.csv": ("1,2,1\n2,3,0x5\n2,3,2\n", 2, "weight is not a number", ("2", "3", "0x5")),
    "huge.csv": ("1,2,1\n2,3,1e999\n2,3,2\n", 2, "weight is not finite", ("2", "3", "1e999")),
    "nan.csv": ("1,2,1\n2,3,NaN\n2,3,2\n", 2, "weight is not finite", ("2", "3", "NaN")),
    "zero.csv": ("1,2,1\n\n2,3,0\n2,3,2\n", 2, "weight is not positive", ("2", "3", "0")),
    "wide.csv": ("1,2\n2,3,4\n2,3\n", 2, "has 3 instead of 2 columns", ("2,3,4", None, None)),
    "narrow.csv": ("a,b\n1,2\n\n2\n2,3\n", 3, "has 1 instead of 2 columns", ("2", None, None)),
    "wide.tsv.gz": (
        "1\t2\n2\t3\t4\n2\t3\n",
        2,
        "has 3 instead of 2 columns",
        ("2\t3\t4", None, None),
    ),
    "narrow.txt": (
        "# c\n1 2\n7\n2 3\n",
        3,
        "has 1 column where the first line has 2",
        ("7", None, None),
    ),
    "wide.txt": (
        "1 2\n1 2 3 4\n2 3\n",
        2,
        "has 4 columns where the first line has 2",
        ("1 2 3", None, None),
    ),
    "no weight.txt": (
        "1 2 1\n7 8\n2 3 2\n",
        2,
        "has 2 columns where the first line has 3",
        ("7 8", None, None),
    ),
    "two in one.txt": (
        "1 2 1\n7 8 1 7 8 1\n2 3 2\n",
        2,
        "has 6 columns where the first line has 3",
        ("7 8 1", None, None),
    ),
    "word.txt": ("1 2 1\n2 3 x\n2 3 2\n", 2, "weight is not a number", ("2", "3", "x")),
    "first.txt": ("7 8 ?\n1 2 1\n2 3 2", 1, "weight is not a number", ("7", "8", "?")),
    "negative.txt.gz": (
        "1 2 1\n#\n\n2 3 -1e-9\n2 3 2\n",
        4,
        "weight is not positive",
        ("2", "3", "-1e-9"),
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_told_or_set_aside(
    tmp_path: Path, client: distributed.Client, name: str
) -> None:
    content, row, reason, values = BAD_ROWS[name]
    path = tmp_path / name
    if isinstance(content, str):
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    else:
        write_edges(path, content)
    nameless = isinstance(content, str) and content[0] not in "a#"
    weight: dict[str, Any] = {"weight": "3"} if nameless and "wide" not in name else {}
    message = message_of(client, path, tmp_path / "store", **weight)
    assert message.startswith(f"{path}, row {row}: ")
    assert reason in message
    assert message.endswith(REMEDY)

    graph, report = ingested(client, path, tmp_path / "store", on_bad_edges="quarantine", **weight)
    (aside,) = quarantined(graph)
    assert reason in aside.pop("reason")
    names = ("source", "target", "weight")
    assert aside == {"file": str(path), "row": row, **dict(zip(names, values, strict=True))}
    assert (report["rows_read"], report["rows_rejected"]) == (3, 1)
    weights = [1.0, 2.0] if graph.weighted else []
    good = [("a", "b"), ("b", "c")] if name == "null target.parquet" else [(1, 2), (2, 3)]
    assert_holds(graph, [(*ends, *weights[i : i + 1]) for i, ends in enumerate(good)])


def test_many_bad_rows_over_files_and_row_groups(
    tmp_path: Path, client: distributed.Client
) -> None:
    rows = [(i, i + 1, -1.0 if i % 10 == 3 else 1.5) for i in range(100)]
    write_edges(tmp_path / "in" / "a.parquet", rows)
    table = pq.read_table(tmp_path / "in" / "a.parquet")
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=7)
    (tmp_path / "in" / "b.csv").write_text("s,t,weight\n200,201,1\n200,202,0\n200\n")
    graph, report = ingested(client, tmp_path / "in", tmp_path / "store", on_bad_edges="quarantine")
    aside = [(Path(bad["file"]).name, bad["row"]) for bad in quarantined(graph)]
    assert aside[:10] == [("a.parquet", i + 1) for i in range(100) if i % 10 == 3]
    assert sorted(aside[10:]) == [("b.csv", 3), ("b.csv", 4)]
    assert (report["rows_read"], report["rows_rejected"]) == (103, 12)
    assert_holds(graph, [row for row in rows if row[2] > 0] + [(200, 201, 1.0)])


def test_the_first_bad_row_of_a_batch_is_told(tmp_path: Path, client: distributed.Client) -> None:
    (tmp_path / "e.csv").write_text("a,b,w\n1,2,1\n1,2,-1\n1,2,x\n,2,1\n")
    assert "row 3: the weight is not positive" in message_of(
        client, tmp_path / "e.csv", tmp_path / "store"
    )


def test_integers_that_were_asked_for(tmp_path: Path, client: distributed.Client) -> None:
    for name, text, reason in (
        ("e.csv", "1,2\n1,x\n2,3\n", "the target id is not a 64-bit integer"),
        ("e.txt", "1 2\n007 3\n2 3\n", "the source id is not a 64-bit integer"),
    ):
        (tmp_path / name).write_text(text)
        message = message_of(client, tmp_path / name, tmp_path / name[2:], ids="int")
        assert message.startswith(f"{tmp_path / name}, row 2: {reason}")
        options: dict[str, Any] = {"ids": "int", "on_bad_edges": "quarantine"}
        graph, report = ingested(client, tmp_path / name, tmp_path / name[2:], **options)
        assert_holds(graph, [(1, 2), (2, 3)])
        assert report["rows_rejected"] == 1


def test_all_rows_set_aside(tmp_path: Path, client: distributed.Client) -> None:
    path = tmp_path / "e.csv"
    path.write_text("1,2,-1\n2,3,0\n")
    options = {"on_bad_edges": "quarantine", "weight": "3"}
    message = message_of(client, path, tmp_path / "store", **options)
    assert message.startswith(str(path))
    assert "2 rows were rejected" in message


def test_a_file_of_a_header_alone(tmp_path: Path, client: distributed.Client) -> None:
    path = tmp_path / "e.csv"
    path.write_text("source,target\n")
    message = message_of(client, path, tmp_path / "store")
    assert message.startswith(f"{path} has no edges, only a header")


@pytest.mark.parametrize("weight", [1e31, 1e-31, 5e300])
def test_a_weight_that_float32_could_not_hold_is_refused(client, tmp_path, weight):
    path = write_edges(tmp_path / "edges.parquet", [(1, 2, 1.0), (2, 3, weight)])
    with pytest.raises(BadInputError, match=r"row 2: the weight is not between 1e-30 and 1e30"):
        ingest(path, store=tmp_path / "store", client=client)
