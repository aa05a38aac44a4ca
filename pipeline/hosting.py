"""Jobs whose driver runs on the cluster: what they leave in the store, for all to see.

    STORE/jobs/ID/   job.json, state.json, log.jsonl, report.json, and cancel if it is to end

Whoever submitted a job may leave. If the worker that hosts its driver dies, Dask gives the task to
another one, and the job goes on from its marks like one that was started again.
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

from pipeline.errors import BadInputError, FigrlError
from pipeline.files import read_json, remove, write_json, write_text
from pipeline.job import Silent, StageResult
from pipeline.lock import BEAT_SECONDS
from pipeline.logs import JobLog
from pipeline.measure import process_name
from pipeline.store import StorePaths

ENDED = ("done", "failed", "cancelled")
KEPT_JOBS = 50


class CancelledError(FigrlError):
    """Somebody asked for the job to end."""


def jobs_folder(paths: StorePaths) -> Path:
    """Where submitted jobs are kept."""
    return paths.root / "jobs"


def new_job(paths: StorePaths, job: str, params: dict[str, Any], scheduler: str) -> Path:
    """Make the folder of a job that is about to be submitted."""
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    folder = jobs_folder(paths) / name
    facts = {"id": name, "job": job, "params": params, "scheduler": scheduler}
    write_json(folder / "job.json", {**facts, "submitted": time.time()})
    write_json(folder / "state.json", {"state": "waiting", "attempts": 0, "beat": time.time()})
    for old in sorted(jobs_folder(paths).glob("*"))[:-KEPT_JOBS]:
        if read_state(old).get("state") in ENDED:
            remove(old)
    return folder


def read_state(folder: Path) -> dict[str, Any]:
    """What is known of a job."""
    try:
        state: dict[str, Any] = read_json(folder / "state.json")
    except (OSError, ValueError):
        return {}
    return state


def list_jobs(paths: StorePaths) -> list[dict[str, Any]]:
    """All jobs that were submitted, oldest first."""
    found = []
    for folder in sorted(jobs_folder(paths).glob("*")):
        with suppress(OSError, ValueError):
            facts = read_json(folder / "job.json")
            state = read_state(folder)
            silent = time.time() - state.get("beat", time.time())
            found.append({**facts, **state, "silent_seconds": round(max(silent, 0.0), 1)})
    return found


def ask_to_cancel(paths: StorePaths, name: str) -> Path:
    """Ask a job to end; it does so before its next block."""
    folder = jobs_folder(paths) / name
    if not (folder / "job.json").exists():
        known = ", ".join(path.name for path in sorted(jobs_folder(paths).glob("*"))[-5:])
        raise BadInputError(
            f"There is no job '{name}' in {paths.root}. The last ones: {known or 'none'}."
        )
    if read_state(folder).get("state") not in ENDED:
        write_text(folder / "cancel", "figrl cancel\n")
    return folder


class HostedMonitor(Silent):
    """Writes the state of a job down, and ends it when somebody asks for that."""

    def __init__(self, folder: Path, attempts: int) -> None:
        self._folder = folder
        self._facts: dict[str, Any] = {
            "state": "running",
            "attempts": attempts,
            "worker": process_name(),
            "started": time.time(),
        }
        self._lock = threading.Lock()
        self.tell()

    def tell(self, **facts: Any) -> None:
        """Write the state."""
        with self._lock:
            self._facts.update(facts)
            write_json(self._folder / "state.json", {**self._facts, "beat": time.time()})

    def check(self) -> None:
        """End the job if that was asked for."""
        if (self._folder / "cancel").exists():
            raise CancelledError("The job was cancelled. Finished blocks are kept.")

    def started(self, result: StageResult) -> None:
        """Tell of a stage."""
        self.check()
        self.tell(stage=result.name, done=result.reused, blocks=result.blocks)

    def advanced(self, result: StageResult) -> None:
        """Tell of a block."""
        self.check()
        self._facts.update(done=len(result.stats))

    def finished(self, result: StageResult) -> None:
        """Tell that a stage is complete."""
        self.tell(done=result.blocks)


@contextmanager
def hosted_state(folder: Path) -> Iterator[HostedMonitor]:
    """Keep the state of a job up to date while it runs, and tell how it ended.

    An error of figrl is how a job ends; any other one goes on to Dask, which tries again.
    """
    attempts = int(read_state(folder).get("attempts", 0)) + 1
    monitor = HostedMonitor(folder, attempts)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(OSError):
                monitor.tell()

    thread = threading.Thread(target=beat, name="figrl-job-heartbeat", daemon=True)
    thread.start()
    outcome: dict[str, Any] = {"state": "done", "exit_code": 0}
    try:
        monitor.check()
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
        ended.set()
        thread.join()
        monitor.tell(**outcome, ended=time.time())


@contextmanager
def hosted_log(folder: Path, monitor: HostedMonitor) -> Iterator[JobLog]:
    """The log of a job, which every attempt goes on with."""
    with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        log = JobLog(folder / "log.jsonl", file, monitor)
        log.event("started", process=process_name())
        yield log
