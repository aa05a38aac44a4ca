"""What a store tells of its jobs when a record is cut off, an owner damaged, or a disk full."""

from __future__ import annotations

import json
import resource

import pytest

from figrl.store.files import append_record, read_records, write_json
from figrl.store.jobs import last_jobs, record_job
from figrl.store.layout import store_paths
from figrl.store.lock import owner_of


@pytest.mark.parametrize("cut", [1, 20])
def test_half_a_line_does_not_take_the_next_one_with_it(tmp_path, cut):
    log = tmp_path / "log"
    for number in range(2):
        append_record(log, {"number": number})
    log.write_bytes(log.read_bytes()[:-cut])
    append_record(log, {"number": 2})
    # Without its end a line may still be whole.
    kept = [0, 1, 2] if cut == 1 else [0, 2]
    assert [value["number"] for value in read_records(log)[0]] == kept


def test_a_record_that_does_not_fit_is_an_error(tmp_path):
    log = tmp_path / "log"
    append_record(log, {"number": 0})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match=f"'{log}'"):
            append_record(log, {"number": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_record(log, {"number": 2})
    assert [value["number"] for value in read_records(log)[0]] == [0, 2]


def test_a_job_that_ended_but_kept_the_lock_is_told_of_once(tmp_path):
    paths, owner = store_paths(tmp_path), tmp_path / ".owner.json"
    with paths.locked("embed"):
        left = owner.read_text()
    owner.write_text(left)
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done"]
    with paths.locked("embed"):
        pass
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done", "done"]


def test_a_job_that_was_killed_is_told_of_once(tmp_path):
    paths, owner = store_paths(tmp_path), tmp_path / ".owner.json"
    with paths.locked("embed"):
        left = json.loads(owner.read_text())
    write_json(owner, {**left, "since": left["since"] + 1, "process": "elsewhere:1", "beat": 0})
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done", "killed"]


@pytest.mark.parametrize(
    "damage", [{"since": None}, {"beat": "soon"}, {"process": 7}, {"purpose": []}, {"token": {}}]
)
def test_an_owner_that_makes_no_sense_stops_no_job(tmp_path, damage):
    paths, owner = store_paths(tmp_path), tmp_path / ".owner.json"
    with paths.locked("embed"):
        left = json.loads(owner.read_text())
    write_json(owner, {**left, **damage})
    assert owner_of(tmp_path) is None
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done"]
    with paths.locked("embed"):
        pass
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done", "done"]


def test_facts_that_make_no_sense_are_left_out(tmp_path):
    paths, owner = store_paths(tmp_path), tmp_path / ".owner.json"
    with paths.locked("embed"):
        left = json.loads(owner.read_text())
    write_json(owner, {**left, "since": 1.0, "facts": ["run"]})
    with paths.locked("embed"):
        pass
    assert [job["result"] for job in last_jobs(tmp_path, 9)] == ["done", "killed", "done"]


def test_damaged_records_are_left_out(tmp_path):
    for number in range(3):
        record_job(tmp_path, {"job": f"{number}", "started": 1.0, "ended": 2.0})
    log = tmp_path / "logs" / "jobs.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"\xff\x00" + lines[1] + lines[2])
    assert [job["job"] for job in last_jobs(tmp_path, 9)] == ["0", "2"]
