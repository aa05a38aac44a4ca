"""Runs the stages of a job: only blocks without a mark, one stage after the other.

`Runner` is the loop; `ClusterRunner` does blocks on a Dask cluster.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import distributed

from figrl.engine import worker
from figrl.engine.block import Outcome, read_mark
from figrl.engine.capacity import ClusterMemory
from figrl.engine.fleet import Fleet, cluster_there
from figrl.engine.stage import Block, Monitor, Silent, Stage, StageResult, Stages, Stats
from figrl.engine.submit import completed, outcome_of, wait_for_none
from figrl.errors import FigrlError
from figrl.store.arrays import create_array
from figrl.store.files import delete, list_prefix

Result = TypeVar("Result")


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
            with closing(self.completed(stage, missing)) as outcomes:
                for key, process, peak, stats in outcomes:
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

    `planned`: what the plan counts on in each worker.
    """

    def __init__(
        self,
        client: distributed.Client,
        marks: Path,
        monitor: Monitor | None = None,
        planned: ClusterMemory | None = None,
    ) -> None:
        super().__init__(marks, monitor or Silent())
        self.client = client
        self._fleet = Fleet(client, marks, self.monitor.note, planned)
        self._fleet.refresh("when the job began")
        wait_for_none(client, worker.count_blocks_at_work, marks)

    def beside(self, marks: Path) -> ClusterRunner:
        """A runner with other marks, whose results count as this one's."""
        other = ClusterRunner(self.client, marks, self.monitor)
        other.results = self.results
        return other

    def on_every_worker(self, function: Callable[[], Any]) -> None:
        """Call a function on every worker; one that does not answer is left out."""
        with cluster_there("between two stages"):
            self.client.run(function, on_error="ignore")

    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Submit blocks through a window."""
        marks = [self.mark_path(stage, block.key) for block in blocks]
        return completed(self._fleet, stage, blocks, marks)


def map_on_workers(
    client: distributed.Client, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Apply a quick function to each item on the workers; no marks are kept."""
    blocks = [Block(f"{i:06d}", item) for i, item in enumerate(items)]
    stage = Stage(function.__name__, function, blocks)
    outcomes = completed(Fleet(client), stage, blocks, [None] * len(blocks))
    found = {key: value for key, _, _, value in outcomes}
    return [found[block.key] for block in blocks]


def compute_parts(
    client: distributed.Client, parts: Sequence[Any], name: str, monitor: Monitor
) -> list[Any]:
    """Compute lazy parts of a Dask collection on the workers; return what each returns."""
    result = StageResult(name, len(parts))
    monitor.started(result)
    started = time.perf_counter()
    fleet = Fleet(client, told=monitor.note)
    fleet.refresh(f"during stage '{name}'")
    futures = client.compute(list(parts), workers=fleet.only)
    try:
        for number, future in enumerate(futures):
            result.stats[str(number)] = {"part": outcome_of(future, name)}
            result.seconds = time.perf_counter() - started
            monitor.advanced(result)
    finally:
        client.cancel(futures)
    monitor.finished(result)
    return [stats["part"] for stats in result.stats.values()]
