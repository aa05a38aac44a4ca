"""What jobs did to a store: one line for each that ended, in ``logs/jobs.jsonl``.

Every job that writes to a store holds its lock, so that is where it is recorded. A job that was
killed cannot tell: it is known by the owner that it left beside the lock, and the next job that
takes the lock records it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psutil

from figrl.errors import CancelledError, FigrlError, GateError, StoreInUseError, system_error
from figrl.store.files import append_record, exists, get, put, read_records
from figrl.store.lock import DEAD_AFTER_SECONDS, Lock, locked, owner_of
from figrl.store.reserve import keep_reserve, tell

OwnerState = Literal["alive", "dead", "silent"]
BadResult = Literal["refused", "failed", "interrupted", "cancelled"]

KEPT_RECORDS = 500
_INTERRUPTED_CODE = 130
_CLOCK_SECONDS = 60.0
"""By which the clock may have been set since a process began."""


@contextmanager
def recorded_lock(root: Path, job: str) -> Iterator[Lock]:
    """Hold the lock of a store, and record how the job ends.

    Facts that the job notes of the lock (``run``, ``result``, ``report``, ``log``) are recorded.
    """
    started = round(time.time(), 3)
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(root, job))
        except (StoreInUseError, OSError) as error:
            record_failure(root, job, error, started=started)
            raise
        if lock.killed is not None and not _is_told(lock.killed, read_records(_path(root))[0]):
            record_job(root, _killed(lock.killed))
        _shorten(_path(root))
        keep_reserve(root)
        try:
            yield lock
        except BaseException as error:
            record_failure(root, job, error, started=lock.since, **lock.facts)
            raise
        facts = {"result": "done", "reason": None, "exit_code": 0, **lock.facts}
        times = {"started": lock.since, "ended": round(time.time(), 3)}
        record_job(root, {"job": job, **times, **facts})


def record_failure(
    root: Path, job: str, error: BaseException, *, started: float | None = None, **facts: Any
) -> None:
    """Record a job that ended with an error."""
    now = round(time.time(), 3)
    told = {"job": job, "started": started or now, "ended": now, **facts}
    ending = {
        "result": result_of(error),
        "reason": reason_of(error),
        "exit_code": exit_code_of(error),
    }
    record_job(root, {**told, **ending})


def result_of(error: BaseException) -> BadResult:
    """What a job that ends with an error is said to have come to."""
    if isinstance(error, CancelledError):
        return "cancelled"
    if isinstance(error, GateError):
        return "refused"
    return "failed" if isinstance(error, Exception) else "interrupted"


def exit_code_of(error: BaseException) -> int:
    """The exit code of a job that ends with an error."""
    if not isinstance(error, Exception):
        return _INTERRUPTED_CODE
    known = error if isinstance(error, FigrlError) else system_error(error)
    return FigrlError.exit_code if known is None else known.exit_code


def reason_of(error: BaseException) -> str:
    """Why a job ended, in the words of the command."""
    known = error if isinstance(error, FigrlError) else system_error(error)
    return known.message if known else f"{type(error).__name__}: {error}".rstrip(": ")


def record_job(root: Path, facts: dict[str, Any]) -> None:
    """Append a job to those that ended; what the job did counts more than this line."""
    with suppress(OSError, FigrlError):
        tell(root, lambda: append_record(_path(root), facts))


def _shorten(path: Path) -> None:
    """Forget the oldest records, now and then; a line that is added meanwhile may be lost."""
    with suppress(OSError):
        lines = get(path).splitlines(keepends=True) if exists(path) else []
        if len(lines) > 2 * KEPT_RECORDS:
            put(path, b"".join(lines[-KEPT_RECORDS:]))


def last_jobs(root: Path, count: int) -> list[dict[str, Any]]:
    """The last jobs of a store, oldest first; last the one that runs, or was killed."""
    # In this order: a job that ends in between is told of twice, and that can be seen.
    owner = current_owner(root)
    ended, _ = read_records(_path(root))
    if owner is not None and not _is_told(owner, ended):
        state = owner["state"]
        now = {**_killed(owner), "result": "running", "ended": None, "reason": None}
        ended.append(now if state == "alive" else _killed(owner, certain=state == "dead"))
    return ended[-count:]


def current_owner(root: Path) -> dict[str, Any] | None:
    """Owner of a store's lock with its ``state``, an `OwnerState`; None if nobody has it."""
    while (owner := owner_of(root)) is not None:
        state = owner_state(owner)
        # A job removes its name before its process ends.
        if state == "alive" or owner_of(root) == owner:
            return {**owner, "state": state}
    return None


def _is_told(owner: dict[str, Any], ended: list[dict[str, Any]]) -> bool:
    """Whether an owner recorded its end, and was killed before it released the lock."""
    known = owner["purpose"], owner["since"]
    return known in ((job.get("job"), job.get("started")) for job in ended)


def owner_state(owner: dict[str, Any]) -> OwnerState:
    """Whether the process that owns a lock lives; one on another machine may only be silent."""
    host, _, number = owner["process"].rpartition(":")
    if host == os.uname().nodename and number.isdigit():
        return "alive" if _process_lives(int(number), owner.get("since")) else "dead"
    silent = time.time() - owner["beat"]
    return "silent" if silent > DEAD_AFTER_SECONDS else "alive"


def _process_lives(number: int, since: float | None) -> bool:
    """Whether a process lives that began before it took the lock; others may get its number."""
    try:
        process = psutil.Process(number)
        later = since is not None and process.create_time() > since + _CLOCK_SECONDS
        return process.status() != psutil.STATUS_ZOMBIE and not later
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _killed(owner: dict[str, Any], *, certain: bool = True) -> dict[str, Any]:
    """A job that ended without a word, told by the owner that it left."""
    what = "was killed" if certain else "is silent, and most likely was killed"
    reason = (
        f"Process {owner['process']} {what}. Finished blocks are kept: run the same command again."
    )
    times = {"started": owner["since"], "ended": owner["beat"]}
    job = {"job": owner["purpose"], **times, **owner["facts"]}
    return {**job, "result": "killed", "reason": reason, "exit_code": None}


def _path(root: Path) -> Path:
    return root / "logs" / "jobs.jsonl"
