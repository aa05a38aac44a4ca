"""One night in a process of its own, which may end itself at a named step of publishing.

python -m tests.faults.night CONFIG SCHEDULER [STEP]
"""

from __future__ import annotations

import os
import signal
import sys

import distributed

import figrl.nightly.reindex
import figrl.serve.publish
from figrl.engine.session import Session
from figrl.errors import FigrlError
from figrl.nightly.config import read_reindex_config

STEPS = ("complete", "latest", "before current", "current", "recorded", "deleted")


def main(config: str, scheduler: str, last_step: str = "") -> int:
    """Run the night; the exit code of the command."""

    def failpoint(step: str) -> None:
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    figrl.serve.publish.failpoint = failpoint
    with distributed.Client(scheduler, set_as_default=False) as client:
        try:
            figrl.nightly.reindex.run_reindex(read_reindex_config(config), Session(client))
        except FigrlError as error:
            sys.stderr.write(error.message + "\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
