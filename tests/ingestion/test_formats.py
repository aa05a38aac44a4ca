"""Every format in which edges may come, down to the stored graph."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from figrl import ingest
from figrl.errors import BadInputError, ConfigError
from figrl.ingestion.listing import find_files
from tests.ingestion.stored import Edges, assert_holds, ingested
from tests.reference import write_edges

PLAIN: Edges = [(1, 2), (2, 3), (5, 3)]
HEAVY: Edges = [(1, 2, 0.5), (2, 3, 2.0), (5, 3, 1e-3)]

TEXTS = {
    "snap.txt": (b"# Nodes: 4\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n5\t3\n", PLAIN),
    "comments.txt": (b"1 2\n#2 9\n  # 9 9\n% 9 9\n2 3\n5 3\n# end", PLAIN),
    "spaces.txt": (b"   1 \t 2\t\n\n\t\n2\x0b3\n\n5   3   \n\n", PLAIN),
    "crlf.txt": (b"# c\r\n1 2\r\n\r\n2 3\r\n5 3\r\n", PLAIN),
    "open.txt": (b"1 2\n2 3\n5 3", PLAIN),
    "mark.txt": (b"\xef\xbb\xbf1 2\n2 3\n5 3\n", PLAIN),
    "marked_comment.txt": (b"\xef\xbb\xbf# c\n1 2\n2 3\n5 3\n", PLAIN),
    "heavy.txt": (b"1 2 .5\n2 3 2\n5 3 +1E-3\n", HEAVY),
    "heavy.edges": (b"1 2 0.5 x\n2 3 2.0\n5 3 1e-3 y z\n", HEAVY),
    "labels.txt": (b"1 2 likes\n2 3 knows\n5 3 likes a lot\n", PLAIN),
    "words.edgelist": (b"b a\nc b\n", [("b", "a"), ("c", "b")]),
    "header.csv": (b"source,target\n1,2\n2,3\n5,3\n", PLAIN),
    "bare.csv": (b"1,2\n2,3\n5,3", PLAIN),
    "gaps.csv": (b"\nfrom,to\n1,2\n\n2,3\r\n5,3\n\n", PLAIN),
    "crlf.csv": (b"a,b\r\n1,2\r\n2,3\r\n5,3\r\n", PLAIN),
    "mark.csv": (b"\xef\xbb\xbfsource,target\n1,2\n2,3\n5,3\n", PLAIN),
    "heavy.csv": (b"source,target,weight\n1,2,0.5\n2,3,2\n5,3,0.001\n", HEAVY),
    "bare_heavy.csv": (b"1,2,0.5\n2,3,2\n5,3,1e-3\n", HEAVY),
    "labels.csv": (b"1,2,likes\n2,3,knows\n5,3,likes\n", PLAIN),
    "tabs.tsv": (b"source\ttarget\tweight\n1\t2\t0.5\n2\t3\t2\n5\t3\t1e-3\n", HEAVY),
    "semicolons.csv": (b"source;target;weight\n1;2;0.5\n2;3;2\n5;3;1e-3\n", HEAVY),
    "bars.csv": (b"1|2\n2|3\n5|3\n", PLAIN),
    "objects.jsonl": (
        b'{"target": 2, "source": 1, "x": [1]}\n\n{"source": 2, "target": 3}\r\n'
        b'{"source": 5, "target": 3, "y": null}',
        PLAIN,
    ),
    "heavy.ndjson": (
        b'{"from": 1, "to": 2, "weight": 0.5}\n{"from": 2, "to": 3, "weight": 2}\n'
        b'{"from": 5, "to": 3, "weight": 1e-3}\n',
        HEAVY,
    ),
    "words.jsonl": (b'{"u": "b\\u00e9;", "v": "a"}\n', [("bé;", "a")]),
    "TABS.TSV": (b"a\tb\n1\t2\n2\t3\n5\t3\n", PLAIN),
    "quotes.csv": (
        b'a,b\n"x,y","new\nline"\n"say ""hi""",x\n" x",x\n',
        [("x,y", "new\nline"), ('say "hi"', "x"), (" x", "x")],
    ),
}


