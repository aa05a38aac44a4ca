"""Nights that are killed at any moment, two at a time, and readers who never notice.

FIGRL_SOAK sets how many random moments a job is killed at, and has readers see twenty publications;
the suite tries a few.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from figrl.serve.embedding import open_store
from figrl.serve.publish import history, roll_back
from tests.faults.night import STEPS
from tests.learn.test_accurate import planted_edges
from tests.nightly.test_reindex import Nights
from tests.waiting import LONG, wait_until

pytestmark = pytest.mark.timeout(900)

MOMENTS = int(os.environ.get("FIGRL_SOAK", "1"))
PUBLICATIONS = 20 if "FIGRL_SOAK" in os.environ else 6


def vectors_of(store: Path) -> bytes:
    """All that the published run serves, as bytes."""
    run = open_store(store).embedding()
    content = hashlib.sha256()
    for name in ("embedding", "basis"):
        for path in sorted((run.path / name).rglob("c/*/*")):
            content.update(path.name.encode() + path.read_bytes())
    return content.digest() + run.run.encode()


def start(nights: Nights, *step: str) -> subprocess.Popen[str]:
    scheduler = nights.client.scheduler.address
    command = [sys.executable, "-m", "tests.faults.night", str(nights.config()), scheduler, *step]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> int:
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode in (0, 6, -9), errors
    return process.returncode


@pytest.fixture(scope="module")
def second_night(client, tmp_path_factory):
    """A store after its first night, one after its second, and how long that took."""
    folder = tmp_path_factory.mktemp("nights")
    nights = Nights(folder, client, keep={"runs": 1})
    nights.write(1, planted_edges(3))
    assert finish(start(nights)) == 0
    shutil.copytree(nights.store, folder / "before")
    nights.write(2, [(i, i + 1) for i in range(60)])
    started = time.monotonic()
    assert finish(start(nights)) == 0
    took = time.monotonic() - started
    nights.after = vectors_of(nights.store)
    return nights, folder / "before", took


def go_back(nights: Nights, before: Path) -> None:
    shutil.rmtree(nights.store)
    shutil.copytree(before, nights.store)


def check_and_finish(nights: Nights, before: bytes) -> None:
    """What is published is the first night's or the second's; run again, it is the second's."""
    assert vectors_of(nights.store) in (before, nights.after)
    assert finish(start(nights)) == 0
    assert vectors_of(nights.store) == nights.after
    store = open_store(nights.store)
    assert store.runs == [store.embedding().run], "the first night's is deleted"
    assert [e["action"] for e in history(store.paths)] == ["published", "published", "deleted"]
    assert store.paths.latest_graph() == store.embedding().graph.version


@pytest.mark.parametrize("step", STEPS)
def test_a_job_is_killed_at_each_step_of_publishing(second_night, step):
    nights, before, _ = second_night
    go_back(nights, before)
    first = vectors_of(nights.store)
    assert finish(start(nights, step)) == -9, "the step was not reached"
    check_and_finish(nights, first)


def test_a_first_night_is_killed(client, tmp_path):
    """There is nothing before it; but once it is published it can be read."""
    nights = Nights(tmp_path, client)
    nights.write(1, planted_edges(3))
    assert finish(start(nights, "current")) == -9
    assert len(open_store(nights.store).embedding()) > 100
    assert finish(start(nights)) == 0
    assert [e["action"] for e in history(open_store(nights.store).paths)] == ["published"]


def test_a_job_is_killed_at_random_moments(second_night):
    nights, before, took = second_night
    moments = random.Random(0)
    for _ in range(MOMENTS):
        go_back(nights, before)
        first = vectors_of(nights.store)
        process = start(nights)
        time.sleep(moments.uniform(0, took))
        process.kill()
        finish(process)
        check_and_finish(nights, first)


def test_of_two_starts_one_runs(second_night):
    nights, before, _ = second_night
    go_back(nights, before)
    codes = sorted(finish(process) for process in [start(nights), start(nights)])
    assert codes in ([0, 6], [0, 0]), "the second may come when the first is done"
    assert vectors_of(nights.store) == nights.after
    actions = [e["action"] for e in history(open_store(nights.store).paths)]
    assert actions == ["published", "published", "deleted"]


READER = """
import hashlib, sys
from pathlib import Path
import numpy as np
from figrl.serve.embedding import open_store
store, log, stop = sys.argv[1:]
seen = {}
while not Path(stop).exists():
    run = open_store(store).embedding()
    ids = run.ids().to_pylist()
    vectors = run.lookup(ids)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    content = hashlib.sha256(vectors.tobytes()).hexdigest()
    # Of one run there is one content, whenever and however often it is read.
    assert seen.setdefault(run.run, content) == content, "a mix of two runs"
    again = run.lookup(ids[::7])
    assert (again == vectors[::7]).all()
    with open(log, "a") as lines:
        print(run.run, file=lines)
print(len(seen), len(set(seen.values())))
"""


def test_readers_never_notice(client, tmp_path):
    """Publications, a rollback, and old runs deleted after every night."""
    nights = Nights(tmp_path, client, keep={"runs": 2, "refused": 0})
    nights.write(1, planted_edges(3))
    nights.run()
    stop, logs = tmp_path / "stop", [tmp_path / "reader-0", tmp_path / "reader-1"]
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(nights.store), str(log), str(stop)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for log in logs
    ]

    def all_see_the_published_run() -> bool:
        """Whether the last look of each reader was at the current run; true if one has failed."""
        current = nights.store.joinpath("current").read_text().strip()
        looks = [log.read_text().split()[-1:] if log.exists() else [] for log in logs]
        return looks == [[current]] * 2 or any(reader.poll() is not None for reader in readers)

    wait_until(all_see_the_published_run, "both readers have read the first run")
    rng = np.random.default_rng(0)
    for day in range(2, 2 + PUBLICATIONS):
        nights.write(day, rng.integers(0, 240, (10, 2)))
        nights.run()
    wait_until(all_see_the_published_run, "both readers have read the last run")
    roll_back(nights.store)
    wait_until(all_see_the_published_run, "both readers have read the run before it")
    stop.touch()
    for reader in readers:
        printed, errors = reader.communicate(timeout=LONG)
        assert reader.returncode == 0, errors
        runs, contents = map(int, printed.split())
        assert runs == contents >= 3, "the first run, the last, and the one before it"
    assert len(open_store(nights.store).runs) <= 4, "two, and what each reader had open"
