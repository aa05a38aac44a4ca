"""Structured logs: a line of JSON for everything that happens in a job."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pipeline.job import Monitor, StageResult
from pipeline.measure import process_name
from pipeline.store import StorePaths

KEPT_LOGS = 60
_EVERY_SECONDS = 10.0


class JobLog:
    """The log of one job."""

    def __init__(self, path: Path, file: TextIO, watched: Monitor) -> None:
        self.path = path
        self._file = file
        self.monitor: Monitor = _LoggingMonitor(self, watched)

    def event(self, name: str, **facts: Any) -> None:
        """Write one line."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        level = "error" if name == "failed" else "info"
        self._file.write(json.dumps({"time": now, "level": level, "event": name, **facts}) + "\n")
        self._file.flush()

    def keep_in(self, folder: Path) -> None:
        """Put a copy beside the result."""
        with suppress(OSError):
            shutil.copyfile(self.path, folder / "log.jsonl")


class _LoggingMonitor:
    """Tells the log and another monitor."""

    def __init__(self, log: JobLog, watched: Monitor) -> None:
        self._log, self._watched = log, watched
        self._told = 0.0

    def started(self, result: StageResult) -> None:
        self._told = time.monotonic()
        self._log.event(
            "stage started", stage=result.name, blocks=result.blocks, reused=result.reused
        )
        self._watched.started(result)

    def advanced(self, result: StageResult) -> None:
        if time.monotonic() - self._told > _EVERY_SECONDS:
            self._told = time.monotonic()
            done = len(result.stats)
            self._log.event("stage", stage=result.name, done=done, blocks=result.blocks)
        self._watched.advanced(result)

    def finished(self, result: StageResult) -> None:
        facts = {key: value for key, value in result.describe().items() if key != "name"}
        self._log.event("stage finished", stage=result.name, **facts)
        self._watched.finished(result)

    def note(self, text: str) -> None:
        self._log.event("note", text=text)
        self._watched.note(text)


@contextmanager
def logging_to(paths: StorePaths, job: str, watched: Monitor) -> Iterator[JobLog]:
    """Log a job into the store; a monitor that watches hears of everything too."""
    folder = paths.root / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    process = process_name().replace(":", "-")
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{job}-{process}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        log = JobLog(path, file, watched)
        log.event("started", job=job, process=process_name())
        yield log
    for old in sorted(folder.glob("*.jsonl"))[:-KEPT_LOGS]:
        old.unlink(missing_ok=True)
