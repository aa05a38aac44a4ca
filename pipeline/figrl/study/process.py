"""Calls in a process of their own, whose time and memory are measured from outside."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from figrl.errors import FigrlError

_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Measured:
    """Seconds of a call, peak resident memory of its process and all children, and its result."""

    seconds: float
    peak_bytes: int
    result: dict[str, Any]


class ProcessTimeoutError(FigrlError):
    """A process was killed because it reached its timeout."""


def measure_in_process(
    function: Callable[..., Mapping[str, Any] | None],
    *,
    timeout_seconds: float = math.inf,
    **arguments: Any,
) -> Measured:
    """Call a function of a module in a process of its own, and measure it from outside.

    It takes and returns what JSON can hold. A result ``"seconds"`` replaces the measured time.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-m", __name__, name, json.dumps(arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = _watch(process, time.monotonic() + timeout_seconds)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise FigrlError(f"{name} ended with exit code {process.returncode}; its error is above.")
    answer = json.loads(output.splitlines()[-1])
    return Measured(answer["seconds"], peak, answer["result"])


def _watch(process: subprocess.Popen[str], deadline: float) -> int:
    """Peak memory of the process and its children."""
    peak = 0
    while process.poll() is None:
        if time.monotonic() > deadline:
            _kill_family(process.pid)
            raise ProcessTimeoutError("The process reached its timeout.")
        with suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
            peak = max(peak, sum(_resident(member) for member in family))
        time.sleep(_SAMPLE_SECONDS)
    return peak


def _kill_family(pid: int) -> None:
    """Kill a process and its children, such as the workers of its cluster."""
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for member in [*parent.children(recursive=True), parent]:
            with suppress(psutil.Error):
                member.kill()


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _main(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    started = time.perf_counter()
    result = call(**json.loads(arguments)) or {}
    seconds = result.pop("seconds", time.perf_counter() - started)
    sys.stdout.write("\n" + json.dumps({"seconds": seconds, "result": result}) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
