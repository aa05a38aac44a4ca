"""A scheduler and workers in processes of their own, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.waiting import LONG, wait_until

Process = subprocess.Popen[bytes]


def _start(
    arguments: Sequence[str], path: Path | None = None, prefix: Sequence[str] = ()
) -> Process:
    environment = dict(os.environ) | ({} if path is None else {"PYTHONPATH": str(path)})
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def start_scheduler(folder: Path) -> tuple[Process, str]:
    """Start a scheduler; return its address, too."""
    file = folder / "scheduler.json"
    scheduler = _start(
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    )
    wait_until(lambda: file.exists() and file.read_text().endswith("}"), "the scheduler listens")
    return scheduler, json.loads(file.read_text())["address"]


def start_worker(
    address: str,
    *,
    name: str = "",
    threads: int = 1,
    memory: str = "2GB",
    path: Path | None = None,
    prefix: Sequence[str] = (),
) -> Process:
    """Start a worker without a nanny, so that the process that was started is the worker itself.

    `path`: where it looks for modules first. `prefix`: words before its command.
    """
    options = ["--nthreads", str(threads), "--memory-limit", memory, "--no-nanny"]
    named = ["--name", name] if name else []
    return _start(["worker", address, "--host", "127.0.0.1", *options, *named], path, prefix)


def stop(processes: Iterable[Process]) -> None:
    """End processes that were started here."""
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait(timeout=LONG)