GZIPPED = [
    "heavy.ndjson.gz",
    "snap.txt.gz",
    "open.txt.gz",
    "heavy.txt.gz",
    "tabs.tsv.gz",
    "quotes.csv.gz",
]


@pytest.mark.parametrize("name", [*TEXTS, *GZIPPED])
def test_text_and_csv(tmp_path: Path, client: distributed.Client, name: str) -> None:
    content, expected = TEXTS[name.removesuffix(".gz")]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    # Numbers without a name are taken for weights only if that is said.
    options = {"weight": "3"} if name.startswith(("heavy.txt", "heavy.edges", "bare_heavy")) else {}
    graph, report = ingested(client, path, tmp_path / "store", **options)
    assert_holds(graph, expected)
    assert graph.weighted == (len(expected[0]) > 2)
    assert report["rows_read"] == len(expected)


def test_objects_that_are_no_edges_are_named_or_set_aside(
    tmp_path: Path, client: distributed.Client
) -> None:
    path = tmp_path / "e.jsonl"
    good = b'{"source": 1, "target": 2}\n' * 300
    path.write_bytes(good + b'\n{"source": "x", "target": 2}\nnot json\n{"source": 3}\n')
    with pytest.raises(BadInputError, match=r"row 302: .*has a string as 'source'"):
        ingested(client, path, tmp_path / "store")
    graph, report = ingested(client, path, tmp_path / "store", on_bad_edges="quarantine")
    assert (graph.edges, report["rows_read"], report["rows_rejected"]) == (1, 303, 3)
    (kept,) = (tmp_path / "store").glob("graph/*/quarantine/*.parquet")
    rows = {row["row"]: row["reason"] for row in pq.read_table(kept).to_pylist()}
    assert sorted(rows) == [302, 303, 304]
    assert "no JSON object" in rows[303]
    path.write_bytes(b"[1, 2]\n")
    with pytest.raises(BadInputError, match="row 1: it is no JSON object"):
        ingested(client, path, tmp_path / "other")


def test_matrix_files(tmp_path: Path, client: distributed.Client) -> None:
    entries = ([0.5, 2.0, 1e-3], ([0, 1, 4], [1, 2, 2]))
    matrix = sp.coo_array(entries, shape=(5, 5))
    both = matrix + matrix.T
    sp.save_npz(tmp_path / "m.npz", both.tocsr())
    scipy.io.mmwrite(tmp_path / "symmetric.mtx", both)
    scipy.io.mmwrite(tmp_path / "general.mtx", both, symmetry="general")
    # A node without edges is kept.
    for name, first in (("m.npz", 0), ("symmetric.mtx", 1), ("general.mtx", 1)):
        graph, report = ingested(client, tmp_path / name, tmp_path / name.split(".")[0])
        assert (graph.nodes, graph.edges, graph.weighted) == (5, 3, True)
        assert list(graph.index.take(np.arange(5))) == [first + i for i in range(5)]
        assert any(f"from {first}." in note for note in report["notes"])
    (tmp_path / "pairs.mtx").write_text("1 2\n2 3\n")
    with pytest.raises(BadInputError, match=r"pairs.mtx: cannot be read as a sparse matrix"):
        ingested(client, tmp_path / "pairs.mtx", tmp_path / "other")
    with pytest.raises(BadInputError, match="give that one file"):
        find_files([tmp_path / "m.npz", tmp_path / "symmetric.mtx"])
    (tmp_path / "e.json").touch()
    with pytest.raises(BadInputError, match=r"end in '.json' are not read.*\.jsonl"):
        find_files(tmp_path / "e.json")


def test_gzip_of_several_members_is_read_to_its_end(
    tmp_path: Path, client: distributed.Client
) -> None:
    path = tmp_path / "e.txt.gz"
    path.write_bytes(gzip.compress(b"1 2\n2 3\n") + gzip.compress(b"5 3\n"))
    assert_holds(ingested(client, path, tmp_path / "store")[0], PLAIN)


