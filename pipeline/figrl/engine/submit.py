"""Blocks on the workers of a Dask cluster: the one module that waits for what it submitted.

No wait is without a limit: for workers that are gone, for blocks that an attempt left behind, and
for tasks that the scheduler has lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from figrl.engine import worker
from figrl.engine.block import Outcome, execute_block
from figrl.engine.stage import Block, Stage
from figrl.errors import FigrlError, ResourceError
from figrl.units import human_seconds

_WINDOW_PER_THREAD = 3
_WINDOW_REFRESH_SECONDS = 2.0
_POLL_SECONDS = 0.1

# No wait is without a limit. A block may take as long as it takes, while there is a worker.
_NO_WORKER_SECONDS = 1800.0
_LEFT_BLOCKS_SECONDS = 1800.0
_QUIET_SECONDS = 60.0
"""Without a finished block, after which workers are asked whether they are at one."""


def completed(
    client: distributed.Client, stage: Stage, blocks: Sequence[Block], marks: Sequence[Path | None]
) -> Generator[Outcome, None, None]:
    """Submit blocks through a window and yield what each of them returned.

    When it raises an error, no block is at work any more, so that the caller may begin again.
    """
    left = {block.key: (block, mark) for block, mark in zip(blocks, marks, strict=True)}
    while left:
        # Once, unless the scheduler loses tasks: then again with those that are left.
        for outcome in _attempt(client, stage, list(left.values())):
            del left[outcome[0]]
            yield outcome


def _attempt(
    client: distributed.Client, stage: Stage, blocks: Sequence[tuple[Block, Path | None]]
) -> Generator[Outcome, None, None]:
    """Do blocks until all are done, or until idle workers have heard of none of those left."""
    attempt = uuid.uuid4().hex[:8]
    waiting = iter(blocks)
    running = distributed.as_completed(loop=client.loop)
    threads = _Threads(client, f"during stage '{stage.name}'")
    lost = _LostTasks(client, attempt)
    try:
        while True:
            window = max(4, _WINDOW_PER_THREAD * threads.count())
            if stage.cost.whole_worker:
                # A second one would wait in its worker while others have none.
                window = max(1, threads.workers)
            while running.count() < window and (pair := next(waiting, None)) is not None:
                block, mark = pair
                task = (stage.function, block.args, block.key, mark, attempt)
                key = f"{stage.key}-{block.key}-{attempt}"
                running.add(client.submit(execute_block, *task, key=key))
            if running.is_empty():
                return
            lost.heard_of_one()
            while not running.has_ready() and not running.is_empty():
                threads.count()
                if lost.are_there():
                    client.cancel(list(running.futures))
                    wait_for_none(client, worker.abandon_attempt, attempt)
                    return
                with running.thread_condition:
                    if not running.has_ready():
                        running.thread_condition.wait(_POLL_SECONDS)
            yield outcome_of(next(running), stage.name)
    except Exception:
        # Dask cancels a task that waits, but not one that runs.
        client.cancel(list(running.futures))
        wait_for_none(client, worker.abandon_attempt, attempt)
        raise
    finally:
        client.cancel(list(running.futures))


class _LostTasks:
    """Whether tasks are lost: nothing comes, no worker is at a block, and one is idle.

    A scheduler forgets a task now and then, such as when work is stolen from a worker that has just
    finished it, and a client would wait for it for ever.
    """

    def __init__(self, client: distributed.Client, attempt: str) -> None:
        self._client, self._attempt = client, attempt
        self._asked = time.monotonic()
        self._suspected = False

    def heard_of_one(self) -> None:
        """Begin to wait anew."""
        self._asked, self._suspected = time.monotonic(), False

    def are_there(self) -> bool:
        """Ask the workers, once it has been quiet for long; believe them the second time."""
        if time.monotonic() - self._asked < _QUIET_SECONDS:
            return False
        with cluster_there("while blocks were waited for"):
            states = self._client.run(worker.work_of_attempt, self._attempt, on_error="ignore")
        before, self._asked = self._suspected, time.monotonic()
        at_work = any(blocks for blocks, _ in states.values())
        self._suspected = not at_work and any(idle for _, idle in states.values())
        return before and self._suspected


class _Threads:
    """Threads of all workers, asked for every few seconds; an error if there are none for long."""

    def __init__(self, client: distributed.Client, when: str) -> None:
        self._client, self._when = client, when
        self._threads, self._asked = 0, float("-inf")
        self.workers = 0
        self._last_seen = time.monotonic()

    def count(self) -> int:
        """Threads that there were a moment ago."""
        now = time.monotonic()
        if now - self._asked > _WINDOW_REFRESH_SECONDS:
            with cluster_there(self._when):
                found = self._client.nthreads()
            self._threads, self.workers = sum(found.values()), len(found)
            self._asked = time.monotonic()
            if self._threads:
                self._last_seen = self._asked
            elif now - self._last_seen > _NO_WORKER_SECONDS:
                raise ResourceError(
                    f"The Dask cluster had no worker for {human_seconds(_NO_WORKER_SECONDS)} "
                    f"{self._when}. Start some; finished blocks are kept, so run the same command "
                    "again to go on."
                )
        return self._threads


def wait_for_none(
    client: distributed.Client, count: Callable[..., int], of_what: str | Path
) -> None:
    """Wait until `count`, asked on every worker, is zero; a cluster that is gone has none."""
    deadline = time.monotonic() + _LEFT_BLOCKS_SECONDS
    with suppress(OSError):
        while client.status == "running" and any(
            client.run(count, of_what, on_error="ignore").values()
        ):
            if time.monotonic() > deadline:
                raise FigrlError(
                    "Workers are still at blocks of an attempt that ended "
                    f"{human_seconds(_LEFT_BLOCKS_SECONDS)} ago. Restart them, and run the same "
                    "command again; finished blocks are kept."
                )
            time.sleep(_POLL_SECONDS)


def outcome_of(future: distributed.Future[Any], stage_name: str) -> Any:
    """What a task returned, or its error with advice; the future is released."""
    try:
        return future.result()
    except KilledWorker as error:
        raise ResourceError(
            f"A block of stage '{stage_name}' was on a worker that died, several times over "
            f"({error}). Most likely the machine ran out of memory: lower --memory-limit, so that "
            "smaller tiles are used, or give the workers fewer threads. Finished blocks are kept; "
            "run the same command again to go on."
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise _cluster_lost(f"during stage '{stage_name}'", error) from error
    finally:
        # A client keeps the error of a future, an error its traceback, and that all that callers
        # have open: with a run that is read, the lease that keeps it from being deleted.
        future.release()


@contextmanager
def cluster_there(when: str) -> Iterator[None]:
    """Turn the error of a scheduler that does not answer into one with advice."""
    try:
        yield
    except OSError as error:
        raise _cluster_lost(when, error) from error


def _cluster_lost(when: str, error: BaseException) -> FigrlError:
    reason = " ".join(str(error).split()).rstrip(".")
    return FigrlError(
        f"The Dask cluster went away {when} ({reason}). Finished blocks are "
        "kept; run the same command again to go on."
    )
