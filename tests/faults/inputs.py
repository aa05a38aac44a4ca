"""A corpus of input files, made by code, each with the graph or the error that it has to give."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.capacity import ClusterMemory
from figrl.engine.local_runner import LocalRunner
from figrl.ingestion.build import build_graph
from figrl.ingestion.listing import find_files
from figrl.ingestion.options import IngestOptions
from figrl.ingestion.sources import inspect_file
from figrl.store.graph import Graph, graph_from_manifest

Edges = list[tuple[Any, ...]]
PLAIN: Edges = [(10, 2), (2, 33), (10, 33), (5, 2)]
HEAVY: Edges = [(10, 2, 0.5), (2, 33, 2.0), (10, 33, 1e-3), (5, 2, 7.0)]
WORDS: Edges = [("ann", "bob"), ("bob", "cid"), ("ann", "cid"), ("dan", "bob")]

Content = bytes | pa.Table | Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """A file, how it is read, and what has to come of it: edges, or words of an error (exit 3)."""

    name: str
    file: str
    content: Content
    edges: Edges | None = None
    words: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    code: int = 3
    notes: tuple[str, ...] = ()
    reading: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write the file; return what is given to ingest."""
        path = folder / self.file
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        elif isinstance(self.content, pa.Table):
            pq.write_table(self.content, path)
        else:
            self.content(path)
        return path


def ingest_here(path: Any, folder: Path, **options: Any) -> tuple[Graph, dict[str, Any]]:
    """Ingest in this process, by the stages of the job; return the graph and its facts."""
    config = IngestOptions(**options)
    sources = [inspect_file(file, config) for file in find_files(path)]
    with ThreadPoolExecutor(1) as threads:
        runner = LocalRunner(folder / "work" / "marks", threads)
        facts = build_graph(runner, sources, config, ClusterMemory(1, 1, 4 << 30), folder)
    return graph_from_manifest(folder, {"graph": facts}), facts


def rows_of(edges: Edges, separator: str, end: str, header: tuple[str, ...] = ()) -> str:
    """Edges as lines."""
    rows = [*([header] if header else []), *edges]
    return "".join(separator.join(map(str, row)) + end for row in rows)


def spelt() -> Iterator[Case]:
    """One graph in every spelling of text and CSV."""
    for comma, end, mark, packed, named, heavy in product(
        (",", "\t", ", ", " ,\t"),
        ("\n", "\r\n", "\r"),
        (b"", b"\xef\xbb\xbf"),
        *[(False, True)] * 3,
    ):
        if packed and mark:
            continue
        edges = HEAVY if heavy else PLAIN
        header = ("source", "target", "weight")[: len(edges[0])] if named else ()
        data = mark + rows_of(edges, comma, end, header).encode()
        suffix = ("tsv" if comma == "\t" else "csv") + (".gz" if packed else "")
        options = {} if named or not heavy else {"weight": "3"}
        name = f"{suffix} {comma!r} {end!r} mark={bool(mark)} header={named} weights={heavy}"
        content = gzip.compress(data) if packed else data
        yield Case(name, f"e.{suffix}", content, edges, options=options)
    for space, end, mark, packed, heavy in product(
        (" ", "\t", " \t "), ("\n", "\r\n", "\r\r\n"), (b"", b"\xef\xbb\xbf"), *[(False, True)] * 2
    ):
        edges = HEAVY if heavy else PLAIN
        data = mark + b"# c\n" + rows_of(edges, space, end).encode()
        options = {"weight": "3"} if heavy else {}
        name = f"text {space!r} {end!r} mark={bool(mark)} gz={packed} weights={heavy}"
        suffix, content = ("txt.gz", gzip.compress(data)) if packed else ("txt", data)
        yield Case(name, f"e.{suffix}", content, edges, options=options)


WEIGHTS = ("weight", "Weight", "WEIGHT", "w", "W", "wt", "value", "Value", "count", "Count")
WEIGHTS += ("cnt", "freq", "frequency", "edge_weight")
TIMES = ("year", "Year", "timestamp", "Timestamp", "time", "date", "created_at", "createdAt")
MEASURES = ("rating", "amount", "score", "distance", "anything", "type")


