"""Stages as data: what a job is made of, whoever runs it.

A job is a generator of stages. Each stage is a function, the blocks it is applied to, the memory
it needs, and what it reads and writes. The runner runs the stages one after the other and sends
the result of each back; the planner lists the same stages without running them. A stage that
turns out not to be needed has no blocks.

    def job() -> Stages[dict[str, Any]]:
        counted = yield Stage("count", count_block, numbered(task, 12))
        yield Stage("sum", sum_block, [Block("all", (task, counted.total("rows")))])
        return {"rows": counted.total("rows")}
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from figrl.store.arrays import ArraySpec

Stats = dict[str, Any]
"""Statistics of a block: a few numbers that JSON can hold."""

Result = TypeVar("Result")

RESERVED_BYTES = 460_000_000
"""Memory of an idle worker process with all libraries loaded and all kernels compiled."""


@dataclass(frozen=True)
class Block:
    """One unit of work: its name within the stage, and the arguments of the stage's function."""

    key: str
    args: tuple[Any, ...]


class Blocks(Sequence[Block]):
    """Blocks that are made when they are asked for: a plan of millions of them costs nothing."""

    def __init__(self, count: int, make: Callable[[int], Block]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | Sequence[Block]:
        places = range(self._count)[index]
        if isinstance(places, range):
            return [self._make(place) for place in places]
        return self._make(places)


def numbered(task: Any, numbers: int | Sequence[int], *more: Any) -> Blocks:
    """Blocks ``(task, number, *more)``, named by their number."""
    every = range(numbers) if isinstance(numbers, int) else numbers
    return Blocks(len(every), lambda i: Block(f"{int(every[i]):06d}", (task, int(every[i]), *more)))


@dataclass(frozen=True)
class Memory:
    """Bytes that a stage holds in a worker process: shared by its threads, and for each task."""

    shared_bytes: int = 0
    task_bytes: int = 0

    def peak_bytes(self, threads: int) -> int:
        """Memory of a worker process with `threads` tasks at work."""
        return RESERVED_BYTES + self.shared_bytes + threads * self.task_bytes


@dataclass(frozen=True)
class Cost:
    """Bytes and operations of a stage, from which the plan predicts disk, network and seconds.

    `work` counts operations of all cores by the name of their rate in `figrl.engine.rates.Rates`;
    `worker_work` and `worker_read_bytes` what every worker repeats, such as filling a shared
    operand. A task of a stage of `whole_worker` keeps all threads of its worker busy.
    `again_bytes` are read with others, and read again when they are needed themselves.
    """

    read_bytes: int = 0
    worker_read_bytes: int = 0
    again_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0
    work: Mapping[str, int] = field(default_factory=dict)
    worker_work: Mapping[str, int] = field(default_factory=dict)
    whole_worker: bool = False

    def all_read_bytes(self, workers: int) -> int:
        """Bytes that all workers read together."""
        return self.read_bytes + workers * self.worker_read_bytes


@dataclass(frozen=True)
class Stage:
    """A function, the blocks it is applied to, and what that takes.

    The function runs on a worker and writes its output to the store. Blocks start in their order;
    a stage that is not needed has none. The runner creates the arrays of `writes` before the first
    block, and deletes `frees` when the stage is complete. `step` numbers the repetitions of a
    stage. Where later stages depend on statistics, the planner assumes the `expected` ones for
    every block. With `releases_buffers` the workers give back those of earlier stages first.
    """

    name: str
    function: Callable[..., Stats]
    blocks: Sequence[Block]
    memory: Memory = field(default_factory=Memory)
    reads: tuple[Path, ...] = ()
    writes: tuple[ArraySpec, ...] = ()
    frees: tuple[Path, ...] = ()
    step: int | None = None
    cost: Cost = field(default_factory=Cost)
    expected: Stats = field(default_factory=dict)
    releases_buffers: bool = False

    @property
    def key(self) -> str:
        """Name of the folder of marks; unique within a job."""
        return self.name if self.step is None else f"{self.name}-{self.step:03d}"


@dataclass
class StageResult:
    """What happened in a stage."""

    name: str
    blocks: int
    step: int | None = None
    reused: int = 0
    seconds: float = 0.0
    peaks: dict[str, int] = field(default_factory=dict)
    stats: dict[str, Stats] = field(default_factory=dict)

    @property
    def computed(self) -> int:
        """Blocks that this attempt had to compute."""
        return self.blocks - self.reused

    @property
    def only(self) -> Stats:
        """Statistics of a stage of a single block."""
        [stats] = self.stats.values()
        return stats

    def total(self, name: str) -> int:
        """Sum of one statistic over all blocks."""
        return int(sum(stats[name] for stats in self.stats.values()))

    def describe(self) -> Stats:
        """Entry of the manifest."""
        return {
            "name": self.name,
            "step": self.step,
            "blocks": self.blocks,
            "computed": self.computed,
            "reused": self.reused,
            "seconds": round(self.seconds, 3),
            "peak_bytes": max(self.peaks.values(), default=0),
            "read_bytes": sum(s.get("read_bytes", 0) for s in self.stats.values()),
            "written_bytes": sum(s.get("written_bytes", 0) for s in self.stats.values()),
        }


Stages = Generator[Stage, StageResult, Result]
"""A job: yields its stages, is sent their results, and returns what it found."""


def list_stages(stages: Stages[Any]) -> list[Stage]:
    """All stages of a job, without running them; results are those that each stage expects."""
    listed: list[Stage] = []
    try:
        stage = next(stages)
        while True:
            listed.append(stage)
            result = StageResult(stage.name, len(stage.blocks), stage.step)
            if stage.expected:
                result.stats = {block.key: stage.expected for block in stage.blocks}
            stage = stages.send(result)
    except StopIteration:
        return listed


_SUMS = ("blocks", "computed", "reused", "seconds", "read_bytes", "written_bytes")


def group_by_name(stages: Iterable[Stats]) -> dict[str, Stats]:
    """Described stages, the repetitions of one added up: counts, seconds, bytes and the peak."""
    groups: dict[str, Stats] = {}
    for stage in stages:
        group = groups.setdefault(
            stage["name"], dict.fromkeys(_SUMS, 0) | {"peak_bytes": 0, "times": 0}
        )
        group["times"] += 1
        group["peak_bytes"] = max(group["peak_bytes"], stage["peak_bytes"])
        for key in _SUMS:
            group[key] += stage[key]
    return groups


class Monitor(Protocol):
    """Observer of a job: a progress bar, a log."""

    def planned(self, stages: Sequence[tuple[str, float]]) -> None:
        """Stages of an embedding are about to come, with the seconds that the plan predicts."""

    def started(self, result: StageResult) -> None:
        """A stage begins; `result.reused` blocks are done already."""

    def advanced(self, result: StageResult) -> None:
        """One more block is done."""

    def finished(self, result: StageResult) -> None:
        """The stage is complete."""

    def note(self, text: str) -> None:
        """Show a message to the user."""


class Silent:
    """A monitor that ignores everything."""

    def planned(self, stages: Sequence[tuple[str, float]]) -> None:
        """Ignore it."""

    def started(self, result: StageResult) -> None:
        """Ignore it."""

    advanced = finished = started

    def note(self, text: str) -> None:
        """Ignore it."""
