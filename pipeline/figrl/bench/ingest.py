"""Ingest: twenty million edges to the stored graph, against DuckDB."""

from __future__ import annotations

from figrl.bench.harness import ingest_edges, run_both, scratch, write_planted
from figrl.bench.results import Comparison
from figrl.study.process import measure_in_process


def bench_ingest(*, edges: int = 20_000_000) -> list[Comparison]:
    """Compare with int and with string ids, both limited to 2 GB."""
    found = []
    for ids in ("int", "string"):
        with scratch() as folder:
            written = measure_in_process(
                write_planted, folder=folder, edges=edges, string_ids=ids == "string"
            )
            measured = run_both(ours, duckdb, folder=folder)
        first, second = (one.result for one in measured)
        if first != second:
            raise AssertionError(f"the two graphs differ: {first} and {second}")
        what = f"ingest: {written.result['rows'] / 1e6:.0f} M edges, {ids} ids, limit 2 GB"
        other = "DuckDB: undirected, distinct, dense ids, sorted"
        found.append(Comparison.of(what, other, measured, wanted=0.5))
    return found


def ours(folder: str) -> dict[str, int]:
    """Ingest with figrl, cluster included."""
    return ingest_edges(f"{folder}/edges/known", f"{folder}/store", 2_000_000_000)


def duckdb(folder: str) -> dict[str, int]:
    """Ingest with DuckDB: both directions, distinct, rows in the order of ids, sorted."""
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