def third_columns() -> Iterator[Case]:
    """A third column is a weight by its name only."""
    for name, form in product([*WEIGHTS, *TIMES, *MEASURES], ("csv", "parquet")):
        frame = pd.DataFrame(HEAVY, columns=["follower", "followed", name])
        edges = HEAVY if name in WEIGHTS else PLAIN
        told = (f"'{name}' holds numbers and was not taken",) if name in MEASURES else ()
        taken = name if name in WEIGHTS else None
        yield from _frame(f"third column {name}", frame, form, edges, notes=told, weight=taken)
    for name, form in product(("year", "anything"), ("csv", "parquet")):
        frame = pd.DataFrame(HEAVY, columns=["follower", "followed", name])
        yield from _frame(f"asked {name}", frame, form, HEAVY, options={"weight": name})
    for form in ("csv", "parquet"):
        frame = pd.DataFrame(HEAVY, columns=["follower", "followed", "weight"])
        yield from _frame("weight none", frame, form, PLAIN, options={"weight": "none"})
        two = frame.assign(count=[1, 2, 3, 4])
        yield from _frame("two weights", two, form, None, words=("may all be weights", "--weight"))


def _frame(
    name: str,
    frame: pd.DataFrame,
    form: str,
    edges: Edges | None,
    *,
    index: bool = False,
    weight: Any = "?",
    **case: Any,
) -> Iterator[Case]:
    if form == "csv":
        content: Content = frame.to_csv(index=index).encode()
    else:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=index or None)
        content = buffer.getvalue()
    reading = {} if weight == "?" else {"weight": weight}
    yield Case(f"{form}: {name}", f"e.{form}", content, edges, reading=reading, **case)


def pandas_files() -> Iterator[Case]:
    """The files of pandas that people have."""
    ask = {"words": ("--source and --target",)}
    for form in ("csv", "parquet"):
        for heavy, ends in product((False, True), (("source", "target"), ("user", "item"))):
            edges = HEAVY if heavy else PLAIN
            names = [*ends, "weight"][: len(edges[0])]
            frame = pd.DataFrame(edges, columns=names)
            taken = {"source": ends[0], "target": ends[1]}
            of = f"{' '.join(names)}"
            yield from _frame(f"no index, {of}", frame, form, edges)
            yield Case(
                **{**vars(next(_frame(f"index, {of}", frame, form, edges, index=True)))}
                | {"reading": taken}
            )
            some = frame.iloc[[0, 2]]
            kept = [edges[0], edges[2]]
            yield from _frame(f"filtered, {of}", some, form, kept, index=True)
            yield from _frame(f"reset_index, {of}", frame.reset_index(), form, edges)
            twice = frame.reset_index().reset_index()
            yield from _frame(f"reset twice, {of}", twice, form, edges)
            unnamed = frame.reset_index(names="Unnamed: 0")
            yield from _frame(f"read back with an index, {of}", unnamed, form, edges)
            by_source = frame.set_index(ends[0])
            yield from _frame(f"source as index, {of}", by_source, form, edges, index=True)
            both = frame.set_index(list(ends))
            if heavy or form == "csv":
                yield from _frame(f"both as index, {of}", both, form, edges, index=True)
            keyed = frame.assign(order_id=[101, 205, 377, 411]).set_index("order_id")
            known = ends[0] == "source" or form == "parquet"
            wanted: dict[str, Any] = {} if known else ask
            graph = edges if known else None
            yield from _frame(f"a named index, {of}", keyed, form, graph, index=True, **wanted)
            plain = keyed.reset_index()
            wanted, graph = ({}, edges) if ends[0] == "source" else (ask, None)
            yield from _frame(f"a key in front, {of}", plain, form, graph, **wanted)
        frame = pd.DataFrame(PLAIN, columns=["source", "target"])
        for extra in ("year", "timestamp"):
            dated = frame.assign(**{extra: [2020, 2021, 2021, 2022]})
            yield from _frame(f"{extra} last", dated, form, PLAIN, weight=None)
            yield from _frame(f"{extra} first", dated[[extra, "source", "target"]], form, PLAIN)
            other = dated.rename(columns={"source": "user", "target": "item"})
            yield from _frame(f"{extra} first, users", other[[extra, "user", "item"]], form, PLAIN)
            weighed = other.assign(weight=[edge[2] for edge in HEAVY])
            yield from _frame(f"{extra} and weight", weighed, form, HEAVY, weight="weight")
        stamped = frame.assign(at=pd.to_datetime(["2026-01-01"] * 4))
        yield from _frame("timestamps", stamped, form, PLAIN, weight=None)
        words = pd.DataFrame(WORDS, columns=["source", "target"])
        yield from _frame("categorical ids", words.astype("category"), form, WORDS)
        yield from _frame("categorical integers", frame.astype("category"), form, PLAIN)
        yield from _frame("nullable integers", frame.astype("Int64"), form, PLAIN)
        lost = pd.concat([frame, pd.DataFrame({"source": [1.0], "target": [None]})])
        yield from _frame("integers that became floats", lost, form, None, words=("cast",))
        yield from _frame("string ids with an index", words, form, WORDS, index=True)
        mixed = frame.assign(weight=["x", "y", "z", "x"])
        told = ("'weight' has the name of weights, and holds text", "--weight none")
        yield from _frame("a weight of words", mixed, form, None, words=told)


