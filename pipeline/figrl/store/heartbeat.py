"""A heartbeat: a function that is called every few seconds while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from figrl.errors import FigrlError

BEAT_SECONDS = 5.0
_LAST_BEAT_SECONDS = 30.0


@contextmanager
def heartbeat(beat: Callable[[], None], seconds: float | None = None) -> Iterator[None]:
    """Call `beat` every few seconds in a daemon thread until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds or BEAT_SECONDS):
            # A beat that cannot be written is followed by others.
            with suppress(OSError, FigrlError):
                beat()

    thread = threading.Thread(target=run, name="figrl-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A file system that hangs must not keep the job from ending.
        thread.join(_LAST_BEAT_SECONDS)