def test_comments_may_be_longer_than_the_head(tmp_path: Path, client: distributed.Client) -> None:
    path = tmp_path / "e.txt"
    path.write_bytes(b"# nothing\n" * 20_000 + b"a b 2.5\nb c 0.5\n")
    graph, _ = ingested(client, path, tmp_path / "store", weight="3")
    assert_holds(graph, [("a", "b", 2.5), ("b", "c", 0.5)])


WAYS = {
    "file": ["e.parquet"],
    "folder": ["a/0.parquet", "b/c/1.pq", "2.parquet"],
    "glob": ["part-0.parquet", "part-1.parquet", "part-2.parquet"],
    "deep glob": ["x/0.parquet", "x/y/1.parquet", "2.parquet"],
    "hive": ["day=1/x.parquet", "day=2/x.parquet", "day=3/x.parquet"],
    "list": ["0.parquet", "1.parquet", "2.parquet"],
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_name_parquet(tmp_path: Path, client: distributed.Client, way: str) -> None:
    root = tmp_path / "in"
    paths = [root / name for name in WAYS[way]]
    for number, path in enumerate(paths):
        write_edges(path, PLAIN[number :: len(paths)])
    # What writers leave behind is not data, and would be an error if it were read.
    for litter in ("_SUCCESS", ".part.crc", "_temporary/0.parquet", "_old.parquet"):
        (root / litter).parent.mkdir(exist_ok=True)
        (root / litter).write_bytes(b"no data")
    given: Any = {
        "file": paths[0],
        "glob": str(root / "part-*.parquet"),
        "deep glob": str(root / "**" / "*.parquet"),
        "list": [*paths[::-1], str(paths[0])],
    }.get(way, root)
    graph, report = ingested(client, given, tmp_path / "store")
    assert_holds(graph, PLAIN)
    assert not graph.weighted
    assert report["files"] == len(paths)
    assert report["rows_read"] == 3


def test_a_glob_passes_over_what_is_hidden(tmp_path: Path) -> None:
    for name in ("a.csv", "_b.csv", ".c.csv", "_d/e.csv", "f/g.csv", "_h/i/j.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([str(tmp_path / "*.csv")])
    assert found == [str(tmp_path / "a.csv")]
    found = find_files([str(tmp_path / "**" / "*.csv")])
    assert found == [str(tmp_path / "a.csv"), str(tmp_path / "f" / "g.csv")]
    # What is asked for by name is meant.
    assert find_files([tmp_path / "_b.csv"]) == [str(tmp_path / "_b.csv")]
    assert find_files([str(tmp_path / "_h" / "*" / "*.csv")]) == [str(tmp_path / "_h/i/j.csv")]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.int32(),
        pa.uint32(),
        pa.int64(),
        pa.uint64(),
        pa.dictionary(pa.int8(), pa.int32()),
    ],
    ids=str,
)
def test_integer_columns(tmp_path: Path, client: distributed.Client, kind: pa.DataType) -> None:
    table = pa.table({"a": pa.array([1, 2, 5], kind), "b": pa.array([2, 3, 3], kind)})
    pq.write_table(table, tmp_path / "e.parquet")
    graph, _ = ingested(client, tmp_path / "e.parquet", tmp_path / "store")
    assert graph.id_kind == "int"
    assert_holds(graph, PLAIN)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_string_columns(tmp_path: Path, client: distributed.Client, kind: pa.DataType) -> None:
    edges: Edges = [("x", "ü"), ("", "x"), ("x", "zz"), ("zz", "x")]
    columns = {name: pa.array([edge[i] for edge in edges]) for i, name in enumerate("ab")}
    table = pa.table({name: column.cast(kind) for name, column in columns.items()})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=3)
    graph, _ = ingested(client, tmp_path / "e.parquet", tmp_path / "store")
    assert graph.id_kind == "string"
    assert_holds(graph, edges)


