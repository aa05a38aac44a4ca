"""The jobs in order, as a person or a script would run them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
import pyarrow.parquet as pq
import pytest

from figrl.engine.rates import Rates, rates_path
from figrl_jobs.main import figrl as group
from tests.reference import write_edges


@pytest.mark.parametrize("job", group.list_commands(click.Context(group)))
def test_help_teaches_by_example(figrl, job):
    outcome = figrl(job, "--help", on_cluster=False)
    assert outcome.code == 0
    assert "For example:" in outcome.out
    assert f"  figrl {job}" in outcome.out


def test_the_commands_help_shows_a_first_run_and_the_exit_codes(figrl):
    outcome = figrl("--help", on_cluster=False)
    for part in (
        "figrl demo",
        "figrl ingest edges/*.parquet --store store",
        "6 the store is in use, 130 interrupted",
    ):
        assert part in outcome.out
    assert figrl(on_cluster=False).out == outcome.out


def test_json_is_alone_on_standard_output(figrl, store):
    words = ["embed", "--store", store, "--preset", "paper", "--dim", 4, "--sketch-size", 32]
    embedded = figrl(*words, "--json", "--verbose")
    report = embedded.json
    assert embedded.code == 0
    assert "sketch: 2 blocks" in embedded.err
    assert [stage["name"] for stage in report["stages"]] == [
        "sketch",
        "factor",
        "factor-solve",
        "vectors",
    ]
    assert all(worker["peak_bytes"] > 10**8 for worker in report["workers"])
    assert report["peak_worker_bytes"] == max(w["peak_bytes"] for w in report["workers"])
    assert report["already_done"] is False
    again = figrl(*words, "--json")
    assert again.json["already_done"] is True
    assert again.json["run"] == report["run"]


def test_plan_shows_the_cost_of_each_stage_and_runs_nothing(figrl, store):
    plan = figrl("plan", "--store", store, "--dim", 4, "--sketch-size", 77, "--json").json
    assert [stage["name"] for stage in plan["stages"]] == [
        *("sketch", "factor", "factor-solve", "norm", "vectors", "smooth", "smooth-mix"),
        *("smooth-gram", "smooth-balance", "embedding"),
    ]
    for stage in plan["stages"]:
        assert stage["tasks"] >= stage["times"] > 0
        assert stage["peak_bytes"] > plan["reserved_bytes"]
        if stage["name"] not in ("norm", "smooth-mix", "smooth-balance"):
            assert min(stage[fact] for fact in ("read_bytes", "written_bytes", "flops")) > 0
    assert plan["disk_bytes"] < plan["free_disk_bytes"]
    shown = figrl("plan", "--store", store, "--dim", 4, "--sketch-size", 77)
    assert "299 nodes" in shown.out
    assert "factor-solve" in shown.out


def test_seconds_come_from_measured_rates_only_on_request(figrl, store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["plan", "--store", store, "--dim", 4, "--sketch-size", 16]
    missing = figrl(*words, "--measured-rates", "--json")
    assert missing.code == 2
    assert "figrl bench rates" in missing.json["error"]
    built_in = figrl(*words, "--json").json
    rates_path().parent.mkdir()
    rates_path().write_text(json.dumps(asdict(Rates(stage_seconds=1000.0))))
    assert figrl(*words, "--json").json["seconds"] == built_in["seconds"]
    assert built_in["rates"]["measured"] is False
    measured = figrl(*words, "--measured-rates", "--json").json
    assert measured["rates"]["measured"] is True
    assert measured["seconds"] > 1000 > built_in["seconds"]
    assert "rates of a two-core machine" in figrl(*words).out
    assert "rates measured on this machine" in figrl(*words, "--measured-rates").out


def test_threads_and_limit_of_a_hypothetical_cluster_count(figrl):
    words = ["plan", "--nodes", "1e6", "--edges", "1e7", "--dim", 16, "--json"]
    plan = figrl(*words, "--threads", 3, on_cluster=False).json
    assert (plan["workers"], plan["threads_per_worker"]) == (1, 3)
    words += ["--workers", 2, "--memory", "64GB", "--memory-limit", "20GB"]
    assert figrl(*words, on_cluster=False).json["memory_limit_bytes"] == 20_000_000_000


def test_a_plan_is_played_through_block_by_block(figrl):
    words = ["plan", "--nodes", "1e8", "--edges", "1e9", "--workers", 64, "--memory", "64GB"]
    plan = figrl(*words, "--simulate", "--json", on_cluster=False).json
    found = plan["simulated"]
    assert [s["name"] for s in found["stages"]] == [s["name"] for s in plan["stages"]]
    assert [s["tasks"] for s in found["stages"]] == [s["tasks"] for s in plan["stages"]]
    assert 0.3 < found["seconds"] / plan["seconds"] < 3
    shown = figrl(*words, "--simulate", on_cluster=False).out
    assert f"most of it for {found['binds']}" in shown
    assert "scheduler" in shown
    assert "simulated" not in figrl(*words, "--json", on_cluster=False).json
    # A slow network is the disk of every worker.
    words += ["--network-rate", "100MB", "--simulate", "--json"]
    slow = figrl(*words, on_cluster=False).json
    assert slow["seconds_by_part"]["disk"] > 5 * plan["seconds_by_part"]["disk"]
    assert slow["simulated"]["binds"] == "storage"


def test_a_rule_that_asks_for_too_many_columns_is_noted(figrl, store):
    shown = figrl("plan", "--store", store, "--dim", 4, "--epsilon", 0.1)
    assert "The paper's rule asks for 2,288 sketch columns" in shown.out.replace("\n", " ")
    run = figrl("embed", "--store", store, "--dim", 4, "--epsilon", 0.2)
    assert "note: The paper's rule asks for 576 sketch columns" in run.err


def test_from_edges_to_vectors_of_new_nodes(figrl, tmp_path):
    edges = [(f"n{i:02d}", f"n{(i * 7 + 3) % 40:02d}") for i in range(40)]
    edges += [(f"n{i:02d}", f"n{(i + 1) % 40:02d}") for i in range(40)]
    path = write_edges(tmp_path / "edges.parquet", edges)
    store = tmp_path / "store"
    ingested = figrl("ingest", path, "--store", store)
    assert ingested.code == 0
    assert "40" in ingested.out
    assert f"Next: figrl embed --store {store}" in ingested.out
    assert figrl("embed", "--store", store, "--dim", 5, "--sketch-size", 20).code == 0
    exported = figrl("export", "--store", store, "--out", tmp_path / "v.parquet")
    assert exported.code == 0
    assert pq.read_table(tmp_path / "v.parquet").num_rows == 40
    new = write_edges(tmp_path / "new.parquet", [("new", "n01"), ("new", "n02"), ("new", "gone")])
    folded = figrl("fold-in", new, "--store", store, "--out", tmp_path / "new-vectors")
    assert folded.code == 0
    assert "edges to unknown nodes" in folded.out
    assert pq.read_table(tmp_path / "new-vectors")["id"].to_pylist() == ["new"]
    status = figrl("status", "--store", store, "--json").json
    assert status["current"] == status["runs"][0]["run"]
    assert status["unfinished"] == []
    assert "current" in figrl("status", "--store", store).out


def test_the_demo_recovers_what_it_planted(figrl, tmp_path):
    report = figrl("demo", "--keep", tmp_path / "kept", "--json").json
    assert report["agreement"] > 0.85
    assert report["new_nodes"] == 1000
    assert report["new_nodes_agreement"] > 0.7
    assert figrl("status", "--store", tmp_path / "kept").code == 0
