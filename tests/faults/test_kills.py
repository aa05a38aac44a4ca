"""A job that is killed in each of its stages ends with the same bits; no work is done twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.stories import (
    MIDDLE,
    blocks_of,
    key_of,
    kill_in_each_stage,
)
from tests.faults.workload import JOBS, bits, marked_blocks

# The story of a job starts it many times.
pytestmark = pytest.mark.timeout(1800)


def test_each_stage_has_blocks_to_lose(alone):
    _, reports = alone
    assert blocks_of(reports["ingest"]) == {
        "scan": 18,
        "ranges": 1,
        "ids": 1,
        "relabel": 18,
        "build": 18,
    }
    assert blocks_of(reports["embed"]) == {
        **{f"sketch-{number:03d}": 18 for number in range(1, 5)},
        "factor": 5,
        "factor-solve": 1,
        "norm": 18,
        "vectors": 18,
        "smooth-001": 18,
        "smooth-002": 18,
        "smooth-mix": 18,
        "smooth-003": 18,
        "smooth-gram": 5,
        "smooth-balance": 1,
        "embedding": 18,
    }
    fold_in = {"match": 1, "weigh": 3, "fold": 3, "join": 1}
    assert blocks_of(reports["fold-in"]).items() >= fold_in.items()
    assert blocks_of(reports["export"]) == {"export": 18}
    for report in reports.values():
        assert all(stage["reused"] == 0 for stage in report["stages"])


# One worker holds the whole graph, and does products in a row.
IN_A_ROW = [(name, "0000") for name in ("sketch-001", "smooth-001")]


def test_one_worker_that_is_killed_in_every_row_of_products_gives_the_same_bits(
    workload, alone, tmp_path
):
    story = kill_in_each_stage("embed", workload, alone[0], tmp_path, IN_A_ROW, workers=1)
    names = [name for name in blocks_of(story.report) if name.startswith(("sketch-", "smooth-0"))]
    assert names == ["sketch-001", "smooth-001"]
    for place, attempt in enumerate(story.attempts):
        assert attempt.block not in attempt.after
        assert set(IN_A_ROW[:place]) <= attempt.after
    assert story.done.isdisjoint(story.computed)
    assert bits(story.store, "embed") == bits(alone[0], "embed")


@pytest.fixture(scope="module")
def stories(workload, alone, tmp_path_factory):
    """Stories of all jobs, two at a time: most of each is the start of processes."""
    folders = {job: tmp_path_factory.mktemp(job) for job in JOBS}
    with ThreadPoolExecutor(2) as pool:
        return {
            job: pool.submit(kill_in_each_stage, job, workload, alone[0], folders[job], MIDDLE[job])
            for job in JOBS
        }


@pytest.mark.parametrize("job", JOBS)
def test_the_job_is_killed_in_each_stage(stories, alone, job):
    story = stories[job].result()
    for attempt in story.attempts:
        assert len(attempt.committed) == len(set(attempt.committed))
        assert attempt.before.isdisjoint(attempt.committed)
        assert attempt.before | set(attempt.committed) == attempt.after
        assert attempt.block not in attempt.after
    assert blocks_of(story.report) == blocks_of(alone[1][job])
    assert len(story.computed) == len(set(story.computed))
    assert story.done.isdisjoint(story.computed)
    for stage in story.report["stages"]:
        assert stage["reused"] == sum(name == key_of(stage) for name, _ in story.done)
        assert stage["computed"] == sum(name == key_of(stage) for name, _ in story.computed)
        assert stage["computed"] == stage["blocks"] - stage["reused"]
    assert bits(story.store, job) == bits(alone[0], job)
    assert marked_blocks(story.store) == set()
