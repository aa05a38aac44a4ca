"""The command line at its edges: odd options, refusals, words for people, a fresh process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.reference import write_edges

NODES = 300


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Edges of a ring with chords, and edges of two new nodes."""
    folder = tmp_path_factory.mktemp("edges")
    ring = [(i, (i + step) % NODES) for i in range(NODES) for step in (1, 7, 31)]
    write_edges(folder / "new.parquet", [(1000, 1), (1000, 2), (1001, 1000), (1001, 5)])
    return write_edges(folder / "edges.parquet", ring)


@pytest.fixture
def ring(figrl, edges, tmp_path):
    """A store with the graph of the ring, ingested by the command."""
    assert figrl("ingest", edges, "--store", tmp_path / "ring", "--block-rows", 64).code == 0
    return tmp_path / "ring"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["embd"], "Did you mean 'embed'?"),
        (["foldin"], "Did you mean 'fold-in'?"),
        (["xyzzy"], "'figrl --help' lists all"),
        (["embed", "--stor", "s"], "--store"),
        (["ingest", "e.csv", "--store", "s", "--wieght", "3"], "--weight"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(figrl, words, meant):
    outcome = figrl(*words, on_cluster=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert meant in outcome.err


def test_from_a_file_to_vectors_in_one_command(figrl, edges, tmp_path):
    table = pq.read_table(edges)
    lines = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
    text = tmp_path / "edges.csv"
    text.write_text("von;nach\n" + "".join(f"{a};{b}\n" for a, b in lines))
    out, options = tmp_path / "v.parquet", ["--dim", 8, "--depth", 2]
    words = ["embed", text, "--source", "von", "--target", "nach", *options]
    shown = figrl(*words, "--out", out)
    assert shown.code == 0
    assert shown.out.startswith(f"{NODES} vectors of 8 dimensions: {out}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "v.parquet"]
    assert figrl(*words, "--out", out).code == 2
    # The same bits as step by step; the store is kept where it is named.
    store, again = tmp_path / "store", tmp_path / "again.parquet"
    report = figrl(*words, "--out", again, "--store", store, "--json").json
    assert report["ingest"]["edges"] == 3 * NODES
    assert (report["rows"], report["out"], report["dim"]) == (NODES, str(again), 8)
    assert pq.read_table(again).equals(pq.read_table(out))
    assert figrl("embed", "--store", store, *options, "--json").json["already_done"] is True
    figrl("export", "--store", store, "--out", tmp_path / "third.parquet")
    assert pq.read_table(tmp_path / "third.parquet").equals(pq.read_table(out))


def test_a_refused_file_leaves_nothing_beside_the_output(figrl, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,weight\n1,2,-1\n")
    outcome = figrl("embed", path, "--out", tmp_path / "v.parquet", "--json")
    assert outcome.json["exit_code"] == outcome.code == 3
    assert "row 2" in outcome.err
    assert [file.name for file in tmp_path.iterdir()] == ["edges.csv"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--dim", "4"], "EDGES"),
        (["e.csv"], "Give --out"),
        (["--store", "s", "--weight", "3"], "--weight says how EDGES are read"),
    ],
)
def test_edges_and_where_they_go_belong_together(figrl, words, part):
    outcome = figrl("embed", *words, on_cluster=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert part in outcome.err


@pytest.mark.parametrize("job", ["plan", "embed"])
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--dim", "0"], ["--dim is 0", "greater than or equal to 1"]),
        (["--dim", "299"], ["--dim is 299", "at most 298"]),
        (["--dim", "4", "--sketch-size", "0"], ["--sketch-size is 0", "greater than or equal"]),
        (["--dim", "4", "--epsilon", "1.5"], ["--epsilon is 1.5", "less than 1"]),
        (["--dim", "4", "--epsilon", "0.001"], ["4 to 32768", "--epsilon of at least 0.0"]),
        (["--dim", "4", "--seed", "-1"], ["--seed is -1"]),
        (["--dim", "4", "--memory-limit", "-2GB"], ["'-2GB' is too small"]),
        (["--dim", "4", "--memory-limit", "1e400GB"], ["'1e400GB' is not a size of memory"]),
    ],
)
def test_options_out_of_range_end_with_2(figrl, store, job, words, parts):
    outcome = figrl(job, "--store", store, *words)
    assert (outcome.code, outcome.out) == (2, "")
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["no-such-job"], "no-such-job"),
        (["ingest", "--store", "s"], "EDGES"),
        (["ingest", "x.parquet"], "--store"),
        (["ingest", "x.parquet", "--store", "s", "--block-rows", "100"], "power of two"),
        (["ingest", "x.parquet", "--store", "s", "--block-rows", "0"], "--block-rows is 0"),
        (["ingest", "x.parquet", "--store", "s", "--ids", "uuid"], "'uuid'"),
        (["ingest", "x.parquet", "--store", "s", "--on-bad-edges", "weep"], "'weep'"),
        (["ingest", "x.parquet", "--store", __file__], "--store"),
        (["export", "--store", "s"], "--out"),
        (["fold-in", "x.parquet", "--store", "s"], "--out"),
        (["status"], "--store"),
    ],
)
def test_wrong_usage_ends_with_2_and_touches_nothing(figrl, words, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = figrl(*words, on_cluster=False)
    assert (outcome.code, outcome.out) == (2, "")
    assert part in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten_unasked(figrl, ring, edges, tmp_path):
    assert figrl("embed", "--store", ring, "--dim", 4, "--sketch-size", 16).code == 0
    out = tmp_path / "v.parquet"
    out.write_text("mine")
    for job in (["export"], ["fold-in", edges.with_name("new.parquet")]):
        outcome = figrl(*job, "--store", ring, "--out", out)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"{out} is there already" in outcome.err
        assert "--overwrite" in outcome.err
    refused = figrl("export", "--store", ring, "--out", out, "--overwrite")
    assert (refused.code, refused.out) == (2, "")
    assert f"{out} was not written by figrl" in refused.err
    assert out.read_text() == "mine"
    out.unlink()
    for _ in range(2):
        assert figrl("export", "--store", ring, "--out", out, "--overwrite").code == 0
        assert pq.read_table(out).num_rows == NODES


def test_a_file_of_an_unknown_kind_ends_with_3(figrl, tmp_path):
    (tmp_path / "edges.docx").touch()
    outcome = figrl("ingest", tmp_path / "edges.docx", "--store", tmp_path / "store")
    assert outcome.code == 3
    assert "'.docx'" in outcome.err
    assert ".parquet" in outcome.err


def test_vectors_that_are_not_learnt_yet_end_with_3(figrl, ring, tmp_path):
    outcome = figrl("export", "--store", ring, "--out", tmp_path / "v")
    assert (outcome.code, outcome.out) == (3, "")
    assert "Nothing is learnt yet" in outcome.err
    assert "figrl embed" in outcome.err
    outcome = figrl("export", "--store", ring, "--out", tmp_path / "v", "--run", "nope", "--json")
    assert outcome.json["exit_code"] == outcome.code == 3
    assert "no finished run 'nope'" in outcome.json["error"]
    assert outcome.json["error"] in outcome.err


def test_the_memory_that_a_refusal_asks_for_is_enough(figrl, ring):
    options = ["--store", ring, "--dim", 4, "--sketch-size", 20, "--memory-limit"]
    outcome = figrl("embed", *options, "100MB", "--json")
    assert outcome.json["exit_code"] == outcome.code == 5
    assert "75 MB may be used of a limit of 100 MB" in outcome.err
    assert not (ring / "runs").exists()
    wanted = re.findall("Raise --memory-limit to ([0-9]+MB)", outcome.err)[0]
    assert "--sketch-size" not in outcome.err, "no sketch is small enough for 75 MB"
    assert figrl("plan", *options, wanted).code == 0
    less = f"{int(wanted.removesuffix('MB')) - 10}MB"
    assert figrl("plan", *options, less).code == 5


def test_a_fold_in_that_does_not_fit_ends_with_5(figrl, ring, edges, tmp_path):
    assert figrl("embed", "--store", ring, "--dim", 4, "--sketch-size", 16).code == 0
    words = ["fold-in", edges.with_name("new.parquet"), "--store", ring, "--out", tmp_path / "v"]
    outcome = figrl(*words, "--memory-limit", "100MB")
    assert (outcome.code, outcome.out) == (5, "")
    assert "fold-in needs" in outcome.err
    assert "of a limit of 100 MB" in outcome.err
    assert "Raise --memory-limit" in outcome.err


def test_an_unexpected_error_ends_with_1_and_its_traceback(figrl, store, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oh")

    words = ["embed", "--store", store, "--dim", 4, "--sketch-size", 16, "--json"]
    monkeypatch.setattr("figrl_jobs.embed.embed_store", broken)
    outcome = figrl(*words)
    assert outcome.code == 1
    assert outcome.json == {"error": "Unexpected: ZeroDivisionError: oh", "exit_code": 1}
    assert "Traceback" in outcome.err


def test_progress_and_result_have_a_stream_each(figrl, edges, tmp_path):
    store = tmp_path / "store"
    outcome = figrl("ingest", edges, "--store", store, "--json", "--verbose")
    report = outcome.json
    assert (report["nodes"], report["edges"], report["already_done"]) == (NODES, 3 * NODES, False)
    where, *shown, end = outcome.err.splitlines()
    assert where.startswith("Running on 2 workers at tcp://127.0.0.1:")
    assert [line.split(":")[0] for line in shown] == [stage["name"] for stage in report["stages"]]
    assert end == "ingest: done"
    peaks = [worker["peak_bytes"] for worker in report["workers"]]
    assert report["peak_worker_bytes"] == max(peaks)
    assert figrl("embed", "--store", store, "--dim", 4, "--sketch-size", 16).code == 0
    words = ["fold-in", edges.with_name("new.parquet"), "--store", store, "--json"]
    counts = figrl(*words, "--out", tmp_path / "new.parquet").json["counts"]
    assert counts["nodes_folded_in"] == 2
    assert counts["edges_between_new_nodes"] == 1
    outcome = figrl("export", "--store", store, "--out", tmp_path / "v", "--json")
    report = outcome.json
    assert (report["rows"], report["dim"], report["out"]) == (NODES, 4, str(tmp_path / "v"))
    # Without --verbose, few lines.
    assert [line.split(" in ")[0] for line in outcome.err.splitlines()[1:]] == ["export: done"]


def test_the_bars_of_a_terminal_stay_out_of_the_result(figrl, store, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    outcome = figrl("embed", "--store", store, "--dim", 3, "--sketch-size", 16, "--json")
    assert outcome.code == 0
    assert outcome.json["dim"] == 3
    assert "\x1b[" in outcome.err
    assert "learning vectors" in outcome.err or "multiplying with the graph" in outcome.err


def test_the_installed_command_in_a_process_of_its_own(store):
    script = Path(sys.executable).with_name("figrl")

    def run(*words):
        return subprocess.run([script, *words], capture_output=True, text=True, check=False)

    done = run("status", "--store", store, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["graph"]["nodes"] == 299
    failed = run("status", "--store", store / "none")
    assert (failed.returncode, failed.stdout) == (3, "")
    assert failed.stderr.startswith("error: There is no graph in")


def test_jobs_do_not_load_what_only_the_demo_needs():
    """Every worker process of a local cluster loads what the command has loaded."""
    modules = "{'sklearn', 'dask_ml', 'pandas'}"
    check = f"import sys, figrl_jobs.main; print(sorted({modules} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_plan_is_met_by_its_run(figrl, ring):
    options = ["--store", ring, "--preset", "paper", "--dim", 4, "--sketch-size", 24, "--json"]
    plan = figrl("plan", *options).json
    for stage in plan["stages"]:
        assert plan["reserved_bytes"] < stage["peak_bytes"] <= plan["allowed_bytes"]
    assert plan["peak_worker_bytes"] == max(stage["peak_bytes"] for stage in plan["stages"])
    assert plan["disk_bytes"] == sum(stage["written_bytes"] for stage in plan["stages"])
    assert (plan["workers"], plan["threads_per_worker"]) == (2, 1)
    assert plan["memory_limit_bytes"] == 4_000_000_000
    planned = {stage["name"]: stage for stage in plan["stages"]}
    done = {stage["name"]: stage for stage in figrl("embed", *options).json["stages"]}
    for name, stage in planned.items():
        assert done[name]["blocks"] == stage["tasks"]
    for name in ("sketch", "vectors"):
        assert done[name]["written_bytes"] == planned[name]["written_bytes"]
    assert planned["sketch"]["written_bytes"] == NODES * 24 * 4
    assert planned["sketch"]["flops"] == 2 * (2 * 3 * NODES) * 24


def test_a_plan_starts_no_local_cluster(figrl, store, tmp_path, monkeypatch):
    path = tmp_path / "local.yaml"
    path.write_text("local: {workers: 3, threads_per_worker: 2, memory_limit: 2GB}")

    def started(*_, **__):
        raise AssertionError("a cluster was started")

    monkeypatch.setattr("distributed.LocalCluster", started)
    words = ["plan", "--store", store, "--dim", 4, "--sketch-size", 16, "--cluster", path]
    plan = figrl(*words, "--json").json
    assert (plan["workers"], plan["threads_per_worker"]) == (3, 2)
    assert plan["allowed_bytes"] == 1_500_000_000
    # No more than the machine has, whatever was asked for: that is what a worker would get.
    assert figrl(*words, "--json", "--memory-limit", "100TB").json["memory_limit_bytes"] < 10**14


def test_more_columns_than_nodes_are_noted(figrl, ring):
    columns = 8 * int(np.ceil(np.ceil(4 * np.log(NODES) / 0.04) / 8))
    note = (
        f"The paper's rule asks for {columns:,} sketch columns, more than the graph has nodes "
        f"({NODES}): the sketch is larger than the matrix it stands for. A larger --epsilon or a "
        "--sketch-size would be cheaper."
    )
    options = ["--store", ring, "--dim", 5, "--epsilon", 0.2]
    assert f"note: {note}" in figrl("plan", *options).out
    outcome = figrl("embed", *options, "--json")
    assert outcome.err.splitlines()[1] == f"note: {note}"
    assert outcome.json["plan"]["notes"] == [note]
    options = ["plan", "--store", ring, "--dim", 5, "--sketch-size"]
    assert "note: You asked for 304 sketch columns" in figrl(*options, 304).out
    assert "note" not in figrl(*options, 296).out


def test_status_tells_graph_runs_and_unfinished_work(figrl, edges, tmp_path):
    store = tmp_path / "a [bold]store"
    assert figrl("ingest", edges, "--store", store).code == 0
    shown = figrl("status", "--store", store).out
    assert str(store) in shown
    assert "none: figrl embed makes one" in shown
    runs = [
        figrl("embed", "--store", store, "--dim", dim, "--sketch-size", 16, "--json").json["run"]
        for dim in (3, 2)
    ]
    mark = store / "work" / "export-123" / "marks" / "export" / "000000.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    told = figrl("status", "--store", store, "--json").json
    assert told["store"] == str(store)
    assert told["graph"].items() >= {"nodes": NODES, "edges": 900, "weighted": False}.items()
    assert [run["run"] for run in told["runs"]] == runs
    assert [run["dim"] for run in told["runs"]] == [3, 2]
    assert told["current"] == runs[1]
    assert told["unfinished"] == [{"what": "export-123", "blocks_done": 1}]
    assert told["size_bytes"] > 2 * NODES * 16 * 4
    shown = figrl("status", "--store", store).out
    for text in (*runs, told["graph"]["version"], "unfinished: export-123 (1 blocks done)"):
        assert text in shown


def test_reports_in_words(figrl, ring, edges, tmp_path):
    outcome = figrl("ingest", edges, "--store", ring, "--block-rows", 64)
    assert outcome.out.startswith("This input was ingested before: nothing to do.")
    assert f"Next: figrl embed --store {ring}" in outcome.out
    words = ["embed", "--store", ring, "--dim", 2, "--sketch-size", 16]
    shown = figrl(*words).out
    assert shown.startswith("300 vectors of 2 dimensions: run ")
    assert "a sketch of 16" in shown
    assert re.search(r"\ncertificate  (Good|Usual|Poor)", shown)
    assert shown.splitlines()[-2].startswith("Took ")
    assert shown.splitlines()[-1] == f"Next: figrl export --store {ring} --out vectors.parquet"
    assert "factor-solve" not in shown
    # Tables are not cut where there is no terminal.
    assert "\nfactor-solve " in figrl(*words, "--verbose").out
    again = figrl(*words).out
    assert again.startswith("This run was done before: nothing to do.")
    shown = figrl("plan", "--store", ring, "--dim", 4, "--sketch-size", 16).out
    assert "300 nodes, 900 edges" in shown
    assert "2 workers with 1 thread and 4 GB each" in shown
    assert "1 slice of 16 columns" in shown
    out = tmp_path / "new.parquet"
    words = ["fold-in", edges.with_name("new.parquet"), "--store", ring, "--out", out]
    assert figrl(*words).out.startswith(f"2 vectors of new nodes: {out}\n")
    shown = figrl("export", "--store", ring, "--out", tmp_path / "v.parquet").out
    assert "300 vectors of 2 dimensions" in shown
    assert str(tmp_path / "v.parquet") in shown


def test_rejected_rows_are_shown_where_they_lie(figrl, tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,-2\n")
    words = ["ingest", path, "--store", tmp_path / "store", "--on-bad-edges", "quarantine"]
    shown = figrl(*words).out
    (kept,) = (tmp_path / "store").glob("graph/*/quarantine/*.parquet")
    assert f"Rejected rows, with file, row and reason: {kept.parent}" in shown
    (row,) = pq.read_table(kept).to_pylist()
    assert (row["file"], row["row"], row["weight"]) == (str(path), 3, "-2")
