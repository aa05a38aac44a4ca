"""A job that runs in a worker: the same command, with a client and a reader of its own."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import distributed

from pipeline.errors import FigrlError
from pipeline.files import write_json
from pipeline.hosting import hosted_log, hosted_state
from pipeline.job import Monitor


@dataclass
class Host:
    """Where a hosted job runs, and what it reported."""

    client: distributed.Client
    monitor: Monitor
    report: dict[str, Any] = field(default_factory=dict)


host: ContextVar[Host | None] = ContextVar("host", default=None)
"""The host of the job in this thread; None in a process of its own."""


def host_job(folder: Path, job: str, params: dict[str, Any]) -> str:
    """Run a job as a task of the cluster; its thread is given back to other tasks meanwhile."""
    command = import_module(f"jobs.{job.replace('-', '_')}").command
    with (
        distributed.worker_client() as client,
        hosted_state(folder) as monitor,
        hosted_log(folder, monitor) as log,
    ):
        here = Host(client, log.monitor)
        token = host.set(here)
        try:
            command.callback(**params)
            write_json(folder / "report.json", here.report)
            log.event("done")
        except FigrlError as error:
            log.event("failed", error=error.message, exit_code=error.exit_code)
            raise
        finally:
            host.reset(token)
    return folder.name
