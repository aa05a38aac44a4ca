"""The share that is done, and the time left, of a job whose stages take given times."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import figrl
from figrl.engine.cluster_file import ClusterConfig, LocalCluster
from figrl.engine.progress import WORDS, Progress, View
from figrl.engine.stage import StageResult
from figrl.engine.where import describe_place


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(progress, clock, name, *, seconds, blocks=1, reused=0, until=None):
    """Run a stage, or its first blocks."""
    result = StageResult(name, blocks, reused=reused)
    result.stats = {str(i): {} for i in range(reused)}
    progress.started(result)
    for block in range(reused, blocks if until is None else until):
        clock.now += seconds / blocks
        result.stats[str(block)] = {}
        progress.advanced(result)
    if until is None:
        progress.finished(result)


def test_a_plan_that_is_right_is_followed_to_the_second():
    clock = Clock()
    progress = Progress("embed", clock)
    progress.planned([("sketch", 10.0), ("sketch", 10.0), ("factor", 20.0)])
    assert progress.view().left == pytest.approx(40)
    run(progress, clock, "sketch", seconds=10.0, blocks=5)
    view = progress.view()
    assert (view.share, view.left) == (pytest.approx(0.25), pytest.approx(30))
    run(progress, clock, "sketch", seconds=10.0, blocks=5, until=2)
    view = progress.view()
    assert (view.share, view.left) == (pytest.approx(0.35), pytest.approx(26))
    assert view.text == "embed: 35%, 25 s left, multiplying with the graph, 2 of 2"
    # Inside a block, time alone moves it.
    clock.now += 1
    assert progress.view().share == pytest.approx(0.375)


def test_a_machine_that_is_slower_than_planned_corrects_the_time_left():
    clock = Clock()
    progress = Progress("embed", clock)
    progress.planned([("sketch", 30.0), ("factor", 10.0)])
    run(progress, clock, "sketch", seconds=90.0, blocks=30)
    assert 25 < progress.view().left <= 30
    # A stage that takes longer than it should, without a word.
    run(progress, clock, "factor", seconds=0, blocks=1, until=0)
    before = progress.view().share
    clock.now += 600
    view = progress.view()
    assert before <= view.share < 1
    assert view.left > 0


def test_what_an_earlier_attempt_did_counts_as_done_but_not_as_fast():
    clock = Clock()
    progress = Progress("embed", clock)
    progress.planned([("sketch", 50.0), ("factor", 50.0)])
    run(progress, clock, "sketch", seconds=0.0, blocks=10, reused=10)
    view = progress.view()
    assert (view.share, view.left) == (pytest.approx(0.5), pytest.approx(50))


def test_the_share_never_falls_when_a_plan_arrives_between_two_parts():
    clock = Clock()
    progress = Progress("edges to vectors", clock)
    shares = []
    for name in ("scan", "ranges", "ids", "relabel", "build"):
        run(progress, clock, name, seconds=2.0, blocks=2)
        shares.append(progress.view().share)
    progress.planned([("embed", 600.0)])
    shares.append(progress.view().share)
    run(progress, clock, "embed", seconds=600.0)
    for name in ("export", "join"):
        run(progress, clock, name, seconds=1.0)
        shares.append(progress.view().share)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 0.99
    assert progress.view("done").share == 1


def test_without_a_plan_no_time_is_guessed_before_something_is_measured():
    clock = Clock()
    progress = Progress("ingest", clock)
    run(progress, clock, "scan", seconds=30.0, blocks=1, until=0)
    clock.now += 10
    assert progress.view().time_left == ""
    run(progress, clock, "scan", seconds=30.0)
    assert progress.view().left == pytest.approx(30 / 3 * 6.4)


def test_stages_that_nobody_expected_are_named():
    clock = Clock()
    progress = Progress("study", clock)
    run(progress, clock, "some-stage", seconds=1.0, until=0)
    view = progress.view()
    assert (view.share, view.text) == (None, "study: some stage")


def test_a_job_says_where_it_runs(client, monkeypatch):
    config = ClusterConfig(scheduler=client.scheduler.address)
    monkeypatch.setattr("figrl.engine.where._has_bokeh", lambda: True)
    place = f"Running on 2 workers at {client.scheduler.address}"
    assert describe_place(client, config) == f"{place}, dashboard {client.dashboard_link}."
    monkeypatch.setattr("figrl.engine.where._has_bokeh", lambda: False)
    extra = "pip install 'figrl[dashboard]'"
    assert describe_place(client, config) == (
        f"{place} (for its dashboard: {extra} where the scheduler runs)."
    )
    local = "Running on a local cluster: 2 workers, 2 threads, 8 GB"
    assert describe_place(client, ClusterConfig()) == f"{local}."
    shown = ClusterConfig(local=LocalCluster(dashboard_address="127.0.0.1:0"))
    assert describe_place(client, shown) == f"{local} (for its dashboard: {extra})."


@pytest.mark.parametrize(
    ("left", "shown"),
    [(3, "seconds left"), (42, "40 s left"), (200, "3 min left"), (9000, "2.5 h left")],
)
def test_time_left_is_as_exact_as_it_can_be_known(left, shown):
    assert View("embed", 0.5, left, "", 1.0).time_left == shown


def test_every_stage_has_words():
    """But for those of studies and benchmarks."""
    names = set()
    for path in Path(figrl.__file__).parent.rglob("*.py"):
        if path.parent.name in ("study", "parts", "bench", "engine"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                *("Stage", "product_stage", "_rows_stage", "scan_stage"),
            ):
                words = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
                names.update(words[:1])
    assert len(names) > 25
    assert names - set(WORDS) == set()
