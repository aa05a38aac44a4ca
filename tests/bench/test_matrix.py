"""The benchmark of stored matrices, at a size of kilobytes."""

from __future__ import annotations

import importlib.util

import pytest

import figrl.store.matrix
from figrl.bench import storage
from figrl.bench.results import Comparison, Score
from figrl.study.process import Measured

STAGES = ["sketch", "operand", "factor", "vectors", "all", "processor time"]


@pytest.mark.parametrize("how", ["StoredMatrix", "page cache", "zarr"])
@pytest.mark.parametrize(("rows", "width", "cached"), [(64, 256, False), (32, 1000, True)])
def test_every_stage_is_timed(how, rows, width, cached, monkeypatch):
    """A matrix with several slices and one with a single slice, both with several chunks."""
    if not cached:
        monkeypatch.setattr(figrl.store.matrix, "_CACHED_BYTES", 0)
    found = storage.stages(how, rows, width, 8)
    assert list(found) == STAGES
    assert all(seconds > 0 for seconds in found.values())
    if not cached:
        assert found["all"] >= max(found[stage] for stage in STAGES[:4])


def test_medians_are_compared_and_what_is_missing_is_named(monkeypatch):
    rounds = iter(range(1000))

    def run(function, how, rows, width, height):
        assert function is storage.stages
        if how == "StoredMatrix":
            return Measured(0.0, 0, dict.fromkeys(STAGES, 2.0))
        # One round in three is disturbed.
        seconds = 100.0 if next(rounds) % 3 == 0 else 3.0
        return Measured(0.0, 0, dict.fromkeys(STAGES, seconds))

    monkeypatch.setattr(storage, "measure_in_process", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(storage, "variants", lambda *_: [("StoredMatrix", 8), ("zarr", 8)])
    *lines, last = storage.bench_matrix()
    assert isinstance(last, Score)
    assert last.skipped == "zarrs is not installed"
    assert len(lines) == 2 * len(STAGES)
    for line in lines:
        assert isinstance(line, Comparison)
        assert line.speedup == 1.5


def test_today_s_chunks_come_first_and_larger_ones_follow():
    found = storage.variants(1 << 18, 256, ["zarr"])
    ours = [("StoredMatrix", 4096), ("page cache", 4096)]
    assert list(found) == [*ours, ("zarr", 4096), ("zarr", 16_384), ("zarr", 65_536)]
