"""Many workers, simulated: the stages of a plan, handed out as the runner hands them out.

The stages, their blocks, bytes and operations are those of the plan; how long each takes follows
from the rates of a machine. What the plan adds up is played through here: blocks start in their
order as threads become free, workers share what they have in common, and a stage begins when the
one before it is complete. Workers exchange nothing but what they write to and read from the
storage, so that is all that goes through a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from figrl.bench.simulated_stage import PARTS, Modelled, SimulatedStage, simulate_stage
from figrl.learn.plan import EmbedPlan


def simulate(plan: EmbedPlan, modelled: Modelled) -> list[SimulatedStage]:
    """Play the stages of a plan through, one after the other."""
    if plan.setup.is_small:
        # One worker does it all as a single task, in which nothing is handed out.
        rates = replace(modelled.rates, task_seconds=0.0, stage_seconds=0.0)
        alone = replace(modelled.memory, workers=1)
        modelled = replace(modelled, memory=alone, rates=rates, scheduler_seconds=0.0)
    return [simulate_stage(planned, modelled) for planned in plan.stages if planned.stage.blocks]


def describe_simulated(plan: EmbedPlan, modelled: Modelled) -> dict[str, Any]:
    """Seconds of a simulated run as JSON can hold them, repetitions of a stage added up."""
    stages = simulate(plan, modelled)
    groups: dict[str, list[SimulatedStage]] = {}
    for stage in stages:
        groups.setdefault(stage.name, []).append(stage)
    grouped = [
        {
            "name": name,
            "times": len(group),
            "tasks": sum(stage.tasks for stage in group),
            **_summed(group),
        }
        for name, group in groups.items()
    ]
    tasks = sum(stage.tasks for stage in stages)
    return {"tasks": tasks, **_summed(stages), "stages": grouped}


def _summed(stages: Sequence[SimulatedStage]) -> dict[str, Any]:
    parts = {part: sum(stage.parts[part] for stage in stages) for part in PARTS}
    return {
        "seconds": round(sum(stage.seconds for stage in stages), 3),
        "binds": max(parts, key=parts.__getitem__),
        "seconds_by_part": {part: round(value, 3) for part, value in parts.items()},
    }
