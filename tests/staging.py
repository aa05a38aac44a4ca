"""A single stage on a cluster."""

from __future__ import annotations

from pathlib import Path

import distributed

from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import Monitor, Silent, Stage, StageResult


def run_stage(
    client: distributed.Client, marks: Path, stage: Stage, monitor: Monitor | None = None
) -> StageResult:
    """Run one stage as a job of its own."""
    return ClusterRunner(client, marks, monitor or Silent()).run_stage(stage)
