"""Blocks on the workers of a Dask cluster, a window of them at a time.

No wait is without a limit: for workers that are gone, for blocks that an attempt left behind, and
for tasks that the scheduler has lost.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.protocol.pickle import dumps
from distributed.scheduler import KilledWorker

from figrl.engine import worker
from figrl.engine.block import Outcome, UnfitWorkerError, execute_block
from figrl.engine.fleet import Fleet, cluster_lost, cluster_there
from figrl.engine.stage import Block, Cost, Stage
from figrl.errors import FigrlError, ResourceError
from figrl.units import human_seconds

_WINDOW_PER_THREAD = 3
_POLL_SECONDS = 0.1
_RETURNS = 20
"""Times that a block may come back from workers that are not fit for the job."""

# No wait is without a limit. A block may take as long as it takes, while there is a worker.
_LEFT_BLOCKS_SECONDS = 1800.0
_QUIET_SECONDS = 60.0
"""Without a finished block, after which workers are asked whether they are at one."""


Given = tuple[Block, Path | None]
"""A block and its mark."""


def window_size(workers: int, threads: int, cost: Cost) -> int:
    """Blocks of a stage that are with the scheduler at a time; `threads` are those of all."""
    if cost.whole_worker:
        # A second one would wait in its worker while others have none.
        return max(1, workers)
    return max(4, _WINDOW_PER_THREAD * threads)


def completed(
    fleet: Fleet, stage: Stage, blocks: Sequence[Block], marks: Sequence[Path | None]
) -> Generator[Outcome, None, None]:
    """Submit blocks through a window and yield what each of them returned.

    When it raises an error, no block is at work any more, so that the caller may begin again.
    """
    left = {block.key: (block, mark) for block, mark in zip(blocks, marks, strict=True)}
    while left:
        # Once, unless the scheduler loses tasks: then again with those that are left.
        attempt = _Attempt(fleet, stage, list(left.values()))
        for outcome in attempt.outcomes():
            del left[outcome[0]]
            yield outcome


class _Attempt:
    """An attempt to do blocks of a stage, a window of them at a time."""

    def __init__(self, fleet: Fleet, stage: Stage, blocks: Sequence[Given]) -> None:
        self._client, self._fleet, self._stage = fleet.client, fleet, stage
        self._name = uuid.uuid4().hex[:8]
        self._waiting = deque(blocks)
        self._running = distributed.as_completed(loop=fleet.client.loop)
        self._given: dict[str, Given] = {}
        self._restricted: set[str] = set()
        self._returned: Counter[str] = Counter()
        self._lost = _LostTasks(fleet.client, self._name)
        self._when = f"during stage '{stage.name}'"

    def outcomes(self) -> Generator[Outcome, None, None]:
        """Yield outcomes until all are done, or until it shows that some never will be."""
        try:
            while True:
                self._fleet.refresh(self._when)
                self._fill_window()
                if self._running.is_empty():
                    return
                if not self._wait():
                    self._end()
                    return
                outcome = self._next()
                if outcome is not None:
                    yield outcome
        except Exception:
            self._end()
            raise
        finally:
            self._client.cancel(list(self._running.futures))

    def _fill_window(self) -> None:
        window = window_size(len(self._fleet.fit), self._fleet.threads, self._stage.cost)
        while self._waiting and self._running.count() < window:
            block, mark = self._waiting.popleft()
            only = self._fleet.only
            task = _Call(
                *(self._stage.function, block.args, block.key, mark, self._name),
                self._fleet.secret,
            )
            key = f"{self._stage.key}-{block.key}-{self._name}-{self._returned[block.key]}"
            self._given[key] = (block, mark)
            self._restricted.update(only or ())
            future = self._client.submit(pickle.loads, dumps(task), key=key, workers=only)
            self._running.add(future)

    def _wait(self) -> bool:
        """Wait for a block; False if it would be for ever."""
        self._lost.heard_of_one()
        while not self._running.has_ready() and not self._running.is_empty():
            self._fleet.refresh(self._when)
            # Tasks are restricted to workers by name: do none of them live any more?
            gone = self._restricted and not self._restricted & self._fleet.fit.keys()
            if (gone and self._fleet.fit) or self._lost.are_there():
                return False
            with self._running.thread_condition:
                if not self._running.has_ready():
                    self._running.thread_condition.wait(_POLL_SECONDS)
        return True

    def _next(self) -> Outcome | None:
        """What the next block returned; None if it has to be given to another worker."""
        future = next(self._running)
        given = self._given.pop(future.key)
        try:
            outcome: Outcome = outcome_of(future, self._stage.name)
        except UnfitWorkerError as error:
            self._give_back(given, error, error.message)
        except ModuleNotFoundError as error:
            if error.name != "figrl":
                raise
            self._give_back(given, error)
        else:
            return outcome
        return None

    def _give_back(self, given: Given, error: Exception, address: str = "") -> None:
        block = given[0]
        self._returned[block.key] += 1
        if self._returned[block.key] > _RETURNS:
            raise error
        self._fleet.look_again(address)
        self._waiting.appendleft(given)

    def _end(self) -> None:
        """Leave no block at work: Dask cancels a task that waits, but not one that runs."""
        self._client.cancel(list(self._running.futures))
        wait_for_none(self._client, worker.abandon_attempt, self._name)


class _Call:
    """A block, done where it is unpickled.

    A task that names functions of figrl ends a worker that does not have them: Dask unpickles it
    while it reads from the scheduler. In bytes, it is a task that fails.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., Outcome | FigrlError], tuple[Any, ...]]:
        return _done_or_refused, self._arguments


def _done_or_refused(*arguments: Any) -> Outcome | FigrlError:
    """Do a block; an error of figrl is what it returns.

    Dask would log it with a traceback and all arguments on the worker, which for a local cluster is
    the notebook; the job shows it once, in its own words.
    """
    try:
        return execute_block(*arguments)
    except FigrlError as error:
        return error


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
        result = future.result()
    except KilledWorker as error:
        raise ResourceError(
            f"A block of stage '{stage_name}' was on a worker that died, several times over "
            f"({error}). Most likely the machine ran out of memory: lower --memory-limit, so that "
            "smaller tiles are used, or give the workers fewer threads. Finished blocks are kept; "
            "run the same command again to go on."
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise cluster_lost(f"during stage '{stage_name}'", error) from error
    else:
        if isinstance(result, FigrlError):
            raise result
        return result
    finally:
        # A client keeps the error of a future, an error its traceback, and that all that callers
        # have open: with a run that is read, the lease that keeps it from being deleted.
        future.release()
