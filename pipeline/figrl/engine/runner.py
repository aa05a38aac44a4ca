"""Runs the stages of a job: only blocks without a mark, one stage after the other.

`Runner` is the loop; `ClusterRunner` does blocks on a Dask cluster, and is the only class that
submits work to a client.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from figrl.engine import worker
from figrl.engine.block import Outcome, execute_block, read_mark
from figrl.engine.stage import Block, Monitor, Silent, Stage, StageResult, Stages, Stats
from figrl.errors import FigrlError, ResourceError
from figrl.store.arrays import create_array
from figrl.store.files import delete, list_prefix
from figrl.units import human_seconds

Result = TypeVar("Result")

_WINDOW_PER_THREAD = 3
_WINDOW_REFRESH_SECONDS = 2.0
_POLL_SECONDS = 0.1

# No wait is without a limit. A block may take as long as it takes, while there is a worker.
_NO_WORKER_SECONDS = 1800.0
_LEFT_BLOCKS_SECONDS = 1800.0


class Runner(ABC):
    """Runs stages, and remembers what happened; the marks of all stages lie below `marks`."""

    def __init__(self, marks: Path, monitor: Monitor) -> None:
        self.marks = marks
        self.monitor = monitor
        self.results: list[StageResult] = []

    @abstractmethod
    def on_every_worker(self, function: Callable[[], Any]) -> None:
        """Call a quick function in every process that does blocks."""

    @abstractmethod
    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Do blocks of a stage, and yield the outcome of each as it is done."""

    def run(self, stages: Stages[Result]) -> Result:
        """Run all stages of a job; return what the job returns."""
        try:
            stage = next(stages)
            while True:
                try:
                    result = self.run_stage(stage)
                except FigrlError as error:
                    # A job may know what to do about it, such as to read ids as text.
                    stage = stages.throw(error)
                else:
                    stage = stages.send(result)
        except StopIteration as end:
            returned: Result = end.value
            return returned

    def run_stage(self, stage: Stage) -> StageResult:
        """Do the missing blocks of a stage and gather their statistics."""
        result = StageResult(stage.name, len(stage.blocks), stage.step)
        self.results.append(result)
        if stage.blocks:
            result.stats = self._stats_of_done_blocks(stage)
            result.reused = len(result.stats)
            self.monitor.started(result)
        started = time.perf_counter()
        missing = [block for block in stage.blocks if block.key not in result.stats]
        if missing:
            for array in stage.writes:
                create_array(array)
            if stage.releases_buffers:
                self.on_every_worker(worker.release_buffers)
            self.on_every_worker(worker.reset_peak_memory)
            with closing(self.completed(stage, missing)) as completed:
                for key, process, peak, stats in completed:
                    result.stats[key] = stats
                    result.peaks[process] = max(peak, result.peaks.get(process, 0))
                    result.seconds = time.perf_counter() - started
                    self.monitor.advanced(result)
        for path in stage.frees:
            delete(path)
        if stage.blocks:
            result.seconds = time.perf_counter() - started
            self.monitor.finished(result)
        return result

    def mark_path(self, stage: Stage, key: str) -> Path:
        """Where the mark of a block lies."""
        return self.marks / stage.key / f"{key}.json"

    def _stats_of_done_blocks(self, stage: Stage) -> dict[str, Stats]:
        """Statistics of the blocks that have a mark."""
        names = {path.stem for path in list_prefix(self.marks / stage.key, "*.json")}
        done = [block.key for block in stage.blocks if block.key in names]
        read = {key: read_mark(self.mark_path(stage, key)) for key in done}
        return {key: stats for key, stats in read.items() if stats is not None}

    def describe(self) -> Stats:
        """All stages that had blocks, and the peak of each worker process, for a manifest."""
        peaks: Counter[str] = Counter()
        for result in self.results:
            peaks |= Counter(result.peaks)
        return {
            "stages": [result.describe() for result in self.results if result.blocks],
            "workers": [{"worker": key, "peak_bytes": peaks[key]} for key in sorted(peaks)],
            "peak_worker_bytes": max(peaks.values(), default=0),
        }


