"""Blocks on a Dask cluster: the only module that submits work to a client."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.system import MEMORY_LIMIT

from pipeline.blocks import blocks_at_work, execute_block, give_up
from pipeline.errors import FigrlError, ResourceError
from pipeline.job import Block, Job, Monitor, Outcome, Silent, Stage, StageResult
from pipeline.measure import human_bytes

_WINDOW_PER_THREAD = 3
_WINDOW_REFRESH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_WORKER_WAIT_SECONDS = 60.0


class ClusterJob(Job):
    """A job whose blocks are done by the workers of a Dask cluster.

    Only a window of blocks is with the scheduler at any time, so a stage of a million blocks
    costs it no more than a stage of a hundred.

    Where the process that ran the same job before was killed, a worker may still be at one of its
    blocks. Making a job waits for that: the block would else write its mark into what this job
    may have begun anew, with tiles of another size.
    """

    def __init__(
        self,
        client: distributed.Client,
        marks: Path,
        monitor: Monitor | None = None,
        results: list[StageResult] | None = None,
    ) -> None:
        super().__init__(marks, monitor or Silent(), results)
        self.client = client
        _wait_for_none(client, blocks_at_work, marks)

    def everywhere(self, function: Callable[[], Any]) -> None:
        """Call a function on every worker; one that does not answer is left out."""
        with _cluster_there("between two stages"):
            self.client.run(function, on_error="ignore")

    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Submit blocks through a window."""
        return _completed(self.client, stage, blocks)


def map_once(
    client: distributed.Client, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Apply a quick function to each item on the workers; nothing is kept for another time."""
    stage = Stage(function.__name__, function, [], Path())
    blocks = [Block(f"{i:06d}", item) for i, item in enumerate(items)]
    found = {key: value for key, _, _, value in _completed(client, stage, blocks, marked=False)}
    return [found[block.key] for block in blocks]


def _completed(
    client: distributed.Client, stage: Stage, blocks: Sequence[Block], *, marked: bool = True
) -> Generator[Outcome, None, None]:
    """Submit blocks through a window and yield what each of them returned.

    When it raises an error, no block is at work any more, so that the caller may begin again.
    """
    attempt = uuid.uuid4().hex[:8]
    waiting = iter(blocks)
    running = distributed.as_completed(loop=client.loop)
    window, window_read = 0, 0.0
    try:
        while True:
            if time.monotonic() - window_read > _WINDOW_REFRESH_SECONDS:
                with _cluster_there(f"during stage '{stage.name}'"):
                    threads = sum(client.nthreads().values())
                window, window_read = max(4, _WINDOW_PER_THREAD * threads), time.monotonic()
            while running.count() < window and (block := next(waiting, None)) is not None:
                running.add(
                    client.submit(
                        execute_block,
                        stage.function,
                        block.args,
                        block.key,
                        stage.mark_path(block.key) if marked else None,
                        attempt,
                        key=f"{stage.name}-{block.key}-{attempt}",
                    )
                )
            if running.is_empty():
                return
            yield _outcome(next(running), stage.name)
    except Exception:
        # Dask takes back a task that waits, but not one that runs.
        client.cancel(list(running.futures))
        _wait_for_none(client, give_up, attempt)
        raise
    finally:
        client.cancel(list(running.futures))


def _wait_for_none(
    client: distributed.Client, count: Callable[..., int], of_what: str | Path
) -> None:
    """Wait until `count`, asked on every worker, is zero; a cluster that is gone has none."""
    with suppress(OSError):
        while client.status == "running" and any(
            client.run(count, of_what, on_error="ignore").values()
        ):
            time.sleep(_POLL_SECONDS)


def _outcome(future: distributed.Future[Any], stage_name: str) -> Outcome:
    try:
        outcome: Outcome = future.result()
        return outcome
    except KilledWorker as error:
        raise ResourceError(
            f"A block of stage '{stage_name}' was on a worker that died, several times over "
            f"({error}). Most likely the machine ran out of memory: lower --memory-limit, so that "
            "smaller tiles are used, or give the workers fewer threads. Finished blocks are kept; "
            "run the same command again to go on."
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise _cluster_lost(f"during stage '{stage_name}'", error) from error


@contextmanager
def _cluster_there(when: str) -> Iterator[None]:
    """Say it in words if the scheduler does not answer."""
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


@dataclass(frozen=True)
class ClusterMemory:
    """What the workers of a cluster offer: the smallest memory and the most threads."""

    workers: int
    threads: int
    limit_bytes: int

    # Dask stops giving tasks to a worker whose process holds 80 % of its limit, and a shared
    # operand is held between tasks: a plan that came near would never end.
    usable_share = 0.75

    @property
    def allowed_bytes(self) -> int:
        """Bytes that a plan may use in a worker process."""
        return int(self.limit_bytes * self.usable_share)

    def describe(self) -> str:
        """Say it in a line."""
        return (
            f"{self.workers} worker{'s' if self.workers != 1 else ''} with up to "
            f"{self.threads} thread{'s' if self.threads != 1 else ''} and "
            f"{human_bytes(self.limit_bytes)} each"
        )


def cluster_memory(client: distributed.Client, limit_bytes: int | None) -> ClusterMemory:
    """Ask the workers how much memory and how many threads they have.

    Parameters
    ----------
    client : distributed.Client
    limit_bytes : int or None
        A limit per worker process that was asked for; the workers' own limit still holds.
    """
    # A task, for a cluster that adapts may start its first worker only when there is work.
    first = client.submit(os.getpid, pure=False)
    with suppress(TimeoutError):
        first.result(timeout=_WORKER_WAIT_SECONDS)
    offers = client.run(_offer, on_error="ignore")
    if not offers:
        raise ResourceError(
            "The Dask cluster has no worker that answers. Start one, with figrl installed where it "
            "runs, and try again."
        )
    threads = max(threads for threads, _ in offers.values())
    memory = min(memory for _, memory in offers.values())
    return ClusterMemory(len(offers), threads, min(memory, limit_bytes or memory))


def _offer(dask_worker: distributed.Worker) -> tuple[int, int]:
    limit = dask_worker.memory_manager.memory_limit or MEMORY_LIMIT
    return int(dask_worker.state.nthreads), int(limit)
