"""Submitted jobs: the driver runs as a task of the cluster, its state lies in the store.

    STORE/jobs/ID/   job.json, state.json, log.jsonl, report.json, and cancel if it is to end

The submitter may disconnect. If the worker that runs the driver dies, Dask gives the task to
another one, which resumes from the marks.
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
from figrl.errors import BadInputError, FigrlError
from figrl.store.files import delete, exists, list_prefix, read_json, write_json, write_text
from figrl.store.heartbeat import heartbeat
from figrl.store.layout import StorePaths
from figrl.store.lock import process_name

ENDED = ("done", "failed", "cancelled")
KEPT_JOBS = 50


class CancelledError(FigrlError):
    """The job was cancelled."""


def jobs_folder(paths: StorePaths) -> Path:
    """Folder of all submitted jobs."""
    return paths.root / "jobs"


def new_job(paths: StorePaths, job: str, params: dict[str, Any], scheduler: str) -> Path:
    """Create the folder of a job that is about to be submitted; delete those of old jobs."""
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    folder = jobs_folder(paths) / name
    facts = {"id": name, "job": job, "params": params, "scheduler": scheduler}
    write_json(folder / "job.json", {**facts, "submitted": time.time()})
    write_json(folder / "state.json", {"state": "waiting", "attempts": 0, "beat": time.time()})
    for old in list_prefix(jobs_folder(paths))[:-KEPT_JOBS]:
        if read_state(old).get("state") in ENDED:
            delete(old)
    return folder


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
            found.append({**facts, **state, "silent_seconds": round(max(silent, 0.0), 1)})
    return found


def ask_to_cancel(paths: StorePaths, name: str) -> Path:
    """Ask a job to end, which it does before its next block; return its folder."""
    folder = jobs_folder(paths) / name
    if not exists(folder / "job.json"):
        known = ", ".join(path.name for path in list_prefix(jobs_folder(paths))[-5:])
        raise BadInputError(
            f"There is no job '{name}' in {paths.root}. The last ones: {known or 'none'}."
        )
    if read_state(folder).get("state") not in ENDED:
        write_text(folder / "cancel", "figrl cancel\n")
    return folder


class SubmittedMonitor(Silent):
    """Writes the state of a job, and raises CancelledError when the job was cancelled."""

    def __init__(self, folder: Path, attempts: int) -> None:
        self._folder = folder
        self._facts: dict[str, Any] = {
            "state": "running",
            "attempts": attempts,
            "worker": process_name(),
            "started": time.time(),
        }
        self._lock = threading.Lock()
        self.write_state()

    def write_state(self, **facts: Any) -> None:
        """Add facts to the state, and write it with a fresh heartbeat."""
        with self._lock:
            self._facts.update(facts)
            write_json(self._folder / "state.json", {**self._facts, "beat": time.time()})

    def check_cancelled(self) -> None:
        """Raise CancelledError if the job was cancelled."""
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
def submitted_state(folder: Path) -> Iterator[SubmittedMonitor]:
    """Keep the state of a job up to date while it runs, and write how it ended.

    FigrlError ends the job; other exceptions propagate so that Dask retries. So does a FigrlError
    without an exit code of its own, such as a lost cluster.
    """
    attempts = int(read_state(folder).get("attempts", 0)) + 1
    monitor = SubmittedMonitor(folder, attempts)
    outcome: dict[str, Any] = {"state": "done", "exit_code": 0}
    try:
        with heartbeat(monitor.write_state):
            monitor.check_cancelled()
            yield monitor
    except CancelledError as error:
        outcome = {"state": "cancelled", "exit_code": 1, "error": error.message}
    except FigrlError as error:
        outcome = {"state": "failed", "exit_code": error.exit_code, "error": error.message}
        if error.exit_code == FigrlError.exit_code:
            raise
    except BaseException as error:
        outcome = {"state": "failed", "exit_code": 1, "error": f"{type(error).__name__}: {error}"}
        raise
    finally:
        monitor.write_state(**outcome, ended=time.time())
