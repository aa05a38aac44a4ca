"""Memory of a process: how much it holds now, and how much it held at most."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def peak_memory_bytes() -> int:
    """Largest resident size of this process since `reset_peak_memory`, or since its start.

    ``ru_maxrss`` is only the second choice: on Linux a child inherits the figure of the
    process it was forked from.
    """
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def release_memory() -> None:
    """Give back what allocators keep for later: in a worker that lives for days it adds up."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reset_peak_memory() -> int:
    """Release memory and forget the peak so far, where the system allows it.

    Returns the resident bytes now.
    """
    release_memory()
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")
    return int(psutil.Process().memory_info().rss)


def process_name() -> str:
    """Name this process in a way that means something on another machine."""
    return f"{os.uname().nodename}:{os.getpid()}"


def human_bytes(count: float) -> str:
    """Write a number of bytes for a person, in decimal units.

    Examples
    --------
    >>> human_bytes(1_234_000_000)
    '1.23 GB'
    """
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    index = 0
    while count >= 1000 and index < len(units) - 1:
        count /= 1000
        index += 1
    return f"{count:.0f} B" if index == 0 else f"{count:.3g} {units[index]}"


def human_seconds(seconds: float) -> str:
    """Write a duration for a person.

    Examples
    --------
    >>> human_seconds(3725)
    '1 h 02 min'
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
