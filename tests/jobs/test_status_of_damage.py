"""The status of a store that is damaged, that is none, or whose clock was set back."""

from __future__ import annotations

import shutil
import time

import pytest

from figrl.store.files import write_record
from figrl.store.layout import read_contents, read_manifest, store_paths


@pytest.fixture
def damaged(figrl, store, tmp_path):
    """A store with a run, to be damaged."""
    folder = tmp_path / "store"
    shutil.copytree(store, folder)
    assert figrl("embed", "--store", folder, "--dim", 8, "--sketch-size", 32).code == 0
    return folder


def test_a_damaged_graph_leaves_the_rest_of_the_status(figrl, damaged):
    [manifest] = damaged.glob("graph/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    current = (damaged / "current").read_text().strip()
    shown = figrl("status", "--store", damaged)
    assert shown.code == 3
    assert "graph         not known, because the store is damaged: see below" in shown.out
    assert f"current run   {current}" in shown.out
    assert "embed: published run" in shown.out
    assert f"error: damaged: {manifest} " in shown.err
    assert f"figrl verify --store {damaged}" in shown.err
    report = figrl("status", "--store", damaged, "--json")
    assert report.code == report.json["exit_code"] == 3
    assert report.json["graph"] is None
    assert [run["run"] for run in report.json["runs"]] == [current]
    assert str(manifest) in report.json["damaged"][0] in report.json["error"]


@pytest.mark.parametrize(
    "file", ["current", "attempt.json", "graph/latest", "runs/*/manifest.json"]
)
def test_whatever_is_damaged_is_named_and_the_rest_is_shown(figrl, damaged, file):
    [path] = damaged.glob(file)
    path.write_bytes(b"\x00")
    shown = figrl("status", "--store", damaged)
    assert shown.code == 3
    assert shown.err.startswith(f"error: damaged: {path} ")
    assert shown.err.count("\n") == 1
    assert f"store         {damaged}" in shown.out
    assert "last jobs:" in shown.out


def test_a_folder_that_is_no_store_has_two_ways_to_become_one(figrl, tmp_path):
    shown = figrl("status", "--store", tmp_path / "none")
    assert shown.code == 3
    assert f"figrl ingest EDGES --store {tmp_path}/none" in shown.err
    assert "figrl reindex CONFIG.yaml" in shown.err


def test_a_clock_that_was_set_back_is_told(figrl, damaged):
    assert "note:" not in figrl("status", "--store", damaged).out
    paths = store_paths(damaged)
    [run] = paths.finished_runs()
    folder = paths.run(run)
    whole = {**read_manifest(folder), "contents": read_contents(folder)}
    write_record(folder / "manifest.json", {**whole, "created": time.time() + 7200})
    shown = figrl("status", "--store", damaged)
    assert shown.code == 0
    assert f"note: Run {run} was made at" in shown.out
    assert "later than now" in shown.out


def test_one_damaged_file_is_one_file(figrl, damaged):
    whole = figrl("verify", "--store", damaged)
    assert whole.out == f"{damaged}: 1 graph and 1 run are whole.\n"
    (damaged / "attempt.json").write_bytes(b"\x00")
    assert "error: damaged: 1 file of store." in figrl("verify", "--store", damaged).err
