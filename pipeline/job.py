"""Stages of blocks: what a job is made of, whoever does its blocks.

A stage is a function and the blocks it has to be applied to. Running it again does only the blocks
that have no mark yet, whether a worker died, the job was killed, or Dask itself chose to run a task
twice.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pipeline.blocks import Stats, read_mark
from pipeline.measure import reset_peak_memory

Outcome = tuple[str, str, int, Stats]
"""Of a block: its key, the process that did it, the peak of memory there, and what it told."""


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


class Job(ABC):
    """The stages of one job, with what happened so far.

    Parameters
    ----------
    marks : Path
        Folder below which marks of all stages lie.
    monitor : Monitor
    results : list of StageResult
        What happened before, which this job goes on with.
    """

    def __init__(
        self, marks: Path, monitor: Monitor, results: list[StageResult] | None = None
    ) -> None:
        self.marks = marks
        self.monitor = monitor
        self.results = [] if results is None else results

    @abstractmethod
    def everywhere(self, function: Callable[[], Any]) -> None:
        """Call a quick function in every process that does blocks."""

    @abstractmethod
    def completed(self, stage: Stage, blocks: Sequence[Block]) -> Generator[Outcome, None, None]:
        """Do blocks of a stage, and tell of each when it is done."""

    def run(
        self, name: str, function: Callable[..., Stats], blocks: Sequence[Block]
    ) -> StageResult:
        """Do the missing blocks of a stage and gather their statistics."""
        stage = Stage(name, function, blocks, self.marks)
        result = StageResult(name, len(blocks), stats=_stats_of_done_blocks(stage))
        missing = [block for block in blocks if block.key not in result.stats]
        result.reused = len(result.stats)
        started = time.perf_counter()
        self.monitor.started(result)
        if missing:
            (self.marks / name).mkdir(parents=True, exist_ok=True)
            self.everywhere(reset_peak_memory)
            with closing(self.completed(stage, missing)) as completed:
                for key, worker, peak, stats in completed:
                    result.stats[key] = stats
                    result.peaks[worker] = max(peak, result.peaks.get(worker, 0))
                    result.seconds = time.perf_counter() - started
                    self.monitor.advanced(result)
        result.seconds = time.perf_counter() - started
        self.monitor.finished(result)
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


def _stats_of_done_blocks(stage: Stage) -> dict[str, Stats]:
    """Read the marks of a stage: of its blocks, those that are done, and what they told."""
    names = {path.stem for path in (stage.marks / stage.name).glob("*.json")}
    read = {
        block.key: read_mark(stage.mark_path(block.key))
        for block in stage.blocks
        if block.key in names
    }
    return {key: stats for key, stats in read.items() if stats is not None}
