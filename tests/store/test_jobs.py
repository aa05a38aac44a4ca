"""What is known of the jobs of a store: also of one that was killed, or whose number was reused."""

from __future__ import annotations

import json
import os
import time

import psutil
import pytest

from figrl.errors import CancelledError, GateError
from figrl.store import lock as store_lock
from figrl.store.files import append_record, read_records
from figrl.store.jobs import current_owner, last_jobs, owner_state, recorded_lock

HOST = os.uname().nodename


def test_half_a_line_does_not_take_the_next_one_with_it(tmp_path):
    log = tmp_path / "logs" / "jobs.jsonl"
    append_record(log, {"job": "first"})
    log.write_bytes(log.read_bytes() + b'{"job": "kil')
    append_record(log, {"job": "next"})
    found, bad = read_records(log)
    assert [one["job"] for one in found] == ["first", "next"]
    assert bad == [2]
    assert [one["job"] for one in last_jobs(tmp_path, 5)] == ["first", "next"]


def test_a_process_is_known_by_more_than_its_number():
    mine = {"process": f"{HOST}:{os.getpid()}"}
    began = psutil.Process().create_time()
    assert owner_state({**mine, "since": time.time()}) == "alive"
    assert owner_state({**mine, "since": began - 3600}) == "dead", "the number was given again"
    child = os.fork()
    if child == 0:
        os._exit(0)
    while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    ended = {"process": f"{HOST}:{child}", "since": time.time()}
    assert owner_state(ended) == "dead", "nobody waited for it yet"
    os.waitpid(child, 0)
    assert owner_state(ended) == "dead"
    assert owner_state({"process": "elsewhere:1", "beat": time.time()}) == "alive"
    assert owner_state({"process": "elsewhere:1", "beat": time.time() - 300}) == "silent"


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_job_on_another_machine_that_ends_while_it_is_waited_for_was_not_killed(
    tmp_path, monkeypatch, ends_well
):
    owner = tmp_path / ".owner.json"
    told = {"purpose": "reindex", "process": "elsewhere:1", "token": "t", "since": 1.0, "beat": 1.0}
    owner.write_text(json.dumps(told))
    monkeypatch.setattr(store_lock, "DEAD_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(store_lock, "_POLL_SECONDS", 0.01)
    if ends_well:
        monkeypatch.setattr(store_lock.time, "sleep", lambda _: owner.unlink())
    with recorded_lock(tmp_path, "embed") as held:
        assert (held.killed is None) is ends_well
        assert current_owner(tmp_path)["state"] == "alive"
        assert last_jobs(tmp_path, 5)[-1]["result"] == "running"
    results = [(one["job"], one["result"]) for one in last_jobs(tmp_path, 5)]
    assert results == [*[("reindex", "killed")] * (not ends_well), ("embed", "done")]


def failing(root, error):
    with recorded_lock(root, "embed") as held:
        held.note(run="r1")
        raise error


def test_how_a_job_ends_is_told(tmp_path):
    errors = (
        *(GateError("too many"), OSError(28, "No space", "file")),
        *(KeyboardInterrupt(), CancelledError("cancelled")),
    )
    for error in errors:
        with pytest.raises(type(error)):
            failing(tmp_path, error)
    told = [(one["result"], one["exit_code"], one["run"]) for one in last_jobs(tmp_path, 5)]
    assert told == [
        *(("refused", 4, "r1"), ("failed", 5, "r1")),
        *(("interrupted", 130, "r1"), ("cancelled", 130, "r1")),
    ]
    assert current_owner(tmp_path) is None
