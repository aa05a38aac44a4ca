"""Files that cannot be used, alone or together: which one, why, and what to do about it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import distributed
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ingestion.stored import message_of


def write(path: Path, content: Any) -> Path:
    """Write bytes, text or a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


ENDS = {"a": [1, 2], "b": [2, 3]}
UNUSABLE: dict[str, tuple[str, Any, dict[str, Any], list[str]]] = {
    "missing column": ("e.parquet", ENDS, {"source": "from"}, ["'from'", "--source", "a, b"]),
    "missing in csv": ("e.csv", "a,b\n1,2\n", {"weight": "w"}, ["'w'", "--weight", "a, b"]),
    "one column": ("e.parquet", {"a": [1]}, {}, ["two ends", "the columns a."]),
    "one column of csv": ("e.csv", "1\n2\n", {}, ["two ends", "the columns 1."]),
    "nothing left": ("e.parquet", ENDS, {"weight": "b"}, ["two ends", "the columns a, b."]),
    "one for both": (
        "e.parquet",
        ENDS,
        {"source": "a", "target": "a"},
        ["'a'", "twice", "--target"],
    ),
    "two of a name": ("e.csv", "a,b,a\n1,2,3\n", {}, ["'a'", "twice", "a, b, a"]),
    "names for text": ("e.txt", "1 2\n", {"source": "a"}, ["no column names", "--source", "CSV"]),
    "float ids": (
        "e.parquet",
        {"a": [1.0], "b": [2.0]},
        {},
        ["'a' is double", "integers or strings"],
    ),
    "ids of two types": ("e.parquet", {"a": [1], "b": ["x"]}, {}, ["int64", "string", "cast one"]),
    "weights of text": (
        "e.parquet",
        {**ENDS, "w": ["x", "y"]},
        {"weight": "w"},
        ["'w' is string", "cast"],
    ),
    "strings for int": (
        "e.parquet",
        {"a": ["1"], "b": ["2"]},
        {"ids": "int"},
        ["--ids int", "string ids"],
    ),
    "no rows": (
        "e.parquet",
        {"a": pa.array([], "int64"), "b": pa.array([], "int64")},
        {},
        ["no edge"],
    ),
    "header alone": ("e.csv", "source,target\n", {}, ["no edge", "Give at least one"]),
    "empty csv": ("e.csv", "\n\n", {}, ["empty", "Leave it out"]),
    "empty text": ("e.txt", "", {}, ["no edge", "Give at least one"]),
    "comments alone": ("e.txt", "# a\n% b\n\n", {}, ["no edge", "Give at least one"]),
    "no parquet": ("e.parquet", "PAR1 is not enough", {}, ["cannot be read as parquet", "Repair"]),
    "truncated text": (
        "e.txt.gz",
        gzip.compress(b"1 2\n" * 99)[:-9],
        {},
        ["text", "Truncated", "Repair"],
    ),
    "truncated csv": (
        "e.csv.gz",
        gzip.compress(b"1,2\n" * 99)[:-9],
        {},
        ["csv", "Truncated", "Repair"],
    ),
    "no gzip": ("e.txt.gz", "1 2\n", {}, ["cannot be read as text", "Repair"]),
    "latin-1 text": ("e.txt", "1 2\nx \xfc\n".encode("latin-1"), {}, ["row 2", "UTF-8", "iconv"]),
    "latin-1 csv": ("e.csv", "a,b\nx,\xfc\n".encode("latin-1"), {}, ["Row #2", "UTF8", "Repair"]),
    "late latin-1": (
        "e.csv",
        b"a,b\n" + b"x,y\n" * 20_000 + b"\xff,y\n",
        {},
        ["Row #20002", "UTF8"],
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_file_that_cannot_be_used(tmp_path: Path, client: distributed.Client, case: str) -> None:
    name, content, options, words = UNUSABLE[case]
    path = write(tmp_path / name, content)
    message = message_of(client, path, tmp_path / "store", **options)
    assert message.startswith(str(path))
    for word in words:
        assert word in message


def test_damaged_data_behind_a_sound_footer(tmp_path: Path, client: distributed.Client) -> None:
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"a": range(5000), "b": range(1, 5001)}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(data)
    message = message_of(client, path, tmp_path / "store")
    assert message.startswith(f"{path}: cannot be read as parquet: ")
    assert message.endswith("Repair the file or leave it out.")


OTHER: dict[str, tuple[str, Any, str, Any, str]] = {
    "ids": ("0.parquet", ENDS, "1.parquet", {"a": ["1"], "b": ["2"]}, "ids are"),
    "weights": ("0.parquet", ENDS, "1.parquet", {**ENDS, "w": [1.0, 2.0]}, "edges are"),
    "names": ("0.parquet", ENDS, "1.parquet", {"a": [1], "c": [2]}, "columns are"),
    "names of weights": (
        "0.parquet",
        {**ENDS, "weight": [1, 2]},
        "1.parquet",
        {**ENDS, "w": [1, 2]},
        "columns are",
    ),
    # Without a header the first row would be taken for one; with several files that is seen.
    "headers of csv": ("0.csv", "ann,bob\nbob,cid\n", "1.csv", "dan,ann\n", "columns are"),
    "names of csv": ("0.csv", "ann,bob\ncid,dan\n", "1.csv", "dan,ann\n", "columns are"),
    "formats": ("0.csv", "1,2\n", "1.parquet", {**ENDS, "w": [1.0, 2.0]}, "edges are"),
}


@pytest.mark.parametrize("case", OTHER)
def test_files_that_differ(tmp_path: Path, client: distributed.Client, case: str) -> None:
    first, content, second, other, words = OTHER[case]
    paths = [write(tmp_path / "in" / first, content), write(tmp_path / "in" / second, other)]
    message = message_of(client, tmp_path / "in", tmp_path / "store")
    assert all(str(path) in message for path in paths)
    assert words in message
    assert "All files of one graph need the same schema: convert one of them" in message


@pytest.mark.parametrize("given", ["nothing.csv", "*.parquet", "empty"])
def test_nothing_to_read(tmp_path: Path, client: distributed.Client, given: str) -> None:
    (tmp_path / "empty" / "day=1").mkdir(parents=True)
    (tmp_path / "empty" / "_SUCCESS").touch()
    message = message_of(client, tmp_path / given, tmp_path / "store")
    assert message.startswith(f"{tmp_path / given}: there is no edge file here. Give a file")
