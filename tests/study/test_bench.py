"""The benchmark's own parts: processes are measured, ratios are right, small cases agree."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pipeline.errors import FigrlError
from pipeline.study.bench import factor, fold_in
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import Measured, run_apart


def hold(megabytes: int, seconds: float) -> dict[str, object]:
    memory = np.ones(megabytes << 20, np.uint8)
    time.sleep(seconds)
    return {"sum": int(memory[::4096].sum())}


def fail() -> None:
    raise ValueError("on purpose")


def test_seconds_and_memory_of_a_process_are_seen_from_outside():
    measured = run_apart(f"{__name__}:hold", megabytes=300, seconds=0.5)
    assert measured.result == {"sum": 300 << 8}
    assert measured.seconds >= 0.5
    assert 300 << 20 < measured.peak_bytes < 700 << 20


def test_a_process_that_fails_is_an_error():
    with pytest.raises(FigrlError, match=r"fail ended with exit code 1"):
        run_apart(f"{__name__}:fail")


def test_a_line_compares_and_judges():
    ours, theirs = Measured(2.0, 100, {}), Measured(30.0, 300, {})
    line = Line.of("what", "other", ours, theirs, wanted=10, wanted_memory=2)
    assert (line.speedup, line.memory_ratio, line.reached) == (15.0, 3.0, True)
    assert not Line.of("what", "other", ours, theirs, wanted=20).reached
    assert not Line.of("what", "other", ours, theirs, wanted=1, wanted_memory=4).reached
    assert line.describe()["speedup"] == 15.0


def test_fold_in_is_the_papers_formula():
    sizes = {"known": 500, "new": 300, "degree": 5, "sketch_size": 40, "dim": 16}
    ours, other = fold_in.ours(**sizes), fold_in.a_node_at_a_time(**sizes)
    assert ours["check"] == pytest.approx(other["check"], rel=1e-4)


def test_both_factorisations_span_the_same_space(tmp_path):
    """A small case of `figrl bench factor`; it checks that itself."""
    factor.bench_factor(rows=6000, columns=60, dim=5)
