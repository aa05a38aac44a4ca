"""A stage, played through: its blocks on their way through the scheduler and the workers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from figrl.bench.events import Action, Clock, Shared, when_all
from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates
from figrl.engine.submit import window_size
from figrl.learn.tiling import PlannedStage

PARTS = ("compute", "storage", "scheduler", "idle")
"""What threads spend a stage on; idle are those that have no block left while others still do."""

SCHEDULER_SECONDS = 0.0024
"""What the scheduler takes for a task; the rest of the cost of a task is its worker's."""


@dataclass(frozen=True)
class Modelled:
    """Workers that do not exist.

    `memory`: how many there are, with how many threads, and what connects them to the storage.
    `rates`: of a core, and of a disk. `cores`: of a machine, by default one for each thread;
    `workers_a_machine` share them, and its disk.
    """

    memory: ClusterMemory
    rates: Rates
    cores: int | None = None
    workers_a_machine: int = 1
    scheduler_seconds: float = SCHEDULER_SECONDS


@dataclass(frozen=True)
class SimulatedStage:
    """Seconds of a stage, and the same divided by what threads spend them on."""

    name: str
    tasks: int
    seconds: float
    parts: dict[str, float]


def simulate_stage(planned: PlannedStage, modelled: Modelled) -> SimulatedStage:
    """Play a stage through, all blocks of which are of one size."""
    return _Run(planned, modelled).run()


class _Worker:
    """A worker process: what it shares with others, its blocks, and those that wait for it."""

    def __init__(self, number: int, cores: Shared, disk: Shared) -> None:
        self.number, self.cores, self.disk = number, cores, disk
        self.blocks = 0
        self.begun = self.ready = False
        self.waiting: list[Action] = []


