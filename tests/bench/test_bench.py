"""The benchmark's own parts: processes are measured, ratios are right, small cases agree."""

from __future__ import annotations

import time

import numpy as np
import pytest

from figrl import ingest
from figrl.analyze.metrics import modularity
from figrl.bench import factor, fold_in, growth, scale, storage
from figrl.bench.checks import embed_seconds
from figrl.bench.plot import plot_report
from figrl.bench.results import Comparison, Metric
from figrl.errors import FigrlError
from figrl.study.process import Measured, ProcessTimeoutError, measure_in_process
from tests.reference import write_edges


def hold(megabytes: int, seconds: float) -> dict[str, object]:
    memory = np.ones(megabytes << 20, np.uint8)
    time.sleep(seconds)
    return {"sum": int(memory[::4096].sum())}


def fail() -> None:
    raise ValueError("on purpose")


def test_seconds_and_memory_of_a_process_are_seen_from_outside():
    measured = measure_in_process(hold, megabytes=300, seconds=0.5)
    assert measured.result == {"sum": 300 << 8}
    assert measured.seconds >= 0.5
    assert 300 << 20 < measured.peak_bytes < 700 << 20


def test_a_process_that_fails_is_an_error():
    with pytest.raises(FigrlError, match=r"fail ended with exit code 1"):
        measure_in_process(fail)


def test_a_process_is_stopped_at_its_timeout():
    with pytest.raises(ProcessTimeoutError):
        measure_in_process(hold, timeout_seconds=0.5, megabytes=1, seconds=60)


def test_a_comparison_has_ratios_and_goals():
    ours, theirs = Measured(2.0, 100, {}), Measured(30.0, 300, {})
    comparison = Comparison.of("what", "other", (ours, theirs), wanted=10, wanted_memory=2)
    assert (comparison.speedup, comparison.memory_ratio, comparison.reached) == (15.0, 3.0, True)
    assert not Comparison.of("what", "other", (ours, theirs), wanted=20).reached
    assert not Comparison.of("what", "other", (ours, theirs), wanted=1, wanted_memory=4).reached
    assert comparison.describe()["speedup"] == 15.0


def test_fold_in_is_the_papers_formula():
    sizes = {"known": 500, "new": 300, "degree": 5, "sketch_size": 40, "dim": 16}
    ours, other = fold_in.ours(**sizes), fold_in.node_by_node(**sizes)
    assert ours["check"] == pytest.approx(other["check"], rel=1e-4)


def test_both_factorisations_span_the_same_space(tmp_path):
    """A small case of `figrl bench factor`; it checks that itself."""
    factor.bench_factor(rows=6000, columns=60, dim=5)


def test_modularity_of_two_triangles(client, tmp_path):
    # Two triangles joined by an edge: 6/7 inside, and half of the ends in each.
    edges = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)]
    path = write_edges(tmp_path / "edges.parquet", edges)
    graph = ingest(path, store=tmp_path / "store", client=client, block_rows=4)
    found = modularity(graph, np.array([0, 0, 0, 1, 1, 1]))
    assert found == pytest.approx(6 / 7 - 0.5)
    assert modularity(graph, np.zeros(6, np.int64)) == pytest.approx(0)


def test_a_metric_has_a_limit():
    assert Metric("exponent", 1.0, 1.1).reached
    assert not Metric("exponent", 1.2, 1.1).reached
    assert Metric("share", 0.6, 0.5, at_least=True).reached
    assert not Metric("share", 0.4, 0.5, at_least=True).describe()["reached"]


def test_an_embedding_on_two_workers_is_measured(client, tmp_path):
    ends = np.random.default_rng(0).integers(0, 300, (1_000, 2))
    ingest(ends, store=tmp_path / "store", client=client)
    found = scale.embed_once(str(tmp_path / "store"), str(tmp_path / "store"), 2, 1)
    assert 0 < found["products"] < found["embed"]
    assert 0 < found["busiest"] <= found["cpu"]
    assert 0 < found["staged"] < found["embed"]
    assert found["bytes"] > 8 * 128 * 300
    assert not list((tmp_path / "store" / "runs").iterdir())


