"""Publishing, going back, keeping and deleting runs; readers keep what they read."""

from __future__ import annotations

import os
import time

import pytest

from figrl.errors import BadInputError
from figrl.serve.publish import (
    PUBLICATIONS,
    KeepRuns,
    history,
    note_published,
    pin,
    publish_run,
    record,
    refused_runs,
    retire,
    roll_back,
    runs_by_event,
    withdrawn_runs,
)
from figrl.store.layout import store_paths, write_manifest
from figrl.store.lease import Lease, not_in_use


@pytest.fixture
def paths(tmp_path):
    """A store with a graph for each of six runs."""
    paths = store_paths(tmp_path / "store")
    for number in range(6):
        write_manifest(paths.graph(f"g{number}"), {"graph": {}})
        write_manifest(paths.run(f"r{number}"), {"run": f"r{number}", "graph": f"g{number}"})
        (paths.run(f"r{number}") / "vectors").write_bytes(b"x" * 100)
    paths.set_latest_graph("g5")
    return paths


def publish(paths, *runs):
    with paths.locked("test") as lock:
        for run in runs:
            publish_run(paths, run, lock)


def test_history_records_what_was_published(paths):
    publish(paths, "r0", "r1", "r1", "r2")
    assert paths.current_run() == "r2"
    assert [(e["action"], e["run"]) for e in history(paths)] == [
        ("published", "r0"),
        ("published", "r1"),
        ("published", "r2"),
    ]
    assert runs_by_event(paths, *PUBLICATIONS) == ["r0", "r1", "r2"]


def test_a_publication_that_nobody_wrote_down_is_written_down_later(paths):
    publish(paths, "r0")
    paths.publish("r1")  # as if the process had been killed just then
    note_published(paths)
    note_published(paths)
    assert [e["run"] for e in history(paths)] == ["r0", "r1"]


def test_half_a_line_of_history_is_passed_over(paths):
    publish(paths, "r0")
    with (paths.root / "history.jsonl").open("a") as file:
        file.write('{"action": "publ')
    assert [e["run"] for e in history(paths)] == ["r0"]


def test_going_back(paths):
    publish(paths, "r0", "r1", "r2")
    assert roll_back(paths.root) == {
        "store": str(paths.root),
        "before": "r2",
        "current": "r1",
        "refused_by": None,
    }
    assert paths.current_run() == "r1"
    assert withdrawn_runs(paths) == {"r2"}
    assert roll_back(paths.root)["current"] == "r0", "again: further back"
    with pytest.raises(BadInputError, match="no earlier run"):
        roll_back(paths.root)
    assert roll_back(paths.root, "r2")["current"] == "r2"
    assert withdrawn_runs(paths) == {"r0", "r1"}
    with pytest.raises(BadInputError, match="no finished run 'nothing'"):
        roll_back(paths.root, "nothing")
    assert [e["action"] for e in history(paths)][-3:] == ["rolled back"] * 3


def test_going_back_to_a_run_that_gates_refused_says_so(paths):
    publish(paths, "r0")
    record(paths, "refused", "r1", gates=["edges_change", "mean_cosine"])
    record(paths, "refused", "r2", gates=["mean_cosine"])
    assert refused_runs(paths) == {"r1": ["edges_change", "mean_cosine"], "r2": ["mean_cosine"]}
    assert roll_back(paths.root, "r1")["refused_by"] == ["edges_change", "mean_cosine"]
    assert list(refused_runs(paths)) == ["r2"], "somebody published the other one"
    roll_back(paths.root, "r0")
    assert roll_back(paths.root, "r1")["refused_by"] is None


def test_there_has_to_be_something_to_go_back_to(paths):
    publish(paths, "r0")
    with pytest.raises(BadInputError, match="no earlier run"):
        roll_back(paths.root)


def test_only_what_is_kept_stays(paths):
    publish(paths, "r0", "r1", "r2", "r3")
    record(paths, "refused", "r4", gates=["edges_change"])
    pin(paths.root, "r0")
    with paths.locked("test") as lock:
        done = retire(paths, KeepRuns(runs=2, refused=1), lock)
    assert sorted(paths.finished_runs()) == ["r0", "r2", "r3", "r4"]
    assert sorted(path.name for path in paths.graphs.iterdir()) == [
        "g0",
        "g2",
        "g3",
        "g4",
        "g5",
        "latest",
    ]
    assert {"r1", "r5", "graph/g1"} <= set(done["deleted"])
    assert done["freed_bytes"] >= 200
    pin(paths.root, "r0", pinned=False)
    with paths.locked("test") as lock:
        retire(paths, KeepRuns(runs=1, refused=0), lock)
    assert paths.finished_runs() == ["r3"]


def test_the_current_run_stays_also_after_going_back(paths):
    publish(paths, "r0", "r1", "r2")
    roll_back(paths.root, "r0")
    with paths.locked("test") as lock:
        retire(paths, KeepRuns(runs=1, refused=0), lock)
    assert paths.finished_runs() == ["r0"]


def test_a_run_that_is_read_is_not_deleted(paths):
    publish(paths, "r0", "r1")
    lease = Lease(paths.run("r0"))
    with paths.locked("test") as lock:
        assert retire(paths, KeepRuns(runs=1, refused=0), lock)["in_use"] == ["r0"]
    assert (paths.run("r0") / "vectors").exists()
    lease.release()
    with paths.locked("test") as lock:
        assert "r0" in retire(paths, KeepRuns(runs=1, refused=0), lock)["deleted"]
    with pytest.raises(FileNotFoundError):
        Lease(paths.run("r0"))


def test_a_run_that_is_being_deleted_cannot_be_opened(paths):
    with not_in_use(paths.run("r0")) as free:
        assert free
        with pytest.raises(FileNotFoundError, match="being deleted"):
            Lease(paths.run("r0"))


def test_what_nobody_took_up_again_is_deleted(paths):
    publish(paths, "r5")
    old = time.time() - 4 * 86_400
    for name, when in (("stale", old), ("fresh", time.time())):
        marks = paths.run(name) / "work" / "marks" / "sketch"
        marks.mkdir(parents=True)
        for folder in (marks, *marks.parents[:3]):
            os.utime(folder, (when, when))
    (paths.runs / ".r9.0badf00d.tmp").mkdir()
    with paths.locked("test") as lock:
        done = retire(paths, KeepRuns(), lock)
    assert "runs/stale" in done["deleted"]
    assert (paths.run("fresh")).exists()
    assert not (paths.runs / ".r9.0badf00d.tmp").exists()