CSVS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "index without header": (
        "0,10,2\n1,2,33\n2,5,2\n",
        ("first column is an index", "--source 2"),
        {},
    ),
    "index and words without header": ("0,ann,bob\n1,bob,cid\n", ("may be an index",), {}),
    "its columns by number": (
        "0,10,2\n1,2,33\n",
        [(10, 2), (2, 33)],
        {"source": "2", "target": "3"},
    ),
    "numbers without a name": ("10,2,5\n10,33,6\n", ("column 3", "--weight 3", "none"), {}),
    "they are no weights": ("10,2,5\n10,33,6\n", [(10, 2), (10, 33)], {"weight": "none"}),
    "words and numbers": ("ann,bob,5\nann,cid,6\n", ("column 3", "--weight 3"), {}),
    "a label": ("10,2,x\n10,33,y\n", [(10, 2), (10, 33)], {}),
    "no such number": ("10,2\n2,33\n", ("no column '3'", "numbers"), {"weight": "3"}),
    "header or edge, an edge": ("ann,bob\nbob,cid\n", [("ann", "bob"), ("bob", "cid")], {}),
    "header or edge, names": ("ann,bob\ncid,dan\n", [("cid", "dan")], {}),
    "header or edge, asked": ("u,v\nv,w\n", ("may hold names or an edge", "--csv-header"), {}),
    "header or edge, told": ("u,v\nv,w\n", [("u", "v"), ("v", "w")], {"csv_header": "no"}),
    "blanks in quotes": ('a,b\n" x" , y\n', [(" x", "y")], {}),
    "blanks inside": ("a,b\nx  y , z\n", [("x  y", "z")], {}),
    "quote after a blank": ('a,b\n1, "x,y"\n', [("1", "x,y")], {}),
    "quote twice": ('a,b\n"x ""y""",z\n', [('x "y"', "z")], {}),
    "open quote": ('a,b\n1,2\n"3,4\n5,6\n', ("row 3", "never closed"), {}),
    "nul": ("a,b\n1,2\n3\0,4\n", ("row 3", "NUL"), {}),
    "long row": (f"a,b\n1,2\n{'x' * (1 << 20)},4\n", ("row 3", "longer than 1"), {}),
    "long quoted row": (f'a,b\n"{"x" * (1 << 20)}",4\n', ("row 2", "longer than", "quote"), {}),
    "nothing but blanks": (" \n \n", ("empty",), {}),
    "missing id": ("a,b\n1, \n", ("row 2", "target id is missing"), {}),
    "a year without a name": ("10,2,2020\n10,33,2021\n", ("--weight",), {}),
    "three words": ("p,q,r\na,b,c\nd,e,f\n", ("may be an index",), {}),
    "empty header": (",\n1,2\n", ("two ends",), {}),
    "braces": ("{a},{b}\n1,2\n", [(1, 2)], {}),
    "wide": ("a,b\n1,2\n1,2,3\n", ("row 3", "has 3 instead of 2 columns"), {}),
    "infinite weight": ("a,b,w\n1,2,inf\n", ("row 2", "not finite"), {}),
    "huge weight": ("a,b,w\n1,2,1e300\n", ("row 2", "1e30"), {}),
    "not a weight": ("a,b,w\n1,2,1\n2,3,x\n", ("row 3", "not a number"), {}),
}