def test_scale_compares_medians_with_one_worker():
    shared = {"products": 4.0, "cpu": 10.0, "busiest": 10.0, "bytes": 1e9}
    one = [{"embed": seconds, **shared} for seconds in (9, 8, 1)]
    two = [{"embed": 5.0, "products": 2.0, "cpu": 11.0, "busiest": 7.5, "bytes": 2e9}] * 3
    runs = {(1, 1): one, (2, 1): two}
    embed, products, cpu, busiest, moved = scale._compare((2, 1), runs, 20_000_000)
    assert embed.what == "scale: 2 x 1 threads, 20 M edges: embed"
    assert (embed.value, embed.limit, embed.reached) == (1.6, 1.7, False)
    assert (products.value, cpu.value, moved.value) == (2.0, 1.1, 2.0)
    assert products.reached
    assert cpu.reached
    assert busiest.what.endswith("processor seconds of the busiest worker")
    assert (busiest.value, busiest.reached) == (0.75, False)
    assert moved.reached


def test_growth_tells_of_every_stage(tmp_path, monkeypatch):
    """Graphs that are far too small to say anything: the figures are there and add up."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Another test measures them; here the ones of a machine that nobody measured do as well.
    monkeypatch.setattr(growth, "measure_rates", lambda: None)
    figures = growth.bench_growth(sizes=(20_000, 60_000), preset="paper", dim=8)
    stages = ["sketch", "factor", "factor-solve", "vectors"]
    grown = [figure for figure in figures if "exponent" in figure.what]
    assert [figure.what.split()[2] for figure in grown] == ["ingest", *stages, "all"]
    predicted = [figure for figure in figures if figure.what.startswith("predicted")]
    assert [figure.what.split()[3] for figure in predicted] == stages
    assert all(figure.value >= 1 for figure in predicted)
    peaks = [figure for figure in figures if figure.what.startswith("peak memory")]
    assert len(peaks) == 2
    assert all(0.2 < figure.value < 6 for figure in peaks)
    planned = [figure for figure in figures if figure.what.endswith("planned")]
    assert [figure.what.split()[2] for figure in planned] == 2 * stages
    assert all(0 < figure.value < 1 for figure in planned)
    beside = [figure for figure in figures if "over ingest" in figure.what]
    assert ["192 column products" in figure.detail for figure in beside] == [True, True]
    shares = [figure for figure in figures if "hardware" in figure.what]
    assert len(shares) == 2
    assert all(0 < figure.value < 1 for figure in shares)


def test_a_slope_is_the_exponent():
    sizes = [
        growth.Grown(edges, edges // 10, 0, {"sketch": 3e-6 * edges**1.2}, {})
        for edges in (10**6, 10**7, 10**8)
    ]
    assert growth._exponent(sizes, "sketch").value == pytest.approx(1.2)
    assert not growth._exponent(sizes, "sketch").reached


@pytest.mark.parametrize("how", ["differences", "plain", "dictionary snappy", "differences zstd"])
def test_edges_take_few_bytes_as_differences(how):
    found = storage.edges(how)
    assert found["seconds"] > 0
    assert found["bytes"] >= 0.9 * storage.edges("differences")["bytes"]


def test_the_plot_shows_every_line(tmp_path):
    comparison = Comparison("what", "other", 2.0, 30.0, wanted=10)
    metric = Metric("share", 0.4, 0.5, at_least=True)
    report = {"lines": [comparison.describe()], "figures": [metric.describe()]}
    plot_report(report, tmp_path / "bench.svg")
    drawn = (tmp_path / "bench.svg").read_text()
    assert drawn.startswith("<?xml")
    plot_report(report, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_an_embedding_with_and_without_checksums_is_timed(tmp_path):
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{i} {(i + 1) % 200}\n{i} {(i + 7) % 200}\n" for i in range(200)))
    found = measure_in_process(embed_seconds, edges=str(edges), pairs=2).result
    assert [len(found[name]) for name in ("checked", "plain")] == [2, 2]