@pytest.mark.parametrize(
    "weights",
    [
        pa.array([1, 2, 3], pa.int16()),
        pa.array([0.5, 2.0, 0.25], pa.float32()),
        pa.array([0.1, 2.0, 1e-3], pa.float64()),
        pa.array([Decimal("0.10"), Decimal("2.00"), Decimal("7.25")]),
    ],
    ids=lambda column: str(column.type),
)
def test_types_of_weights(tmp_path: Path, client: distributed.Client, weights: pa.Array) -> None:
    table = pa.table({"a": [1, 2, 5], "b": [2, 3, 3], "Weight": weights})
    pq.write_table(table, tmp_path / "e.parquet")
    graph, _ = ingested(client, tmp_path / "e.parquet", tmp_path / "store")
    values = [float(value) for value in weights.to_pylist()]
    assert_holds(graph, [(1, 2, values[0]), (2, 3, values[1]), (5, 3, values[2])])


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_columns_by_name(tmp_path: Path, client: distributed.Client, form: str) -> None:
    table = pa.table(
        {
            "t": [4, 5, 6],
            "n": [7, 8, 9],
            "to": [2, 3, 3],
            "w": [0.5, 2.0, 1e-3],
            "at": [1, 2, 5],
        }
    )
    path = tmp_path / f"e.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)
    store = tmp_path / "store"
    graph, _ = ingested(client, path, store, source="at", target="to", weight="w")
    assert_holds(graph, HEAVY)
    graph, _ = ingested(client, path, store, source="at", target="to")
    assert_holds(graph, PLAIN)
    # An end that is not named is the first column that is not named either.
    graph, _ = ingested(client, path, store, target="to", weight="w")
    assert_holds(graph, [(4, 2, 0.5), (5, 3, 2.0), (6, 3, 1e-3)])


def test_formats_may_be_mixed(tmp_path: Path, client: distributed.Client) -> None:
    write_edges(tmp_path / "in" / "0.parquet", [("1", "2"), ("x", "2")])
    (tmp_path / "in" / "1.csv").write_bytes(b"a,b\n2,3\n")
    (tmp_path / "in" / "2.txt.gz").write_bytes(gzip.compress(b"5 3\n"))
    (tmp_path / "in" / "3.txt").write_bytes(b"# nothing in here\n")
    (tmp_path / "in" / "4.csv").write_bytes(b"a,b\n")
    graph, _ = ingested(client, tmp_path / "in", tmp_path / "store")
    assert_holds(graph, [("1", "2"), ("x", "2"), ("2", "3"), ("5", "3")])


def test_a_file_without_rows_among_weighted_ones(
    tmp_path: Path, client: distributed.Client
) -> None:
    (tmp_path / "0.csv").write_bytes(b"source,target,weight\n")
    (tmp_path / "1.csv").write_bytes(b"source,target,weight\n1,2,0.5\n2,3,2\n5,3,0.001\n")
    graph, _ = ingested(client, str(tmp_path / "*.csv"), tmp_path / "store")
    assert_holds(graph, HEAVY)


def test_unknown_ending_names_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "e.xlsx").touch()
    with pytest.raises(BadInputError) as caught:
        find_files([tmp_path])
    assert str(tmp_path / "e.xlsx") in caught.value.message
    for ending in (
        ".parquet",
        ".pq",
        ".csv",
        ".tsv",
        ".txt",
        ".edges",
        ".edgelist",
        ".snap",
        ".gz",
    ):
        assert ending in caught.value.message


def test_a_csv_of_words_without_a_header(client, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("ann,bob\ncat,dan\n")
    guessed = ingest(path, store=tmp_path / "guessed", client=client)
    assert (guessed.nodes, guessed.edges) == (2, 1)
    path.write_text("ann,bob\nbob,cat\n")
    found = ingest(path, store=tmp_path / "found", client=client)
    assert (found.nodes, found.edges) == (3, 2)
    told = ingest(path, store=tmp_path / "told", client=client, csv_header="no")
    assert (told.nodes, told.edges) == (3, 2)
    with pytest.raises(ConfigError, match="need numbers"):
        ingest(path, store=tmp_path / "x", client=client, csv_header="no", source="ann")
