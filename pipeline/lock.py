"""Who may write to a store: one job at a time, known by name, host and heartbeat.

The lock is the operating system's, so it ends with its process, however that ends. Beside it lies
who has it, with a time that is renewed every few seconds: for people, and for file systems on which
one machine does not see the locks of another.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import StoreInUseError
from pipeline.files import read_json, remove, write_json
from pipeline.measure import human_seconds, process_name

BEAT_SECONDS = 5.0
DEAD_AFTER_SECONDS = 60.0
"""Silence after which a job on another machine, whose lock is free, is taken for dead."""


@dataclass(frozen=True)
class Lock:
    """A lock that is held."""

    owner: Path
    token: str

    def check(self) -> None:
        """Refuse to go on if another job took over: this process may have slept for long."""
        found = _read_owner(self.owner)
        if found is None or found.get("token") != self.token:
            raise StoreInUseError(
                f"The store was taken over by {_describe(found)}, because this job gave no sign "
                "of life. Run the same command again when that job has ended."
            )


@contextmanager
def locked(root: Path, purpose: str) -> Iterator[Lock]:
    """Keep other jobs from writing to a store while this one does."""
    root.mkdir(parents=True, exist_ok=True)
    owner = root / ".owner.json"
    with (root / ".lock").open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(root, _read_owner(owner)) from error
        except OSError:
            # A file system without locks: the heartbeat alone has to do.
            pass
        found = _read_owner(owner)
        if found is not None and _lives_elsewhere(owner, found):
            raise _in_use(root, found)
        lock = Lock(owner, uuid.uuid4().hex)
        with _beating(lock, purpose):
            lock.check()
            yield lock


@contextmanager
def _beating(lock: Lock, purpose: str) -> Iterator[None]:
    """Say who has the lock, again and again."""
    facts = {"purpose": purpose, "process": process_name(), "token": lock.token, "since": _now()}
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            found = _read_owner(lock.owner)
            if found is not None and found.get("token") != lock.token:
                return
            # A beat that fails is followed by others.
            with suppress(OSError):
                write_json(lock.owner, {**facts, "beat": _now()})

    write_json(lock.owner, {**facts, "beat": _now()})
    thread = threading.Thread(target=beat, name="figrl-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        found = _read_owner(lock.owner)
        if found is not None and found.get("token") == lock.token:
            remove(lock.owner)


def _now() -> float:
    return round(time.time(), 3)


def _lives_elsewhere(path: Path, owner: dict[str, Any]) -> bool:
    """Whether a job on another machine has the lock, though the operating system gave it to us.

    Most likely that job is dead: it is watched until its heart beats, or has not for long enough.
    Clocks are not compared, for those of two machines differ.
    """
    if str(owner.get("process", "")).rpartition(":")[0] == os.uname().nodename:
        return False
    deadline = time.monotonic() + DEAD_AFTER_SECONDS
    while time.monotonic() < deadline:
        time.sleep(min(BEAT_SECONDS, 0.5))
        found = _read_owner(path)
        if found is None:
            return False
        if found != owner:
            return True
    return False


def _read_owner(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = read_json(path)
        return found if isinstance(found, dict) else None
    return None


def owner_of(root: Path) -> dict[str, Any] | None:
    """Who has the lock of a store, or had it and died."""
    return _read_owner(root / ".owner.json")


def _in_use(root: Path, owner: dict[str, Any] | None) -> StoreInUseError:
    return StoreInUseError(
        f"The store {root} is in use by {_describe(owner)}. Wait until that job has ended, or end "
        "it, and try again."
    )


def _describe(owner: dict[str, Any] | None) -> str:
    try:
        if owner is None:
            return "another job"
        text = f"'{owner['purpose']}' (process {owner['process']}"
        running = human_seconds(max(time.time() - owner["since"], 0.0))
        silent = human_seconds(max(time.time() - owner["beat"], 0.0))
    except (KeyError, TypeError):
        return "another job"
    return f"{text}, running for {running}, last sign of life {silent} ago)"
