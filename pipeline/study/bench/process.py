"""Running a function in a process of its own, measured from outside."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from pipeline.errors import FigrlError

_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Measured:
    """What a process took.

    Attributes
    ----------
    seconds : float
        As the function itself says, or from its call to its return.
    peak_bytes : int
        Most resident memory of the process and all its children together.
    result : dict
        What the function returned.
    """

    seconds: float
    peak_bytes: int
    result: dict[str, Any]


class TookTooLongError(FigrlError):
    """A process was ended because its time was up."""


def run_apart(function: str, **arguments: Any) -> Measured:
    """Call ``module:function`` with arguments that JSON can write, in a process of its own."""
    return run_within(math.inf, function, **arguments)


def run_within(at_most: float, function: str, **arguments: Any) -> Measured:
    """Do the same, and end the process after `at_most` seconds."""
    command = [sys.executable, "-m", __name__, function, json.dumps(arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = _watch(process, time.monotonic() + at_most)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise FigrlError(
            f"{function} ended with exit code {process.returncode}; its error is above."
        )
    answer = json.loads(output.splitlines()[-1])
    return Measured(answer["seconds"], peak, answer["result"])


def _watch(process: subprocess.Popen[str], deadline: float) -> int:
    """Most memory of the process and its children, until it ends."""
    peak = 0
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise TookTooLongError("took too long")
        with suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
            peak = max(peak, sum(_resident(member) for member in family))
        time.sleep(_SAMPLE_SECONDS)
    return peak


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
