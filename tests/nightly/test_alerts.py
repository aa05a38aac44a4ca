"""A failed, a refused, a killed and a missing night: each is told by status, and has its alert."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from figrl.nightly.config import read_reindex_config
from figrl.nightly.reindex import starting
from figrl.serve.attempts import attempt, last_attempt
from figrl.store.layout import store_paths
from figrl_jobs.main import main
from tests.learn.test_accurate import planted_edges
from tests.nightly.test_reindex import Nights

RULES = Path(__file__).parents[2] / "docs" / "deploy" / "alerts.yaml"
HOUR = 3600.0


def metrics_of(store: Path) -> dict[str, float]:
    """Values of the metrics that have no label but the store."""
    families = text_string_to_metric_families((store / "metrics.prom").read_text())
    samples = [sample for family in families for sample in family.samples]
    return {one.name: one.value for one in samples if set(one.labels) == {"store"}}


def firing(metrics: dict[str, float], age: float) -> set[str]:
    """Alerts that fire some seconds from now, evaluated as Prometheus would."""
    rules = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    now = time.time() + age
    found = {rule["alert"] for rule in rules if _holds(rule["expr"], metrics, now)}
    if shutil.which("promtool"):
        _ask_promtool(rules, metrics, now, found)
    return found


def _holds(expression: str, metrics: dict[str, float], now: float) -> bool:
    """A rule with plain comparisons: a series that is not there makes none true."""
    absent = re.fullmatch(r"absent\((\w+)\)", expression)
    if absent:
        return absent[1] not in metrics
    names = set(re.findall(r"figrl_\w+", expression))
    if not names <= set(metrics):
        return False
    return bool(eval(expression, {"__builtins__": {}, "time": lambda: now}, dict(metrics)))


def _ask_promtool(
    rules: list[dict[str, Any]], metrics: dict[str, float], now: float, expected: set[str]
) -> None:
    """Compare with promtool, whose clock starts at 0."""
    moment = 100 * HOUR
    series = []
    for name, value in metrics.items():
        shown = value - now + moment if value > 1e9 and name.endswith("_seconds") else value
        series.append({"series": f'{name}{{store="s"}}', "values": f"{shown:.3f}x100"})
    quiet = [rule["alert"] for rule in rules if rule["alert"] not in expected]
    tests = [{"alertname": name, "eval_time": "100h", "exp_alerts": []} for name in quiet]
    whole = {"interval": "1h", "input_series": series, "alert_rule_test": tests}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"rule_files": [str(RULES)], "tests": [whole]}, file)
        subprocess.run(["promtool", "test", "rules", file.name], check=True)


@pytest.fixture(scope="module")
def nights(client, tmp_path_factory):
    """A store with one good night."""
    nights = Nights(tmp_path_factory.mktemp("alerts"), client)
    nights.cluster = nights.folder / "cluster.yaml"
    nights.cluster.write_text(f"scheduler: {client.scheduler.address}\n")
    nights.write(1, planted_edges(3))
    return nights


def night(nights, **options) -> int:
    return main(["reindex", str(nights.config(**options)), "--cluster", str(nights.cluster)])


def status(nights, capsys) -> tuple[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["status", "--store", str(nights.store)]) == 0
    words = capsys.readouterr().out
    assert main(["status", "--store", str(nights.store), "--json"]) == 0
    return words, json.loads(capsys.readouterr().out)


def test_each_night_is_understood_and_has_its_alert(nights, capsys):
    """One test: each night follows the one before."""
    assert night(nights) == 0
    words, report = status(nights, capsys)
    [good] = report["last_jobs"]
    assert (good["job"], good["result"], good["exit_code"]) == ("reindex", "published", 0)
    assert good["run"] == report["current"]
    assert report["runs"][0]["size_bytes"] > 1000
    assert firing(metrics_of(nights.store), 0) == set()
    assert firing(metrics_of(nights.store), 27 * HOUR) == {"FigrlNightMissing"}
    assert firing(metrics_of(nights.store), 51 * HOUR) == {"FigrlNightMissing", "FigrlVectorsOld"}
    assert firing({}, 0) == {"FigrlMetricsAbsent"}
    needed = metrics_of(nights.store)["figrl_run_disk_bytes"]
    assert needed > 1000
    for share, alerts in ((2.0, set()), (1.4, {"FigrlDiskLow"})):
        low = {**metrics_of(nights.store), "figrl_disk_free_bytes": share * needed}
        assert firing(low, 0) == alerts

    edges = nights.write(1, planted_edges(3)[:500])
    assert night(nights) == 4
    words, report = status(nights, capsys)
    refused = report["last_jobs"][-1]
    assert (refused["result"], refused["exit_code"]) == ("refused", 4)
    assert Path(refused["report"]).exists()
    assert Path(refused["log"]).exists()
    for text in ("reindex: refused run", "edges_change is", refused["report"], refused["log"]):
        assert text in words
    assert firing(metrics_of(nights.store), 0) == {"FigrlNightRefused"}

    edges.write_bytes(b"no Parquet")
    assert night(nights) == 3
    words, report = status(nights, capsys)
    failed = report["last_jobs"][-1]
    assert (failed["result"], failed["exit_code"]) == ("failed", 3)
    assert str(edges) in failed["reason"]
    assert failed["reason"] in words
    assert failed["log"] in words
    assert firing(metrics_of(nights.store), 0) == {"FigrlNightFailed"}

    nights.write(1, planted_edges(3))
    nights.write(2, [(i, i + 1) for i in range(30)])
    words = [sys.executable, "-m", "tests.faults.night", str(nights.config())]
    killed = subprocess.run([*words, nights.client.scheduler.address, "complete"], check=False)
    assert killed.returncode == -9
    words, report = status(nights, capsys)
    assert report["last_jobs"][-1]["result"] == "killed"
    assert report["in_use_by"]["state"] == "dead"
    assert report["last_attempt"]["result"] == "killed"
    assert "left by a killed job  'reindex' (process" in words
    assert "reindex: killed run" in words
    assert "Finished blocks are kept: run the same command again." in words
    assert report["last_jobs"][-1]["log"] in words
    assert firing(metrics_of(nights.store), 0) == set(), "it might still run"
    assert firing(metrics_of(nights.store), 700) == {"FigrlNightKilled"}

    assert night(nights) == 0
    words, report = status(nights, capsys)
    assert [job["result"] for job in report["last_jobs"]] == [
        *("published", "refused", "failed", "killed", "published")
    ]
    assert report["in_use_by"] is None
    assert firing(metrics_of(nights.store), 0) == set()


def test_a_night_whose_configuration_is_wrong_is_told(nights, capsys):
    wrong = nights.folder / "wrong.yaml"
    wrong.write_text("store: store\nsources: edges\nembde: {dim: 6}\n")
    assert main(["reindex", str(wrong)]) == 2
    words, report = status(nights, capsys)
    told_alike(nights, report, "failed", 2)
    assert report["history"][-1]["action"] == "failed"
    assert "embde" in words
    assert firing(metrics_of(nights.store), 0) == {"FigrlNightFailed"}
    wrong.write_text("store: elsewhere\nembde: {dim: 6}\n")
    assert main(["reindex", str(wrong)]) == 2
    assert not (nights.folder / "elsewhere").exists()


def told_alike(nights, report, result, code):
    """The last attempt, the last job and the metrics say the same of a night."""
    made, job = report["last_attempt"], report["last_jobs"][-1]
    assert (made["job"], made["result"], made["exit_code"]) == ("reindex", result, code)
    assert (job["job"], job["result"], job["exit_code"]) == ("reindex", result, code)
    assert made["reason"] == job["reason"]
    metrics = (nights.store / "metrics.prom").read_text()
    assert f'figrl_last_job_exit_code{{store="{nights.store}"}} {code}.0\n' in metrics
    assert f'figrl_last_attempt_info{{job="reindex",result="{result}",run=' in metrics


def test_records_have_the_keys_of_the_configuration(nights, capsys):
    assert night(nights, embed={"dim": 5000}) == 2
    shown = capsys.readouterr().err
    words, report = status(nights, capsys)
    told_alike(nights, report, "failed", 2)
    for text in (shown, words, report["history"][-1]["reason"]):
        assert "embed.dim is 5000" in text
        assert "--dim" not in text
    log = Path(report["last_jobs"][-1]["log"]).read_text()
    assert "embed.dim is 5000" in json.loads(log.splitlines()[-1])["error"]


def test_a_source_that_is_not_there_is_told(nights, capsys):
    assert night(nights, sources="elsewhere/edges") == 3
    shown = capsys.readouterr().err
    place = nights.folder / "elsewhere" / "edges"
    assert f"{place}: it does not exist (is its disk mounted?)" in shown
    words, report = status(nights, capsys)
    told_alike(nights, report, "failed", 3)
    assert f"{place}: it does not exist" in words


@pytest.mark.parametrize(
    "step",
    ["figrl_jobs.reindex.source_files", "figrl.nightly.reindex.ingest_graph"],
    ids=["before it has the lock", "at work"],
)
def test_a_night_that_is_interrupted_is_told(nights, capsys, monkeypatch, step):
    monkeypatch.setattr(step, interrupt)
    assert night(nights) == 130
    words, report = status(nights, capsys)
    told_alike(nights, report, "interrupted", 130)
    assert "reindex: interrupted" in words


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_early_failure_leaves_the_attempt_of_a_job_at_work_alone(nights):
    paths = store_paths(nights.store)
    config = read_reindex_config(nights.config())
    with paths.locked("embed"), attempt(paths, "embed"):
        before = last_attempt(paths)
        with pytest.raises(ZeroDivisionError), starting(config):
            raise ZeroDivisionError
        assert last_attempt(paths) == before
    told = last_attempt(paths)
    assert told is not None
    assert (told["job"], told["result"]) == ("embed", "published")


def test_a_night_without_a_cluster_and_a_store_in_use_are_told(nights, capsys):
    nowhere = nights.folder / "nowhere.yaml"
    nowhere.write_text("scheduler: tcp://127.0.0.1:1\n")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        code = main(["reindex", str(nights.config()), "--cluster", str(nowhere)])
    words, report = status(nights, capsys)
    assert code == 5
    told_alike(nights, report, "failed", 5)
    assert "127.0.0.1:1" in words
    assert "FigrlNightFailed" in firing(metrics_of(nights.store), 0)