TEXTS: dict[str, tuple[bytes, Any, dict[str, Any]]] = {
    "cr alone": (b"1 2\r3 4\r", ("row 1", "carriage return", "tr "), {}),
    "cr in a comment": (b"# a\r1 2\r", ("row 1", "carriage return"), {}),
    "cr at the end": (b"1 2\r\n3 4\r", [(1, 2), (3, 4)], {}),
    "nul": (b"1 2\n3\x004\n", ("row 2", "NUL", "UTF-16"), {}),
    "control character": (b"1 2\n3\x1e4 5\n", ("row 2", "control character", "x1e"), {}),
    "nothing but a control character": (b"\x01", ("row 1", "control character"), {}),
    "utf-16": ("1 2\n".encode("utf-16"), ("row 1", "NUL", "UTF-16"), {}),
    "invalid utf-8": (b"1 2\nx \xff\n", ("row 2", "UTF-8"), {}),
    "long line": (b"1 2\n" + b"x" * (3 << 20), ("byte 4", "longer than 1"), {}),
    "long line inside": (b"1 2\n" + b"x" * (1 << 20) + b"y 3\n4 5\n", ("byte 4", "longer"), {}),
    "long comment": (b"#" * (2 << 20) + b"\n1 2\n", ("byte 0", "longer"), {}),
    "line at the limit": (
        b"1 " + b"x" * ((1 << 20) - 2) + b"\n",
        [("1", "x" * ((1 << 20) - 2))],
        {},
    ),
    "third number": (b"1 2 3\n2 3 4\n", ("column 3", "--weight 3", "--weight none"), {}),
    "unix times": (b"1 2 1217567877\n2 3 1217573801\n", ("times", "--weight none"), {}),
    "index": (b"0 ann bob\n1 bob cid\n", ("may be an index",), {}),
    "no third": (b"1 2\n", ("no column '3'", "Leave --weight out"), {"weight": "3"}),
    "another": (b"1 2 3\n", ("only as 3 or none",), {"weight": "w"}),
    "names": (b"source target\na b\n", ("seems to hold names", "#"), {}),
    "other names": (b"user friend\n1 2\n2 3\n", ("seems to hold names",), {}),
    "a label": (b"1 2 x\n1 3 y\n", [(1, 2), (1, 3)], {}),
    "weights": (b"1 2 3\n2 3 4\n", [(1, 2, 3.0), (2, 3, 4.0)], {"weight": "3"}),
    "none": (b"1 2 3\n2 3 4\n", [(1, 2), (2, 3)], {"weight": "none"}),
    "narrow": (b"1\n", ("row 1", "1 column"), {}),
    "empty": (b"", ("no edge",), {}),
}


def strange() -> Iterator[Case]:
    """Texts and tables that once gave a wrong graph, or none without a word."""
    tables: dict[str, dict[str, tuple[Any, Any, dict[str, Any]]]] = {
        "csv": {name: (text.encode(), *rest) for name, (text, *rest) in CSVS.items()},
        "txt": dict(TEXTS),
    }
    for form, table in tables.items():
        for name, (content, expected, options) in table.items():
            edges, words = (expected, ()) if isinstance(expected, list) else (None, expected)
            yield Case(f"{form}: {name}", f"e.{form}", content, edges, words, options)
    bad = pa.array([b"a", b"\xff\xfe"], pa.binary()).view(pa.string())
    good = pa.array(["b", "c"])
    for number, columns in enumerate(({"s": bad, "t": good}, {"s": good, "t": bad})):
        table_ = pa.table(columns)
        yield Case(
            f"parquet: invalid utf-8 {number}", "e.parquet", table_, None, ("row 2", "UTF-8")
        )
    nested = pa.table({"s": [[1]], "t": [[2]]})
    yield Case("parquet: lists", "e.parquet", nested, None, ("integers or strings",))


CASES = {
    case.name: case for make in (spelt, third_columns, pandas_files, strange) for case in make()
}
