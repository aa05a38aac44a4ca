"""The last attempt to publish a run: which job made it, what came of it, and why.

The published run tells how well things went once; the last attempt tells how they go now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from figrl.errors import FigrlError
from figrl.serve.publish import history, record
from figrl.store import files
from figrl.store.jobs import BadResult, exit_code_of, reason_of, result_of
from figrl.store.layout import StorePaths
from figrl.store.reserve import tell

Result = Literal["published", "nothing to do", "withdrawn", "running"] | BadResult


@dataclass
class Attempt:
    """An attempt that is being made, in a store that its job has locked."""

    paths: StorePaths
    job: str
    started: float = field(default_factory=lambda: round(time.time(), 3))
    facts: dict[str, Any] = field(default_factory=dict)
    result: Result = "published"
    reason: str | None = None
    """What it comes to if no error ends it, and why."""

    def note(self, **facts: Any) -> None:
        """Add facts: the ``run``, its ``gates``."""
        self.facts |= facts
        self.write("running")

    def write(
        self, result: Result, reason: str | None = None, exit_code: int | None = None
    ) -> None:
        """Replace what is known of the last attempt."""
        ended = None if result == "running" else round(time.time(), 3)
        facts = {"job": self.job, "started": self.started, "ended": ended, "result": result}
        told = {"run": None, "gates": [], **self.facts, "reason": reason, "exit_code": exit_code}
        whole = {**facts, **told}
        tell(self.paths.root, lambda: files.write_record(self.paths.root / "attempt.json", whole))

    def end_badly(self, error: BaseException) -> None:
        """Tell of an error; in the history too, once for all attempts that end alike."""
        result, reason = result_of(error), reason_of(error)
        self.write(result, reason, exit_code_of(error))
        if result == "failed":
            event = {"run": self.facts.get("run"), "job": self.job, "reason": reason}
            last = (history(self.paths) or [{}])[-1]
            if any(last.get(key) != value for key, value in {**event, "action": result}.items()):
                record(self.paths, "failed", **event)


@contextmanager
def attempt(paths: StorePaths, job: str) -> Iterator[Attempt]:
    """Make an attempt to publish in a locked store; how it ends is kept in the store."""
    made = Attempt(paths, job)
    made.write("running")
    try:
        yield made
    except BaseException as error:
        # The error itself is what the user has to see, also on a full disk.
        with suppress(OSError, FigrlError):
            made.end_badly(error)
        raise
    made.write(made.result, made.reason, exit_code=0)


def last_attempt(paths: StorePaths) -> dict[str, Any] | None:
    """The last attempt to publish; None if there was none."""
    path = paths.root / "attempt.json"
    return files.read_record(path) if files.exists(path) else None


def attempt_by_history(paths: StorePaths) -> None:
    """Write what the history tells of the last attempt, where its own record is damaged."""
    events = history(paths, "published", "refused", "failed")
    files.delete(paths.root / "attempt.json")
    if events:
        last = events[-1]
        facts = {name: last.get(name) for name in ("run", "reason")}
        # Older versions did not write which job it was.
        told = {"job": last.get("job") or last.get("by") or "unknown job", "result": last["action"]}
        when = {"started": last["time"], "ended": last["time"]}
        unknown: dict[str, Any] = {"gates": [], "exit_code": None}
        files.write_record(paths.root / "attempt.json", {**facts, **told, **when, **unknown})
