"""What the processes of a local cluster load first: they leave Ctrl-C to the process of the job.

A terminal interrupts all of them at once. The job ends its workers itself, and says so in one line.
"""

from __future__ import annotations

import signal

import distributed


def dask_setup(worker: distributed.Worker) -> None:
    """Ignore the interrupts of the terminal; called by Dask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
