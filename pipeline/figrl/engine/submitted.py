"""Submitted jobs: the driver runs as a task of the cluster, its state lies in the store.

    STORE/jobs/ID/   job.json, state.json, log.jsonl, report.json, and cancel if it is to end;
                     lease-0001, a file for each time that the job was submitted

The submitter may disconnect. If the worker that runs the driver dies, Dask gives the task to
another one, which resumes from the marks. If the scheduler dies, the job is submitted again: it
gets the next lease, and a driver with an older one ends.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figrl.engine.stage import Silent, StageResult
from figrl.errors import BadInputError, CancelledError, FigrlError, StoreInUseError
from figrl.store.files import (
    delete,
    exists,
    list_prefix,
    put_if_absent,
    read_json,
    write_json,
    write_text,
)
from figrl.store.heartbeat import heartbeat
from figrl.store.jobs import OwnerState, exit_code_of, owner_state, reason_of, result_of
from figrl.store.layout import StorePaths
from figrl.store.lock import process_name

ENDED = ("done", "failed", "cancelled", "interrupted")
_WAITING = {"state": "waiting"}
KEPT_JOBS = 50


class SupersededError(FigrlError):
    """The job was submitted again, and has another driver."""


def jobs_folder(paths: StorePaths) -> Path:
    """Folder of all submitted jobs."""
    return paths.root / "jobs"


def new_job(
    paths: StorePaths, job: str, params: dict[str, Any], settings: dict[str, Any], scheduler: str
) -> Path:
    """Create the folder of a job that is about to be submitted; delete those of old jobs.

    `settings` is the section ``figrl`` of ``dask.config``.
    """
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    folder = jobs_folder(paths) / name
    facts = {"id": name, "job": job, "params": params, "settings": settings}
    write_json(folder / "job.json", {**facts, "scheduler": scheduler, "submitted": time.time()})
    take_lease(folder, 1)
    for old in list_prefix(jobs_folder(paths))[:-KEPT_JOBS]:
        if read_state(old).get("state") in ENDED:
            delete(old)
    return folder


def take_lease(folder: Path, lease: int) -> None:
    """Let a job wait for a driver with this lease; an error if somebody else has just taken it."""
    try:
        put_if_absent(_lease_file(folder, lease))
    except FileExistsError as error:
        raise StoreInUseError(f"Somebody else resumed job {folder.name} just now.") from error
    delete(folder / "cancel")
    attempts = read_state(folder).get("attempts", 0)
    write_json(folder / "state.json", {**_WAITING, "attempts": attempts, "beat": time.time()})


def _lease_file(folder: Path, lease: int) -> Path:
    return folder / f"lease-{lease:04d}"


def unfinished_job(paths: StorePaths, name: str | None) -> Path:
    """Folder of a job that ended early or whose driver is gone; by default of the last."""
    if name is None:
        unfinished = [job["id"] for job in list_jobs(paths) if job.get("state") != "done"]
        if not unfinished:
            raise BadInputError(f"{paths.root} has no submitted job that is not done.")
        name = unfinished[-1]
    folder = job_folder(paths, name)
    state = read_state(folder)
    if state.get("state") == "done":
        raise BadInputError(f"Job {name} is done.")
    if state.get("state") == "running" and driver_state(state) == "alive":
        raise StoreInUseError(
            f"Job {name} is running on {state['worker']}. Wait for it, or end it with figrl cancel."
        )
    return folder


def next_lease(folder: Path) -> int:
    """Take the next lease of a job."""
    lease = 1 + sum(path.name.startswith("lease-") for path in list_prefix(folder))
    take_lease(folder, lease)
    return lease


def driver_state(state: dict[str, Any]) -> OwnerState:
    """Whether the driver of a running job lives, as far as can be told from here."""
    return owner_state({"process": state["worker"], "beat": state["beat"]})


def read_state(folder: Path) -> dict[str, Any]:
    """State of a job; empty if it cannot be read."""
    with suppress(OSError, ValueError):
        return dict(read_json(folder / "state.json"))
    return {}


def list_jobs(paths: StorePaths) -> list[dict[str, Any]]:
    """All submitted jobs with their states, oldest first."""
    found = []
    for folder in list_prefix(jobs_folder(paths)):
        with suppress(OSError, ValueError):
            facts = read_json(folder / "job.json")
            state = read_state(folder)
            silent = time.time() - state.get("beat", time.time())
            driver = driver_state(state) if state.get("state") == "running" else None
            silence = {"silent_seconds": round(max(silent, 0.0), 1), "driver": driver}
            found.append({**facts, **state, **silence})
    return found


def job_folder(paths: StorePaths, name: str) -> Path:
    """Folder of a submitted job; an error if there is none."""
    folder = jobs_folder(paths) / name
    if not exists(folder / "job.json"):
        known = ", ".join(path.name for path in list_prefix(jobs_folder(paths))[-5:])
        raise BadInputError(
            f"There is no job '{name}' in {paths.root}. The last ones: {known or 'none'}."
        )
    return folder


def ask_to_cancel(paths: StorePaths, name: str) -> Path:
    """Ask a job to end, which it does before its next block; return its folder."""
    folder = job_folder(paths, name)
    if read_state(folder).get("state") not in ENDED:
        write_text(folder / "cancel", "figrl cancel\n")
    return folder


class SubmittedMonitor(Silent):
    """Writes the state of a job; an error ends it when it was cancelled or submitted again."""

    def __init__(self, folder: Path, attempts: int, lease: int) -> None:
        self._folder, self._next_lease = folder, _lease_file(folder, lease + 1)
        self._facts: dict[str, Any] = {
            "state": "running",
            "attempts": attempts,
            "worker": process_name(),
            "started": time.time(),
        }
        self._lock = threading.Lock()
        self.check_lease()
        self.write_state()

    def check_lease(self) -> None:
        """Raise SupersededError if the job was submitted again: it has another driver."""
        if exists(self._next_lease):
            raise SupersededError(f"Job {self._folder.name} was resumed, and has another driver.")

    def write_state(self, **facts: Any) -> None:
        """Add facts to the state, and write it with a fresh heartbeat."""
        self.check_lease()
        with self._lock:
            self._facts.update(facts)
            write_json(self._folder / "state.json", {**self._facts, "beat": time.time()})

    def check_cancelled(self) -> None:
        """Raise an error if the job was cancelled, or submitted again."""
        self.check_lease()
        if exists(self._folder / "cancel"):
            raise CancelledError("The job was cancelled. Finished blocks are kept.")

    def started(self, result: StageResult) -> None:
        """Write the stage."""
        self.check_cancelled()
        self.write_state(stage=result.name, done=result.reused, blocks=result.blocks)

    def advanced(self, result: StageResult) -> None:
        """Count a block; the next heartbeat writes it."""
        self.check_cancelled()
        self._facts.update(done=len(result.stats))

    def finished(self, result: StageResult) -> None:
        """Write that the stage is complete."""
        self.write_state(done=result.blocks)


@contextmanager
def submitted_state(folder: Path, lease: int) -> Iterator[SubmittedMonitor]:
    """Keep the state of a job up to date while it runs, and write how it ended.

    FigrlError ends the job; other exceptions propagate so that Dask retries. So does a FigrlError
    without an exit code of its own, such as a lost cluster.
    """
    attempts = int(read_state(folder).get("attempts", 0)) + 1
    monitor = SubmittedMonitor(folder, attempts, lease)
    outcome: dict[str, Any] = {"state": "done", "exit_code": 0}
    try:
        with heartbeat(monitor.write_state):
            yield monitor
    except BaseException as error:
        # A gate that refuses ends a job like any other error.
        state = result_of(error).replace("refused", "failed")
        outcome = {"state": state, "exit_code": exit_code_of(error), "error": reason_of(error)}
        if not isinstance(error, FigrlError) or error.exit_code == FigrlError.exit_code:
            raise
    finally:
        # Nothing if the job has another driver.
        with suppress(SupersededError):
            monitor.write_state(**outcome, ended=time.time())
