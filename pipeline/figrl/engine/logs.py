"""Structured logs: one line of JSON for each event of a job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figrl.engine.stage import Monitor, StageResult
from figrl.store.files import append_line, delete, get, list_prefix, put
from figrl.store.layout import StorePaths
from figrl.store.lock import process_name
from figrl.store.reserve import tell

KEPT_LOGS = 60
_PROGRESS_SECONDS = 10.0


class JobLog:
    """The log of one job: a monitor that logs stages and forwards them to another monitor."""

    def __init__(self, path: Path, forward: Monitor) -> None:
        self.path, self._forward = path, forward
        self._last_progress = 0.0

    def event(self, name: str, **facts: Any) -> None:
        """Append an event."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        level = "error" if name == "failed" else "info"
        append_line(self.path, json.dumps({"time": now, "level": level, "event": name, **facts}))

    def copy_to(self, folder: Path) -> None:
        """Copy the log into the folder of a run."""
        with suppress(OSError):
            put(folder / "log.jsonl", get(self.path))

    def planned(self, stages: Sequence[tuple[str, float]]) -> None:
        """Forward what a plan predicts."""
        self._forward.planned(stages)

    def started(self, result: StageResult) -> None:
        """Log that a stage begins."""
        self._last_progress = time.monotonic()
        self.event("stage started", stage=result.name, blocks=result.blocks, reused=result.reused)
        self._forward.started(result)

    def advanced(self, result: StageResult) -> None:
        """Log the progress, now and then."""
        if time.monotonic() - self._last_progress > _PROGRESS_SECONDS:
            self._last_progress = time.monotonic()
            done = len(result.stats)
            self.event("stage", stage=result.name, done=done, blocks=result.blocks)
        self._forward.advanced(result)

    def finished(self, result: StageResult) -> None:
        """Log the statistics of a stage."""
        facts = {key: value for key, value in result.describe().items() if key != "name"}
        self.event("stage finished", stage=result.name, **facts)
        self._forward.finished(result)

    def note(self, text: str) -> None:
        """Log a message to the user."""
        self.event("note", text=text)
        self._forward.note(text)


@contextmanager
def logging_to(paths: StorePaths, job: str, forward: Monitor) -> Iterator[JobLog]:
    """Log a job into the store, which keeps the last `KEPT_LOGS` logs."""
    folder = paths.root / "logs"
    process = process_name().replace(":", "-")
    log = JobLog(folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{job}-{process}.jsonl", forward)
    tell(paths.root, lambda: log.event("started", job=job, process=process_name()))
    yield log
    for old in list_prefix(folder, "*-*.jsonl")[:-KEPT_LOGS]:
        delete(old)
