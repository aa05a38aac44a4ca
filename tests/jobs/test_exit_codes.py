"""Every way to fail: the exit code, and a message that says what to do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from figrl.engine.submitted import new_job
from figrl.store.layout import store_paths
from tests.reference import write_edges
from tests.waiting import LONG, wait_until


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dim", "10", "--sketch-size", "8"], "the sketch has only 8 columns.*from 10 to 32768"),
        (["--dim", "5000"], "--dim is 5000, but the graph has 299 nodes.*at most 298"),
        (["--dim", "8", "--sketch-size", "99999"], "--sketch-size is 99999.*32768"),
        (["--dim", "8", "--sketch-size", "50", "--epsilon", "0.5"], "not both"),
        (["--dim", "8", "--sketch-size", "50", "--memory-limit", "lots"], "'lots' is not a size"),
        (["--dim", "many"], "'many' is not a valid integer"),
        (["--preset", "magic"], "'magic' is not"),
        (["--colour", "red"], "No such option"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2(figrl, store, words, message):
    outcome = figrl("embed", "--store", store, *words)
    assert outcome.code == 2
    assert outcome.out == ""

    assert re.search(message, outcome.err.replace("\n", " ")), outcome.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("local: {wrokers: 2}", "local.wrokers"),
        ("local: {workers: 0}", "local.workers"),
        ("scheduler: tcp://a:1\nlocal: {}", "exactly one"),
        ("[1, 2]", "one of the sections"),
        ("local: {memory_limit: lots}", "local.memory_limit.*'lots' is not a size"),
        (": : :", "cannot be read"),
        ("custom: {class: no.such.Thing}", "'no.such.Thing' cannot be imported"),
    ],
)
def test_a_wrong_cluster_file_ends_with_2(figrl, store, tmp_path, content, message):

    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    outcome = figrl("embed", "--store", store, "--dim", 4, "--cluster", path)
    assert outcome.code == 2
    assert re.search(message, outcome.err.replace("\n", " ")), outcome.err


def test_bad_data_ends_with_3_and_names_the_row(figrl, tmp_path):
    path = write_edges(tmp_path / "bad.parquet", [(1, 2, 1.0), (2, 3, float("nan"))])
    outcome = figrl("ingest", path, "--store", tmp_path / "store")
    assert outcome.code == 3
    assert f"{path}, row 2: the weight is not finite" in outcome.err
    assert "--on-bad-edges quarantine" in outcome.err
    passed = figrl(
        "ingest", path, "--store", tmp_path / "store", "--on-bad-edges", "quarantine", "--json"
    )
    assert (passed.code, passed.json["rows_rejected"], passed.json["edges"]) == (0, 1, 1)


def test_a_store_without_a_graph_ends_with_3(figrl, tmp_path):
    for words in (["embed"], ["plan"], ["export", "--out", tmp_path / "v"], ["status"]):
        outcome = figrl(*words, "--store", tmp_path / "nothing")
        assert outcome.code == 3
        assert "There is no graph in" in outcome.err
        assert "figrl ingest EDGES --store" in outcome.err


def test_too_little_memory_ends_with_5_and_the_numbers(figrl, store):
    for job in ("plan", "embed"):
        outcome = figrl(
            job, "--store", store, "--dim", 8, "--sketch-size", 500, "--memory-limit", "500MB"
        )
        assert outcome.code == 5
        for part in ("375 MB may be used", "limit of 500 MB", "Raise --memory-limit to"):
            assert part in outcome.err


def test_ingest_with_too_little_memory_ends_with_5(figrl, tmp_path):
    path = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3)])
    outcome = figrl("ingest", path, "--store", tmp_path / "store", "--memory-limit", "300MB")
    assert outcome.code == 5
    assert "ingest needs at least" in outcome.err
    assert "300 MB" in outcome.err


def test_a_store_in_use_ends_with_6_and_names_the_owner(figrl, tmp_path):
    path = write_edges(tmp_path / "edges.parquet", [(1, 2), (2, 3)])
    holder = (
        "import sys; from figrl.store.layout import store_paths\n"
        "with store_paths(sys.argv[1]).locked('reindex'):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, tmp_path / "store"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        outcome = figrl("ingest", path, "--store", tmp_path / "store")
        assert outcome.code == 6
        assert "in use by 'reindex'" in outcome.err
        assert f":{process.pid}, running for" in outcome.err
        process.communicate("")
    # A lock ends with its owner.
    assert figrl("ingest", path, "--store", tmp_path / "store").code == 0


def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path):
    """A job that waits for another one, in a process of its own.

    A shell has its background jobs ignore the signal, and they would hand that on.
    """
    job = new_job(store_paths(tmp_path), "embed", {}, {}, "tcp://127.0.0.1:1")
    words = ["cancel", "--store", tmp_path, job.name, "--wait", "1000", "--json"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "figrl_jobs", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        wait_until((job / "cancel").exists, "it waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads(out)["exit_code"] == 130
    assert json.loads(out)["error"].startswith("Stopped. Finished blocks are kept")
    assert err.strip() == f"error: {json.loads(out)['error']}"


def test_ctrl_c_in_a_terminal_reaches_workers_too_and_is_still_one_line(tmp_path):
    """A terminal interrupts the job and the processes of its local cluster."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "figrl_jobs", "demo"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    try:
        where = process.stderr.readline()
        assert process.stderr.readline().startswith("note: Generating")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert where.startswith("Running on a local cluster: ")
    assert (process.returncode, out) == (130, "")
    # rich may print once more what it printed when it was interrupted.
    lines = [line for line in err.splitlines() if line and not line.startswith("note:")]
    assert len(lines) == 2, err
    assert lines[0].startswith("demo: stopped in ")
    assert lines[1].startswith("error: Stopped. Finished blocks are kept")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["status", "pin", "rollback", "cancel"])
def test_jobs_that_compute_nothing_take_no_cluster(figrl, job):
    outcome = figrl(job, "--store", "store", "--cluster", "cluster.yaml", on_cluster=False)
    assert outcome.code == 2
    assert "No such option" in outcome.err
    assert "--cluster" in outcome.err


def test_errors_in_json_are_one_object_alone(figrl, store, tmp_path):
    outcome = figrl("embed", "--store", store, "--dim", 10, "--sketch-size", 8, "--json")
    assert outcome.json["exit_code"] == outcome.code == 2
    assert "only 8 columns" in outcome.json["error"]
    outcome = figrl("ingest", "--json", on_cluster=False)
    assert json.loads(outcome.out)["exit_code"] == 2


def test_no_file_is_an_error_that_names_the_pattern(figrl, tmp_path):
    outcome = figrl("ingest", tmp_path / "none-*.parquet", "--store", tmp_path / "s")
    assert outcome.code == 3
    assert "none-*.parquet: there is no edge file here" in outcome.err
    assert not Path(tmp_path / "s" / "graph").exists()
