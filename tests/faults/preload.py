"""Loaded by each worker of a faulty cluster: faults between a block's output and its mark.

The folder that FIGRL_TEST_FAULTS names holds ``plan.json``, which says what happens at which block,
and is where the workers leave word: ``log`` has a line for each mark that was committed, and a file
``STAGE.KEY`` tells that the fault of this block has happened.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from figrl.engine import block as blocks
from figrl.store.files import write_json

_FOLDER = Path(os.environ["FIGRL_TEST_FAULTS"])


def _meet_fault(stage: str, key: str) -> None:
    fault = json.loads((_FOLDER / "plan.json").read_text()).get(stage)
    if fault is None or fault["key"] != key:
        return
    try:
        (_FOLDER / f"{stage}.{key}").touch(exist_ok=False)
    except FileExistsError:
        return
    if fault["what"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def _commit(mark: Path, stats: Any) -> None:
    _meet_fault(mark.parent.name, mark.stem)
    write_json(mark, stats)
    with (_FOLDER / "log").open("a") as log:
        log.write(f"{mark.parent.name} {mark.stem}\n")


blocks.write_json = _commit  # type: ignore[attr-defined]
