"""The lock of a store: one job writes at a time, known by its purpose, process and heartbeat.

The lock is an advisory lock of the operating system, so it is released when its process ends, in
whatever way. The owner's name and heartbeat are written beside it: for people, and for file systems
on which one machine does not see the locks of another. A file system without locks is refused:
nothing there would keep two jobs that start at the same moment from writing both.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from figrl.errors import ConfigError, StoreInUseError
from figrl.store.files import delete, read_json, write_json
from figrl.store.heartbeat import heartbeat
from figrl.store.reserve import tell
from figrl.units import human_seconds

DEAD_AFTER_SECONDS = 60.0
"""Silence after which a job on another machine, whose lock is free, is considered dead."""

_POLL_SECONDS = 0.5

_OWNER: dict[str, Any] = {
    "purpose": str,
    "process": str,
    "token": str,
    "since": int | float,
    "beat": int | float,
}


def process_name() -> str:
    """Host and process id: a name that is unique across machines."""
    return f"{os.uname().nodename}:{os.getpid()}"


def try_lock(file: IO[Any], *, shared: bool = False) -> bool:
    """Take an advisory lock; False if somebody else has it.

    Raises `ConfigError` if the file system has no locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigError(
            f"{file.name}: this file system cannot lock files ({error.strerror}), so two jobs "
            "could write to the store at once. Put the store on one that can: a local disk, NFS "
            "with its lock service, or Lustre mounted with the option flock."
        ) from error
    return True


@dataclass(frozen=True)
class Lock:
    """A lock that is held."""

    owner: Path
    token: str
    since: float
    killed: dict[str, Any] | None = None
    """The job that held it before, and did not release it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the job tells of itself: its run, result, report and log."""

    def note(self, **facts: Any) -> None:
        """Tell more of the job, beside the lock: if it is killed, that is all that is known."""
        self.facts.update(facts)
        found = _read_owner(self.owner)
        if found is not None and self._is_owner(found):
            # The next heartbeat writes it too.
            with suppress(OSError):
                write_json(self.owner, {**found, "facts": self.facts})

    def check(self) -> None:
        """Raise StoreInUseError if another job took over, as after a long suspension."""
        found = _read_owner(self.owner)
        if not self._is_owner(found):
            raise StoreInUseError(
                f"The store was taken over by {describe_owner(found)}, because this job's "
                "heartbeat stopped. Run the same command again when that job has ended."
            )

    def release(self) -> None:
        """Remove the owner, unless another job took over."""
        if self._is_owner(_read_owner(self.owner)):
            delete(self.owner)

    def _is_owner(self, found: dict[str, Any] | None) -> bool:
        return found is not None and found.get("token") == self.token


@contextmanager
def locked(root: Path, purpose: str) -> Iterator[Lock]:
    """Hold the lock of a store.

    Raises `StoreInUseError` if another job holds it.
    """
    root.mkdir(parents=True, exist_ok=True)
    owner = root / ".owner.json"
    with (root / ".lock").open("a", encoding="utf-8") as file:
        refused = not try_lock(file)
        found = _read_owner(owner)
        if refused or (found is not None and _lives_elsewhere(owner, found)):
            raise StoreInUseError(
                f"The store {root} is in use by {describe_owner(found)}. Wait until that job has "
                "ended, or end it, and try again."
            )
        # While it was waited for, a job on another machine may have ended well.
        now = round(time.time(), 3)
        lock = Lock(owner, uuid.uuid4().hex, now, killed=_read_owner(owner))
        facts = {"purpose": purpose, "process": process_name(), "token": lock.token, "since": now}

        def beat() -> None:
            found = _read_owner(owner)
            if found is None or found.get("token") == lock.token:
                told = {"facts": dict(lock.facts), "beat": round(time.time(), 3)}
                write_json(owner, {**facts, **told})

        tell(root, lambda: write_json(owner, {**facts, "beat": now}))
        try:
            with heartbeat(beat):
                lock.check()
                yield lock
        finally:
            lock.release()


def _lives_elsewhere(path: Path, owner: dict[str, Any]) -> bool:
    """Whether a job on another machine has the lock, though the operating system gave it to us.

    Most likely that job is dead: wait for a heartbeat, or for enough silence. Clocks are not
    compared, because those of two machines differ.
    """
    if owner["process"].rpartition(":")[0] == os.uname().nodename:
        return False
    deadline = time.monotonic() + DEAD_AFTER_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found = _read_owner(path)
        if found is None:
            return False
        if found != owner:
            return True
    return False


def _read_owner(path: Path) -> dict[str, Any] | None:
    """What is said of the owner; None if nothing is, or nothing that can be understood."""
    with suppress(OSError, ValueError):
        found = read_json(path)
        if isinstance(found, dict) and all(
            isinstance(found.get(name), kind) for name, kind in _OWNER.items()
        ):
            facts = found.get("facts")
            return {**found, "facts": facts if isinstance(facts, dict) else {}}
    return None


def owner_of(root: Path) -> dict[str, Any] | None:
    """Owner of a store's lock: a job that holds it, or one that was killed."""
    return _read_owner(root / ".owner.json")


def describe_owner(owner: dict[str, Any] | None) -> str:
    """Purpose, process and heartbeat of an owner, for people."""
    if owner is None:
        return "another job"
    running = human_seconds(max(time.time() - owner["since"], 0.0))
    silent = human_seconds(max(time.time() - owner["beat"], 0.0))
    return (
        f"'{owner['purpose']}' (process {owner['process']}, running for {running}, "
        f"last heartbeat {silent} ago)"
    )
