"""The simulation: its events by hand, its stages beside the plan, its seconds beside measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from figrl.bench.events import Clock, Shared, when_all
from figrl.bench.simulate import describe_simulated, simulate
from figrl.bench.simulated_runs import _beside, predict
from figrl.bench.simulated_stage import PARTS, Modelled, SimulatedStage, simulate_stage
from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates
from figrl.engine.stage import Cost, Stage, numbered
from figrl.learn.plan import EmbedPlan, imagined_graph, plan_embedding
from figrl.learn.spec import EmbedOptions
from figrl.learn.tiling import PlannedStage

RATES = Rates(copy=1.0, read=10.0, write=5.0, touch=1.0, task_seconds=0.0, stage_seconds=0.0)
"""A byte that is copied is a second of a core."""


def finished_at(rate: float, uses: list[tuple[float, float, float]], most: float = math.inf):
    """When uses of a shared resource are complete: each has a start, an amount and a weight."""
    clock = Clock()
    shared = Shared(clock, rate, most)
    ends: dict[int, float] = {}
    for number, (start, amount, weight) in enumerate(uses):
        done = lambda number=number: ends.setdefault(number, clock.now)  # noqa: E731
        clock.after(start, lambda a=amount, w=weight, d=done: shared.use(a, d, w))
    clock.run()
    return [ends[number] for number in range(len(uses))]


def test_those_who_use_a_resource_share_its_rate():
    assert finished_at(10, [(0, 30, 1)]) == [3]
    # Together until the first is done, at 5 each; then the other alone.
    assert finished_at(10, [(0, 30, 1), (0, 50, 1)]) == [6, 8]
    # One comes later: 20 are left of the first, which then goes at half the speed.
    assert finished_at(10, [(0, 30, 1), (1, 10, 1)]) == [4, 3]
    # By weight: 7.5 and 2.5 a second.
    assert finished_at(10, [(0, 30, 3), (0, 30, 1)]) == [4, 6]
    assert finished_at(math.inf, [(2, 30, 1)]) == [2]
    assert finished_at(10, [(2, 0, 1)]) == [2]


def test_no_user_takes_more_than_its_most():
    # Three cores: one thread takes one of them, four threads share them.
    assert finished_at(3, [(0, 6, 1)], most=1) == [6]
    assert finished_at(3, [(0, 6, 1)] * 4, most=1) == [8] * 4
    assert finished_at(3, [(0, 6, 2)], most=1) == [3]


def test_an_action_waits_for_all_before_it():
    clock, done = Clock(), []
    both = when_all(2, lambda: done.append(clock.now))
    clock.after(3, both)
    clock.after(1, both)
    assert clock.run() == 3
    assert done == [3]


def simulated(
    blocks: int,
    cost: Cost,
    *,
    workers: int = 1,
    threads: int = 1,
    rates: Rates = RATES,
    storage: float = math.inf,
    fresh: int = 0,
    **modelled: float,
) -> SimulatedStage:
    stage = Stage("stage", print, numbered("task", blocks), cost=cost)
    memory = ClusterMemory(workers, threads, 10**9, storage)
    model = Modelled(memory, rates, **{"scheduler_seconds": 0.0, **modelled})  # type: ignore[arg-type]
    found = simulate_stage(PlannedStage(stage, 0, fresh), model)
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    return found


def test_two_workers_have_three_blocks():
    found = simulated(3, Cost(work={"copy": 12}), workers=2)
    # Each takes 4 seconds; in the last 4, one worker has none.
    assert found.seconds == 8
    assert found.parts == {"compute": 6, "storage": 0, "scheduler": 0, "idle": 2}


def test_workers_share_the_storage_and_each_has_a_disk():
    cost = Cost(read_bytes=60)
    # A disk gives 10 a second: 30 for each of two workers.
    assert simulated(2, cost, workers=2).seconds == 3
    assert simulated(2, cost, workers=2, storage=6).seconds == 10
    # Two workers of one machine share its disk.
    assert simulated(2, cost, workers=2, workers_a_machine=2).seconds == 6
    assert simulated(2, Cost(written_bytes=60), workers=2).seconds == 6
    # A worker without a block has a disk that is of no use.
    assert simulated(1, cost, workers=2).seconds == 6


def test_workers_of_a_machine_share_its_cores():
    cost = Cost(work={"copy": 16})
    assert simulated(4, cost, workers=4).seconds == 4
    assert simulated(4, cost, workers=4, workers_a_machine=4, cores=2).seconds == 8


def test_a_thread_computes_while_it_reads_and_a_whole_worker_does_not():
    cost = Cost(read_bytes=30, written_bytes=10, work={"copy": 6})
    overlapped = simulated(1, cost, threads=2)
    # 3 seconds to read and 2 to write, behind 6 of one thread.
    assert overlapped.seconds == 6
    assert overlapped.parts == {"compute": 3, "storage": 0, "scheduler": 0, "idle": 3}
    whole = simulated(1, replace(cost, whole_worker=True), threads=2)
    assert whole.seconds == 3 + 6 / 2 + 2
    assert whole.parts == {"compute": 3, "storage": 5, "scheduler": 0, "idle": 0}


def test_each_worker_that_has_a_block_prepares_itself_once():
    cost = Cost(worker_read_bytes=20, worker_work={"copy": 6}, work={"copy": 4})
    # 2 to read, 3 to fill with two threads, 1 of new memory; then a second for each of 2 blocks.
    assert simulated(4, cost, threads=2, fresh=1).seconds == 2 + 3 + 1 + 2
    assert simulated(4, cost, workers=2, threads=2, fresh=1).seconds == 2 + 3 + 1 + 1


def test_one_scheduler_hands_out_all_blocks():
    found = simulated(4, Cost(work={"copy": 4}), workers=4, scheduler_seconds=2.0)
    # The last block is handed out at 8, and takes a second.
    assert found.seconds == 9
    assert found.parts["compute"] == 1
    assert found.parts["scheduler"] == 7.25
    assert found.parts["idle"] == 0.75
    # It is ahead of blocks that take longer, but for those of a whole worker.
    ahead = simulated(3, Cost(work={"copy": 12}), scheduler_seconds=2.0)
    assert ahead.seconds == 2 + 3 * 4
    whole = simulated(3, Cost(work={"copy": 12}, whole_worker=True), scheduler_seconds=2.0)
    assert whole.seconds == 3 * (2 + 4)


def plan_of(edges: int, workers: int, threads: int = 1, **options: int) -> EmbedPlan:
    memory = ClusterMemory(workers, threads, 64_000_000_000)
    return plan_embedding(imagined_graph(edges // 10, edges), EmbedOptions(**options), memory)


def test_one_worker_takes_what_the_plan_adds_up():
    """Where the disk takes no time and one block follows the other, nothing overlaps."""
    plan = plan_of(10**8, 1)
    rates = Rates(read=math.inf, write=math.inf)
    found = simulate(plan, Modelled(plan.memory, rates, scheduler_seconds=0.0))
    planned = [p.seconds(rates, plan.memory)["total"] for p in plan.stages if p.stage.blocks]
    assert [stage.seconds for stage in found] == pytest.approx(planned)
    assert len({stage.name for stage in found}) > 8


def test_a_small_graph_is_the_work_of_one_worker():
    plan = plan_of(10**4, 8)
    assert plan.setup.is_small
    alone = replace(plan.memory, workers=1)
    found, by_one = (
        describe_simulated(plan, Modelled(memory, Rates())) for memory in (plan.memory, alone)
    )
    assert found == by_one


def test_stages_that_are_repeated_are_added_up():
    plan = plan_of(10**9, 64, 8)
    found = describe_simulated(plan, Modelled(plan.memory, Rates()))
    assert [stage["name"] for stage in found["stages"]] == [
        stage["name"] for stage in plan.describe()["stages"]
    ]
    assert found["seconds"] == pytest.approx(sum(s["seconds"] for s in found["stages"]), abs=0.1)
    for one in (found, *found["stages"]):
        assert one["seconds"] == pytest.approx(sum(one["seconds_by_part"].values()), abs=0.01)
        assert one["binds"] in PARTS
    assert found["tasks"] == sum(stage["tasks"] for stage in plan.describe()["stages"])


def test_a_thousand_workers_are_ten_times_as_fast_as_64_where_there_is_enough_to_do():
    few, many = (plan_of(10**11, workers, 8) for workers in (64, 1000))
    seconds = [
        describe_simulated(plan, Modelled(plan.memory, Rates()))["seconds"] for plan in (few, many)
    ]
    assert seconds[0] > 10 * seconds[1]


def test_what_large_graphs_cost_on_many_workers():
    """The table of docs/scale.md: bytes, tasks and seconds of 64 workers, and 1,000 beside them."""
    found = predict(10**10, 64)
    assert found.moved_bytes < 200e12
    assert found.tasks < 300_000
    assert found.seconds < 6 * 3600
    many = predict(10**10, 1000)
    assert many.seconds < found.seconds / 3
    assert many.network_seconds < many.seconds


def test_measured_seconds_stand_beside_simulated_ones():
    metric = _beside(6.0, 4.0, 2, 2_000_000)
    assert metric.what == "simulate: 2 workers of 1 thread, 2 M edges"
    assert (metric.value, metric.reached) == (1.5, True)
    assert metric.detail == "6.00 s measured, 4.00 s simulated: 1.50 x"
    assert _beside(4.0, 8.0, 1, 2_000_000).value == 2.0
