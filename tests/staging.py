"""A single stage on a cluster."""

from __future__ import annotations

import distributed

from pipeline.job import Monitor, Stage, StageResult
from pipeline.run import ClusterJob


def run_stage(client: distributed.Client, stage: Stage, monitor: Monitor) -> StageResult:
    """Run one stage as a job of its own."""
    return ClusterJob(client, stage.marks, monitor).run(stage.name, stage.function, stage.blocks)
