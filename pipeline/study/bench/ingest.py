"""Ingest: twenty million edges to the stored graph, against DuckDB doing the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from pipeline.api import Session, run_ingest
from pipeline.cluster import ClusterConfig, connect
from pipeline.config import IngestConfig
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import run_apart
from pipeline.study.planted import PlantedGraph

_LIMIT_BYTES = 2_000_000_000


def bench_ingest(*, edges: int = 20_000_000) -> list[Line]:
    """Compare with int and with string ids, both limited to 2 GB."""
    lines = []
    for ids in ("int", "string"):
        with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
            rows = run_apart(f"{__name__}:make", folder=folder, edges=edges, ids=ids).result["rows"]
            ours = run_apart(f"{__name__}:ours", folder=folder)
            other = run_apart(f"{__name__}:duckdb", folder=folder)
            same = (ours.result["nodes"], ours.result["edges"])
            if same != (other.result["nodes"], other.result["edges"]):
                raise AssertionError(f"the two graphs differ: {ours.result} and {other.result}")
        what = f"ingest: {rows / 1e6:.0f} M edges, {ids} ids, limit 2 GB"
        rival = "DuckDB: undirected, distinct, dense ids, sorted"
        lines.append(Line.of(what, rival, ours, other, wanted=0.5))
    return lines


def make(folder: str, edges: int, ids: str, per_node: int = 10) -> dict[str, int]:
    """Write a graph with a heavy tail as eight Parquet files; `per_node` edges begin at a node."""
    kind: Literal["int", "string"] = "int" if ids == "int" else "string"
    graph = PlantedGraph(
        nodes=edges // per_node,
        communities=100,
        edges_per_node=per_node,
        tail=0.4,
        new_nodes=1,
        ids=kind,
    )
    return {"rows": graph.write_partitions(Path(folder) / "edges", 8)}


def ours(folder: str) -> dict[str, int]:
    """Ingest with figrl, cluster included."""
    with connect(ClusterConfig(), _LIMIT_BYTES) as client:
        session = Session(client, _LIMIT_BYTES)
        report = run_ingest(f"{folder}/edges/known", f"{folder}/store", IngestConfig(), session)
    return {"nodes": report["nodes"], "edges": report["edges"]}


def duckdb(folder: str) -> dict[str, int]:
    """Do the same in DuckDB: both directions, distinct, rows in the order of ids, sorted."""
    import duckdb

    db = duckdb.connect(f"{folder}/duck.db")
    db.execute("SET memory_limit = '2GB'")
    db.execute(f"SET temp_directory = '{folder}/spill'")
    db.execute(f"CREATE VIEW raw AS SELECT * FROM read_parquet('{folder}/edges/known/*.parquet')")
    db.execute(
        "CREATE TABLE nodes AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS row FROM "
        "(SELECT source AS id FROM raw UNION SELECT target FROM raw)"
    )
    db.execute(
        "CREATE TABLE pairs AS SELECT a.row AS source, b.row AS target FROM raw "
        "JOIN nodes a ON raw.source = a.id JOIN nodes b ON raw.target = b.id WHERE a.row <> b.row"
    )
    db.execute(
        'COPY (SELECT DISTINCT source AS row, target AS "column" FROM (SELECT source, target FROM '
        'pairs UNION ALL SELECT target, source FROM pairs) ORDER BY row, "column") '
        f"TO '{folder}/edges.parquet' (FORMAT parquet)"
    )
    db.execute(f"COPY (SELECT * FROM nodes ORDER BY row) TO '{folder}/nodes.parquet'")
    count = f"SELECT count(*) FROM '{folder}/%s.parquet'"
    (nodes,) = db.execute(count % "nodes").fetchone() or (0,)
    (entries,) = db.execute(count % "edges").fetchone() or (0,)
    return {"nodes": nodes, "edges": entries // 2}