class ClusterRunner(Runner):
    """Runs blocks on the workers of a Dask cluster.

    Only a window of blocks is with the scheduler at any time, so a stage of a million blocks
    costs it no more than a stage of a hundred.

    Where the process that ran the same job before was killed, a worker may still be at one of its
    blocks. The constructor waits for that: the block would otherwise write its mark into a stage
    that this job may have begun anew, with tiles of another size.
    """

    def __init__(
        self, client: distributed.Client, marks: Path, monitor: Monitor | None = None
    ) -> None:
        super().__init__(marks, monitor or Silent())
        self.client = client
        with _cluster_there("when the job began"):
            client.register_plugin(worker.FigrlWorker())
        _wait_for_none(client, worker.count_blocks_at_work, marks)

    def beside(self, marks: Path) -> ClusterRunner:
        """A runner with other marks, whose results count as this one's."""
        other = ClusterRunner(self.client, marks, self.monitor)
        other.results = self.results
        return other

    def on_every_worker(self, function: Callable[[], Any]) -> None:
        """Call a function on every worker; one that does not answer is left out."""
        with _cluster_there("between two stages"):
            self.client.run(function, on_error="ignore")

    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Submit blocks through a window."""
        marks = [self.mark_path(stage, block.key) for block in blocks]
        return _completed(self.client, stage, blocks, marks)


def map_on_workers(
    client: distributed.Client, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Apply a quick function to each item on the workers; no marks are kept."""
    blocks = [Block(f"{i:06d}", item) for i, item in enumerate(items)]
    stage = Stage(function.__name__, function, blocks)
    outcomes = _completed(client, stage, blocks, [None] * len(blocks))
    found = {key: value for key, _, _, value in outcomes}
    return [found[block.key] for block in blocks]


def compute_parts(
    client: distributed.Client, parts: Sequence[Any], name: str, monitor: Monitor
) -> list[Any]:
    """Compute lazy parts of a Dask collection on the workers; return what each returns."""
    result = StageResult(name, len(parts))
    monitor.started(result)
    started = time.perf_counter()
    futures = client.compute(list(parts))
    try:
        for number, future in enumerate(futures):
            result.stats[str(number)] = {"part": _outcome(future, name)}
            result.seconds = time.perf_counter() - started
            monitor.advanced(result)
    finally:
        client.cancel(futures)
    monitor.finished(result)
    return [stats["part"] for stats in result.stats.values()]


def _completed(
    client: distributed.Client, stage: Stage, blocks: Sequence[Block], marks: Sequence[Path | None]
) -> Generator[Outcome, None, None]:
    """Submit blocks through a window and yield what each of them returned.

    When it raises an error, no block is at work any more, so that the caller may begin again.
    """
    attempt = uuid.uuid4().hex[:8]
    waiting = iter(zip(blocks, marks, strict=True))
    running = distributed.as_completed(loop=client.loop)
    threads = _Threads(client, f"during stage '{stage.name}'")
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
            while not running.has_ready() and not running.is_empty():
                threads.count()
                with running.thread_condition:
                    if not running.has_ready():
                        running.thread_condition.wait(_POLL_SECONDS)
            yield _outcome(next(running), stage.name)
    except Exception:
        # Dask cancels a task that waits, but not one that runs.
        client.cancel(list(running.futures))
        _wait_for_none(client, worker.abandon_attempt, attempt)
        raise
    finally:
        client.cancel(list(running.futures))


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
            with _cluster_there(self._when):
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


def _wait_for_none(
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


def _outcome(future: distributed.Future[Any], stage_name: str) -> Any:
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
def _cluster_there(when: str) -> Iterator[None]:
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
