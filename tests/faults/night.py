"""One night in a process of its own, which may end itself at a named step of publishing.

python -m tests.faults.night CONFIG SCHEDULER [STEP]
"""

from __future__ import annotations

import os
import signal
import sys

import distributed

import pipeline.nightly
import pipeline.serve.publish
from pipeline.api import Session
from pipeline.errors import FigrlError
from pipeline.nightly_config import read_reindex_config

STEPS = ("complete", "latest", "before current", "current", "recorded", "deleted")


def main(config: str, scheduler: str, last_step: str = "") -> int:
    """Run the night; the exit code of the command."""

    def reached(step: str) -> None:
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    pipeline.nightly.reached = reached  # type: ignore[attr-defined]
    pipeline.serve.publish.reached = reached
    with distributed.Client(scheduler, set_as_default=False) as client:
        try:
            pipeline.nightly.run_reindex(read_reindex_config(config), Session(client))
        except FigrlError as error:
            sys.stderr.write(error.message + "\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
