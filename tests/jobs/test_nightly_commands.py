"""The commands of a night and of the day after it: what they print, and how they end."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from figrl_jobs.main import main
from tests.learn.test_accurate import planted_edges
from tests.nightly.test_reindex import Nights


@pytest.fixture(scope="module")
def nights(client, tmp_path_factory):
    """Two nights, run by the command."""
    folder = tmp_path_factory.mktemp("commands")
    nights = Nights(folder, client, index="approximate")
    nights.cluster = folder / "cluster.yaml"
    nights.cluster.write_text(f"scheduler: {client.scheduler.address}\n")
    nights.write(1, planted_edges(3))
    assert main(["reindex", str(nights.config()), "--cluster", str(nights.cluster)]) == 0
    nights.write(2, [(i, i + 1) for i in range(40)])
    assert main(["reindex", str(nights.config()), "--cluster", str(nights.cluster)]) == 0
    return nights


def run(nights, capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([*arguments]) == code
    return capsys.readouterr()


def test_a_night_is_reported_in_words_and_in_json(nights, capsys):
    config, cluster = str(nights.config()), str(nights.cluster)
    words = run(nights, capsys, "reindex", config, "--cluster", cluster).out
    assert re.match(r"Nothing to do: run \w+ is published", words)
    report = json.loads(run(nights, capsys, "reindex", config, "--cluster", cluster, "--json").out)
    assert report["nothing_to_do"] is True


def test_the_example_is_printed_and_a_config_is_needed(nights, capsys):
    assert "gates:" in run(nights, capsys, "reindex", "--example").out
    assert "--example prints one" in run(nights, capsys, "reindex", code=2).err
    assert "cannot be read" in run(nights, capsys, "reindex", "nothing.yaml", code=2).err


def test_the_unedited_example_touches_nothing(nights, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = run(nights, capsys, "reindex", "--example").out
    (tmp_path / "nightly.yaml").write_text(text)
    shown = run(nights, capsys, "reindex", "nightly.yaml", code=2).err
    assert "nightly.yaml is the example as it was printed" in shown
    assert "Nothing was done" in shown
    # With a store of its own and sources that are not there, no store is made either.
    mine = text.replace("/data/figrl/store", "store").replace("/data/edges", "edges")
    (tmp_path / "nightly.yaml").write_text(mine)
    cluster = str(nights.cluster)
    assert (
        "edges" in run(nights, capsys, "reindex", "nightly.yaml", "--cluster", cluster, code=3).err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["nightly.yaml"]


def test_going_back_and_forth(nights, capsys):
    store = str(nights.store)
    before = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    back = json.loads(run(nights, capsys, "rollback", "--store", store, "--json").out)
    assert back["before"] == before["current"]
    assert back["current"] == before["runs"][0]["run"]
    assert "no earlier run" in run(nights, capsys, "rollback", "--store", store, code=3).err
    words = run(nights, capsys, "rollback", "--store", store, back["before"]).out
    assert words == f"Rolled back to {back['before']} (before: {back['current']})\n"
    assert "no finished run" in run(nights, capsys, "rollback", "--store", store, "x", code=3).err
    after = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    assert after["current"] == before["current"]
    actions = [event["action"] for event in after["history"]]
    assert actions == ["published"] * 2 + ["rolled back"] * 2
    shown = run(nights, capsys, "status", "--store", store).out
    assert "rolled back" in shown


def test_sources_of_a_run_that_was_rolled_back(nights, capsys):
    store = str(nights.store)
    words = ("reindex", str(nights.config()), "--cluster", str(nights.cluster))
    status = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    withdrawn = status["current"]
    back = json.loads(run(nights, capsys, "rollback", "--store", store, "--json").out)["current"]
    shown = run(nights, capsys, *words).out
    assert shown == (
        f"Nothing is published: the sources are those of run {withdrawn}, which was rolled back, "
        f"so {back} stays published. To publish it again: figrl rollback {withdrawn} --store "
        f"{store}\n"
    )
    report = json.loads(run(nights, capsys, *words, "--json").out)
    assert (report["withdrawn"], report["run"]) == (withdrawn, back)
    told = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    for one in (told["last_attempt"], told["last_jobs"][-1]):
        assert (one["result"], one["run"], one["exit_code"]) == ("withdrawn", withdrawn, 0)
        assert f"figrl rollback {withdrawn} --store {store}" in one["reason"]
    metrics = (nights.store / "metrics.prom").read_text()
    assert f'figrl_last_attempt_served{{store="{store}"}} 0.0\n' in metrics
    run(nights, capsys, "rollback", "--store", store, withdrawn)
    assert run(nights, capsys, *words).out.startswith("Nothing to do: run")


def test_pinning(nights, capsys):
    store = str(nights.store)
    name = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)["current"]
    assert "is pinned" in run(nights, capsys, "pin", "--store", store, name).out
    assert "pinned" in run(nights, capsys, "status", "--store", store).out
    assert "not pinned" in run(nights, capsys, "pin", "--store", store, name, "--remove").out
    assert "no finished run" in run(nights, capsys, "pin", "--store", store, "x", code=3).err


def test_neighbours_are_shown(nights, capsys):
    store = str(nights.store)
    exact = run(nights, capsys, "neighbors", "--store", store, "7", "-n", "3", "--json").out
    rows = json.loads(exact)["neighbors"]
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert rows[0]["cosine"] >= rows[2]["cosine"] > 0
    close = run(nights, capsys, "neighbors", "--store", store, "7", "-n", "3", "--approximate").out
    assert str(rows[0]["neighbor"]) in close
    on_cluster = run(
        *(nights, capsys, "neighbors", "--store", store, "7", "-n", "3", "--json"),
        *("--cluster", str(nights.cluster)),
    ).out
    assert json.loads(on_cluster)["neighbors"] == rows
    assert (
        "not in the graph"
        in run(nights, capsys, "neighbors", "--store", store, "99999", code=3).err
    )
    assert "are integers" in run(nights, capsys, "neighbors", "--store", store, "x", code=3).err


def test_new_nodes_are_served_and_exported(nights, capsys, tmp_path):
    store, cluster = str(nights.store), str(nights.cluster)
    new = tmp_path / "new.parquet"
    pq.write_table(pa.table({"source": [9000, 9001], "target": [1, 2]}), new)
    run_on = ("--store", store, "--cluster", cluster)
    shown = run(nights, capsys, "fold-in", str(new), *run_on, "--publish").out
    assert "served with the run now" in shown
    again = run(nights, capsys, "fold-in", str(new), *run_on, "--publish").out
    assert "were published before" in again
    for arguments in ([], ["--out", "x", "--publish"], ["--publish", "--overwrite"]):
        assert (
            "either --out"
            in run(nights, capsys, "fold-in", str(new), *run_on, *arguments, code=2).err
        )
    out = tmp_path / "vectors"
    report = run(
        *(nights, capsys, "export", *run_on, "--out", str(out)),
        *("--shard-size", "1kB", "--json"),
    ).out
    table = pq.read_table(out)
    assert table.num_rows == json.loads(report)["rows"]
    assert {9000, 9001} <= set(table["id"].to_pylist())
    assert len(set(table["id"].to_pylist())) == table.num_rows
    status = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    assert sum(entry["folded_in"] for entry in status["runs"]) == 2


def test_the_report_needs_nothing_from_outside(nights):
    [*pages] = (nights.store / "runs").glob("*/report.html")
    assert pages
    for page in pages:
        text = page.read_text()
        addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
        assert all(address.startswith("http://www.w3.org/") for address in addresses), addresses
        assert not re.search(r"<(script|link[^>]+stylesheet|img|iframe)", text)
        assert text.count("<svg") >= 2
        for part in ("What to do next", "Gates", "Sources", "Settings", "Time and memory"):
            assert f"<h2>{part}</h2>" in text
        for stage in ("scan", "relabel", "recall"):
            assert f"<td>{stage}</td>" in text, "from the first stage to the last"
        assert "part.parquet</li>" in text
        assert 'role="img"' in text
        names = re.findall(r'\bid="([^"]+)"', text)
        assert len(names) == len(set(names)), "names of two pictures clash"
        used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
        assert used <= set(names)
        assert text.count("</figcaption>") == text.count("<svg")


def test_metrics_are_what_prometheus_reads(nights):
    lines = (nights.store / "metrics.prom").read_text().splitlines()
    pattern = re.compile(r'^figrl_\w+\{(\w+="[^"]*",)*store="[^"]+"\} \S+$')
    values = [line for line in lines if not line.startswith("#")]
    assert all(pattern.match(line) for line in values)
    assert len({line.rpartition(" ")[0] for line in values}) == len(values), "a series twice"
    assert all(np.isfinite(float(line.rpartition(" ")[2])) for line in values)
    helps = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(helps) == len(set(helps))


def test_embed_publishes_when_asked_to_and_no_gate_refuses(nights, capsys):
    """Last of all: it changes what is published."""
    store, cluster = str(nights.store), ["--cluster", str(nights.cluster)]
    current = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)["current"]
    embed = ["embed", "--store", store, "--dim", "6", "--smoothing", "3", *cluster]
    words = run(nights, capsys, *embed).out
    assert "Not published: figrl reindex publishes this store" in words
    report = json.loads(run(nights, capsys, *embed, "--json").out)
    assert (report["published"], report["gated"]) == (False, True)
    # A gate of the night asks for small residuals.
    config = str(nights.config(gates={"largest_residual": 1e-9}))
    assert run(nights, capsys, "reindex", config, *cluster).out.startswith("Nothing to do")
    refused = run(nights, capsys, *embed, "--seed", "3", "--publish", "yes", code=4).err
    assert "largest_residual" in refused
    shown = run(nights, capsys, "status", "--store", store)
    assert re.search(
        r"last attempt +embed of run \w+, .*: refused: Run \w+ is not published", shown.out
    )
    assert f"current run   {current}" in shown.out
    held = json.loads(run(nights, capsys, "status", "--store", store, "--json").out)
    marks = {one["run"]: one["refused_by"] for one in held["runs"]}
    assert marks[current] is None
    [refused_run] = [name for name, gates in marks.items() if gates]
    assert marks[refused_run] == ["largest_residual"]
    assert re.search(rf"{refused_run} .* refused\n", shown.out)
    assert shown.out.count(f"figrl rollback RUN --store {store}") == 1
    config = str(nights.config())
    assert run(nights, capsys, "reindex", config, *cluster).out.startswith("Nothing to do")
    words = run(nights, capsys, *embed, "--seed", "3", "--publish", "yes").out
    published = re.search(r"run (\w+) \(published, the current run\)", words)
    assert published is not None
    assert published[1] != current
    words = run(nights, capsys, *embed, "--seed", "4", "--publish", "no").out
    assert "Not published" in words