class _Run:
    """What the scheduler and the workers are at."""

    def __init__(self, planned: PlannedStage, modelled: Modelled) -> None:
        self._planned, self._modelled, self._clock = planned, modelled, Clock()
        self._cost, self._tasks = planned.stage.cost, len(planned.stage.blocks)
        memory = modelled.memory
        # A block of a whole worker has all of its threads.
        self._width = memory.threads if self._cost.whole_worker else 1
        self._places = memory.threads // self._width
        self._slots = memory.workers * self._places
        self._window = window_size(memory.workers, memory.workers * memory.threads, self._cost)
        self._storage = Shared(self._clock, memory.storage_rate)
        self._workers = list(self._make_workers())
        self._least_busy = [(0, worker.number) for worker in self._workers]
        self._with_scheduler = False
        self._submitted = self._ready = self._given = self._done = 0
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._seen = 0.0

    def _make_workers(self) -> Iterator[_Worker]:
        modelled, clock = self._modelled, self._clock
        each = modelled.workers_a_machine
        cores = modelled.cores or modelled.memory.threads * each
        for number in range(modelled.memory.workers):
            if number % each == 0:
                machine = Shared(clock, cores, most=1.0), Shared(clock, 1.0)
            yield _Worker(number, *machine)

    def run(self) -> SimulatedStage:
        """Let all blocks pass."""
        self._submit()
        self._clock.run()
        between = self._modelled.rates.stage_seconds
        parts = {part: seconds / self._slots for part, seconds in self._parts.items()}
        parts["scheduler"] += between
        return SimulatedStage(
            self._planned.stage.name, self._tasks, self._clock.now + between, parts
        )

    def _submit(self) -> None:
        """The scheduler takes one block after the other, while there is room in the window."""
        full = self._submitted - self._done >= self._window
        if self._with_scheduler or full or self._submitted == self._tasks:
            return
        self._with_scheduler = True
        self._submitted += 1
        self._clock.after(self._modelled.scheduler_seconds, self._submitted_one)

    def _submitted_one(self) -> None:
        self._with_scheduler = False
        self._ready += 1
        self._give()
        self._submit()

    def _give(self) -> None:
        """Blocks that are ready begin in their order, each on the worker that has the fewest."""
        while self._given < self._ready and self._given - self._done < self._slots:
            blocks, number = heapq.heappop(self._least_busy)
            worker = self._workers[number]
            if blocks == worker.blocks:
                self._count_free()
                self._given += 1
                self._change(worker, 1)
                self._begin(worker)

    def _change(self, worker: _Worker, by: int) -> None:
        worker.blocks += by
        if worker.blocks < self._places:
            heapq.heappush(self._least_busy, (worker.blocks, worker.number))

    def _count_free(self) -> None:
        """Threads that had no block since the last look: the scheduler is late, or none is left."""
        free = self._slots - (self._given - self._done)
        part = "scheduler" if self._given < self._tasks else "idle"
        self._parts[part] += free * (self._clock.now - self._seen)
        self._seen = self._clock.now

    def _begin(self, worker: _Worker) -> None:
        """A block begins when its worker is prepared, which the first one sees to."""
        if worker.ready:
            self._work(worker)
            return
        worker.waiting.append(lambda: self._work(worker))
        if not worker.begun:
            worker.begun = True
            self._prepare(worker)

    def _prepare(self, worker: _Worker) -> None:
        """Fill what all threads of a worker share, in memory that may be new to it."""
        rates, cost, started = self._modelled.rates, self._cost, self._clock.now
        threads = min(self._modelled.memory.threads, self._tasks)

        def fill() -> None:
            worker.cores.use(rates.core_seconds(cost.worker_work), touch, threads)

        def touch() -> None:
            # Fresh pages come from the system one at a time, however many threads ask for them.
            worker.cores.use(self._planned.fresh_bytes / rates.touch, prepared)

        def prepared() -> None:
            worker.ready = True
            self._spent("compute", started, len(worker.waiting))
            for begin in worker.waiting:
                begin()

        self._move(worker, cost.worker_read_bytes, 0, fill)

    def _work(self, worker: _Worker) -> None:
        if self._cost.whole_worker:
            self._one_after_the_other(worker)
        else:
            self._overlapped(worker)

    def _one_after_the_other(self, worker: _Worker) -> None:
        """A block of a whole worker reads what it needs, computes, and stores the result."""
        cost, begun = self._cost, self._clock.now
        read, written = cost.read_bytes / self._tasks, cost.written_bytes / self._tasks

        def compute() -> None:
            nonlocal begun
            begun = self._spent("storage", begun)
            self._compute(worker, store)

        def store() -> None:
            nonlocal begun
            begun = self._spent("compute", begun)
            self._move(worker, 0, written, stored)

        def stored() -> None:
            self._commit(worker, self._spent("storage", begun))

        self._move(worker, read, 0, compute)

    def _overlapped(self, worker: _Worker) -> None:
        """A block of a thread reads ahead and writes behind while it computes."""
        cost, begun, last = self._cost, self._clock.now, "storage"
        read = (cost.read_bytes + cost.again_bytes) / self._tasks
        written = cost.written_bytes / self._tasks

        def ends(part: str) -> Action:
            def end() -> None:
                nonlocal last
                last = part
                both()

            return end

        both = when_all(2, lambda: self._commit(worker, self._spent(last, begun)))
        self._move(worker, read, written, ends("storage"))
        self._compute(worker, ends("compute"))

    def _compute(self, worker: _Worker, done: Action) -> None:
        seconds = self._modelled.rates.core_seconds(self._cost.work) / self._tasks
        worker.cores.use(seconds, done, self._width)

    def _move(self, worker: _Worker, read: float, written: float, done: Action) -> None:
        """Bytes from or to the storage: as fast as the machine allows, and as the storage does."""
        both = when_all(2, done)
        modelled = self._modelled
        worker.disk.use(modelled.memory.disk_seconds(modelled.rates, read, written), both)
        self._storage.use(read + written, both)

    def _commit(self, worker: _Worker, begun: float) -> None:
        """The mark is written, and the scheduler hears of it."""
        modelled = self._modelled

        def committed() -> None:
            self._count_free()
            self._spent("scheduler", begun)
            self._done += 1
            self._change(worker, -1)
            self._give()
            self._submit()

        rest = max(modelled.rates.task_seconds - modelled.scheduler_seconds, 0.0)
        self._clock.after(rest, committed)

    def _spent(self, part: str, since: float, threads: int = 1) -> float:
        """Count the seconds of threads that had a block; return the time."""
        self._parts[part] += threads * (self._clock.now - since)
        return self._clock.now
