"""Waiting for something that happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 240.0
"""Seconds after which a wait is hopeless, even on a busy machine with cold numba caches."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = LONG) -> None:
    """Wait for something, but not for ever."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(0.02)
