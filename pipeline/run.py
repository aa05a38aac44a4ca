"""Stages of blocks on a Dask cluster: the only module that submits work to a client.

A stage is a function and the blocks it has to be applied to. Running it again does only the blocks
that have no mark yet, whether a worker died, the job was killed, or Dask itself chose to run a task
twice.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.system import MEMORY_LIMIT

from pipeline.blocks import Stats, blocks_at_work, execute_block, give_up, read_mark
from pipeline.errors import FigrlError, ResourceError
from pipeline.measure import human_bytes, reset_peak_memory

_WINDOW_PER_THREAD = 3
_WINDOW_REFRESH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_WORKER_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Block:
    """One unit of work: its name within the stage, and what the function needs to know."""

    key: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Stage:
    """A function to be applied to every block, and the folder of the marks.

    Parameters
    ----------
    name : str
        Shown to people, and the name of the folder of marks.
    function : callable
        ``function(*block.args) -> Stats``; runs on a worker, writes its output to the store.
    blocks : sequence of Block
        In the order in which they should be started.
    marks : Path
        Folder below which marks of all stages of this job lie.
    """

    name: str
    function: Callable[..., Stats]
    blocks: Sequence[Block]
    marks: Path

    def mark_path(self, key: str) -> Path:
        """Where the mark of a block lies."""
        return self.marks / self.name / f"{key}.json"


@dataclass
class StageResult:
    """What happened in a stage."""

    name: str
    blocks: int
    reused: int = 0
    seconds: float = 0.0
    peaks: dict[str, int] = field(default_factory=dict)
    stats: dict[str, Stats] = field(default_factory=dict)

    @property
    def computed(self) -> int:
        """Blocks that this run had to do."""
        return self.blocks - self.reused

    def total(self, name: str) -> int:
        """Sum of one statistic over all blocks."""
        return int(sum(stats[name] for stats in self.stats.values()))

    def describe(self) -> Stats:
        """Give what a manifest keeps."""
        return {
            "name": self.name,
            "blocks": self.blocks,
            "computed": self.computed,
            "reused": self.reused,
            "seconds": round(self.seconds, 3),
            "peak_bytes": max(self.peaks.values(), default=0),
            "read_bytes": sum(s.get("read_bytes", 0) for s in self.stats.values()),
            "written_bytes": sum(s.get("written_bytes", 0) for s in self.stats.values()),
        }


class Monitor(Protocol):
    """Someone who watches stages: a progress bar, a log."""

    def started(self, result: StageResult) -> None:
        """Tell that a stage begins; `result.reused` blocks are done already."""

    def advanced(self, result: StageResult) -> None:
        """Tell that one more block is done."""

    def finished(self, result: StageResult) -> None:
        """Tell that the stage is complete."""

    def note(self, text: str) -> None:
        """Say something that a person should read."""


class Silent:
    """A monitor that says nothing."""

    def started(self, result: StageResult) -> None:
        """Say nothing."""

    advanced = finished = started

    def note(self, text: str) -> None:
        """Say nothing."""


@dataclass
class Job:
    """The stages of one job on one client, with what happened so far.

    Where the process that ran the same job before was killed, a worker may still be at one of its
    blocks. Making a job waits for that: the block would else write its mark into what this job
    may have begun anew, with tiles of another size.
    """

    client: distributed.Client
    marks: Path
    monitor: Monitor = field(default_factory=Silent)
    results: list[StageResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        _wait_for_none(self.client, blocks_at_work, self.marks)

    def run(
        self, name: str, function: Callable[..., Stats], blocks: Sequence[Block]
    ) -> StageResult:
        """Do the missing blocks of a stage."""
        result = run_stage(self.client, Stage(name, function, blocks, self.marks), self.monitor)
        self.results.append(result)
        return result

    def describe(self) -> Stats:
        """Give all stages and the peak of each worker process, for a manifest."""
        peaks: dict[str, int] = {}
        for result in self.results:
            for worker, peak in result.peaks.items():
                peaks[worker] = max(peak, peaks.get(worker, 0))
        return {
            "stages": [result.describe() for result in self.results],
            "workers": [
                {"worker": worker, "peak_bytes": peak} for worker, peak in sorted(peaks.items())
            ],
            "peak_worker_bytes": max(peaks.values(), default=0),
        }


def map_once(
    client: distributed.Client, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Apply a quick function to each item on the workers; nothing is kept for another time."""
    stage = Stage(function.__name__, function, [], Path())
    blocks = [Block(f"{i:06d}", item) for i, item in enumerate(items)]
    found = {key: value for key, _, _, value in _completed(client, stage, blocks, marked=False)}
    return [found[block.key] for block in blocks]


def run_stage(client: distributed.Client, stage: Stage, monitor: Monitor) -> StageResult:
    """Do the missing blocks of a stage on the cluster and gather their statistics.

    Only a window of blocks is with the scheduler at any time, so a stage of a million blocks
    costs it no more than a stage of a hundred.
    """
    result = StageResult(stage.name, len(stage.blocks), stats=_stats_of_done_blocks(stage))
    missing = [block for block in stage.blocks if block.key not in result.stats]
    result.reused = len(result.stats)
    started = time.perf_counter()
    monitor.started(result)
    if missing:
        (stage.marks / stage.name).mkdir(parents=True, exist_ok=True)
        with _cluster_there(stage.name):
            client.run(reset_peak_memory, on_error="ignore")
        with closing(_completed(client, stage, missing)) as completed:
            for key, worker, peak, stats in completed:
                result.stats[key] = stats
                result.peaks[worker] = max(peak, result.peaks.get(worker, 0))
                result.seconds = time.perf_counter() - started
                monitor.advanced(result)
    result.seconds = time.perf_counter() - started
    monitor.finished(result)
    return result


def _stats_of_done_blocks(stage: Stage) -> dict[str, Stats]:
    """Read the marks of a stage: of its blocks, those that are done, and what they told."""
    names = {path.stem for path in (stage.marks / stage.name).glob("*.json")}
    read = {
        block.key: read_mark(stage.mark_path(block.key))
        for block in stage.blocks
        if block.key in names
    }
    return {key: stats for key, stats in read.items() if stats is not None}


def _completed(
    client: distributed.Client, stage: Stage, blocks: Sequence[Block], *, marked: bool = True
) -> Generator[tuple[str, str, int, Stats], None, None]:
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
                with _cluster_there(stage.name):
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


def _outcome(future: distributed.Future[Any], stage_name: str) -> tuple[str, str, int, Stats]:
    try:
        outcome: tuple[str, str, int, Stats] = future.result()
        return outcome
    except KilledWorker as error:
        raise ResourceError(
            f"A block of stage '{stage_name}' was on a worker that died, several times over "
            f"({error}). Most likely the machine ran out of memory: lower --memory-limit, so that "
            "smaller tiles are used, or give the workers fewer threads. Finished blocks are kept; "
            "run the same command again to go on."
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise _cluster_lost(stage_name, error) from error


@contextmanager
def _cluster_there(stage_name: str) -> Iterator[None]:
    """Say it in words if the scheduler does not answer."""
    try:
        yield
    except OSError as error:
        raise _cluster_lost(stage_name, error) from error


def _cluster_lost(stage_name: str, error: BaseException) -> FigrlError:
    reason = " ".join(str(error).split()).rstrip(".")
    return FigrlError(
        f"The Dask cluster went away during stage '{stage_name}' ({reason}). Finished blocks are "
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
