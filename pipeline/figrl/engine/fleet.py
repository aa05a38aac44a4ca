"""The workers of a cluster, looked at as they come: those that are fit get blocks of a job.

A worker is fit if it runs the same code with the same libraries, reads and writes the files of the
job, and has the memory and the threads that the plan counts on. Others are left out, and named
once.
"""

from __future__ import annotations

import hashlib
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import distributed

from figrl.engine import worker
from figrl.engine.capacity import ClusterMemory, offer
from figrl.errors import ConfigError, FigrlError, ResourceError
from figrl.store.files import delete, read_json, write_json
from figrl.units import human_bytes, human_seconds

_REFRESH_SECONDS = 2.0
_NO_WORKER_SECONDS = 1800.0
_MISSING_MODULE = re.compile(r"No module named '([^']+)'")
"""In an error that Dask may have turned into one of another kind."""

_LIBRARIES = ("numpy", "scipy", "numba")


def _code() -> str:
    """Digest of the code of this package."""
    folder, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _facts() -> dict[str, str]:
    """What this process runs: read once, so a version that is installed later does not count."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in _LIBRARIES},
        "figrl": version("figrl"),
        "code of figrl": _code(),
    }


@dataclass(frozen=True)
class Needs:
    """What a worker has to run, to see and to have; `secret` is what a file `beacon` holds."""

    facts: dict[str, str]
    secret: str
    beacon: Path | None
    planned: ClusterMemory | None


def look_at_worker(needs: Needs, dask_worker: distributed.Worker) -> tuple[str, Path | None]:
    """Why this worker is not fit, or nothing; and the file that it left in answer."""
    for name, wanted in needs.facts.items():
        if _facts().get(name) != wanted:
            has = f"{name} {_facts().get(name)}, where this job has {wanted}"
            return f"it has {has}: install the same versions there, and start it again", None
    if needs.planned is not None and (reason := _short_of(needs.planned, dask_worker)):
        return reason, None
    answer = None
    if needs.beacon is not None:
        folder = needs.beacon.parent
        try:
            if read_json(needs.beacon) != needs.secret:
                return f"it sees other files in {folder}", None
            answer = needs.beacon.with_name(f"answer-{secrets.token_hex(8)}")
            write_json(answer, needs.secret)
        except OSError as error:
            reason = error.strerror or str(error)
            return f"it cannot read and write {folder} ({reason}): mount it there too", None
    return "", answer


def _short_of(planned: ClusterMemory, dask_worker: distributed.Worker) -> str:
    """What a worker lacks of what the plan counts on: each thread has buffers of its own."""
    threads, memory = offer(dask_worker)
    if memory < planned.limit_bytes:
        plan = human_bytes(planned.limit_bytes)
        return f"it has {human_bytes(memory)} of memory, and the plan counts on {plan}"
    if threads > planned.threads:
        return f"it has {threads} threads, and the plan counts on no more than {planned.threads}"
    return ""


class Fleet:
    """Workers that may have blocks of a job, whose files lie in `folder`.

    `told`: gets a sentence for each worker that is left out. The workers are asked for every few
    seconds; an error if there are none for long.
    """

    def __init__(
        self,
        client: distributed.Client,
        folder: Path | None = None,
        told: Callable[[str], None] = lambda _: None,
        planned: ClusterMemory | None = None,
    ) -> None:
        self.client, self._told = client, told
        self.secret = secrets.token_hex(8)
        self._folder, self._planned = folder, planned
        self.fit: dict[str, int] = {}
        self.unfit: dict[str, str] = {}
        self._asked = float("-inf")
        self._last_seen = time.monotonic()

    @property
    def threads(self) -> int:
        """Threads of all workers that are fit."""
        return sum(self.fit.values())

    @property
    def only(self) -> list[str] | None:
        """Workers to which tasks are restricted; None if all there are will do."""
        return list(self.fit) if self.unfit else None

    def look_again(self, address: str = "") -> None:
        """Look at all that come at once, and at a worker whose address another process took."""
        self.fit.pop(address, None)
        self._asked = float("-inf")

    def refresh(self, when: str) -> None:
        """See who is there, every few seconds."""
        if time.monotonic() - self._asked < _REFRESH_SECONDS:
            return
        with cluster_there(when):
            there = {address: int(threads) for address, threads in self.client.nthreads().items()}
        for address in self.fit.keys() - there.keys():
            self._told(f"Worker lost: {address}. What it was at goes to others.")
        self.fit = {address: there[address] for address in self.fit if address in there}
        self.unfit = {a: reason for a, reason in self.unfit.items() if a in there}
        known = self.fit.keys() | self.unfit.keys()
        if new := [address for address in there if address not in known]:
            self._look_at(new, there, when)
        self._asked = time.monotonic()
        self._check(when)

    def _check(self, when: str) -> None:
        if self.fit:
            self._last_seen = self._asked
        elif self.unfit:
            reasons = "; ".join(f"{a}: {reason}" for a, reason in sorted(self.unfit.items())[:5])
            raise ConfigError(f"No worker of the cluster can take part. {reasons}.")
        elif self._asked - self._last_seen > _NO_WORKER_SECONDS:
            raise ResourceError(
                f"The Dask cluster had no worker for {human_seconds(_NO_WORKER_SECONDS)} "
                f"{when}. Start some; finished blocks are kept, so run the same command "
                "again to go on."
            )

    def _look_at(self, addresses: list[str], threads: dict[str, int], when: str) -> None:
        with self._beacon() as beacon:
            needs = Needs(_facts(), self.secret, beacon, self._planned)
            ask = partial(self.client.run, look_at_worker, needs, on_error="return")
            with cluster_there(when):
                found = ask(workers=addresses)
            reasons = {address: self._reason(verdict) for address, verdict in found.items()}
        fit = [address for address, reason in reasons.items() if reason == ""]
        unfit = {address: reason for address, reason in reasons.items() if reason}
        with cluster_there(when):
            # Blocks wait for this on a worker that has just come.
            judge = partial(self.client.run, worker.judge, self.secret, on_error="ignore")
            for verdict, judged in (True, fit), (False, list(unfit)):
                if judged:
                    judge(fit=verdict, workers=judged)
        self.fit.update({address: threads[address] for address in fit})
        self.unfit.update(unfit)
        for address, reason in unfit.items():
            self._told(f"Worker {address} is left out: {reason}.")

    @contextmanager
    def _beacon(self) -> Iterator[Path | None]:
        if self._folder is None:
            yield None
            return
        beacon = self._folder / f"beacon-{self.secret}" / "beacon"
        try:
            write_json(beacon, self.secret)
            yield beacon
        finally:
            delete(beacon.parent)

    def _reason(self, verdict: Any) -> str | None:
        """Why a worker is not fit; None if it went away meanwhile."""
        if missing := _MISSING_MODULE.search(str(verdict)):
            return f"it has no {missing[1]}: install figrl {_facts()['figrl']} there"
        if isinstance(verdict, OSError):
            return None
        if isinstance(verdict, BaseException):
            return f"it runs other code ({type(verdict).__name__}: {verdict})"
        reason, answer = verdict
        if answer is not None:
            try:
                seen = read_json(answer) == self.secret
            except OSError:
                seen = False
            if not seen:
                return f"what it writes to {self._folder} does not arrive here"
        return str(reason)


@contextmanager
def cluster_there(when: str) -> Iterator[None]:
    """Turn the error of a scheduler that does not answer into one with advice."""
    try:
        yield
    except OSError as error:
        raise cluster_lost(when, error) from error


def cluster_lost(when: str, error: BaseException) -> FigrlError:
    """The error of a cluster that is gone."""
    reason = " ".join(str(error).split()).rstrip(".")
    return FigrlError(
        f"The Dask cluster went away {when} ({reason}). Finished blocks are "
        "kept; run the same command again to go on."
    )
