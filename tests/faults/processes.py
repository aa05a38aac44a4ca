"""Processes that tests start, watch and kill: always by their own id, always on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.faults.workload import Block
from tests.waiting import LONG, wait_until

PRELOAD = Path(__file__).with_name("preload.py")
FIGRL = Path(sysconfig.get_path("scripts")) / "figrl"


@dataclass(frozen=True)
class Faults:
    """The folder by which tests and `preload` talk with each other."""

    folder: Path

    def plan(self, what: str, blocks: Sequence[Block]) -> None:
        """Say at which block, one in a stage, workers ``die`` or ``wait``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        faults = {stage: {"key": key, "what": what} for stage, key in blocks}
        (self.folder / "plan.json").write_text(json.dumps(faults))

    def happened(self, block: Block) -> bool:
        """Whether the fault of a block has happened."""
        return (self.folder / f"{block[0]}.{block[1]}").exists()

    def take_log(self) -> list[Block]:
        """Blocks whose marks were committed since the last time, in that order."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [(stage, key) for stage, key in (line.split() for line in lines)]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a process needs for its workers to be faulty."""
        return {
            "DASK_DISTRIBUTED__WORKER__PRELOAD": str(PRELOAD),
            "FIGRL_TEST_FAULTS": str(self.folder),
        }


@dataclass(frozen=True)
class Figrl:
    """A command line of figrl at work, in a session of its own."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Figrl:
        """Start a command line."""
        return cls(
            subprocess.Popen(
                [str(FIGRL), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
                cwd=cwd,
                start_new_session=True,
            )
        )

    def report(self) -> dict[str, Any]:
        """Wait for a good end; give the JSON object that it printed."""
        out, err = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, err
        printed: dict[str, Any] = json.loads(out)
        return printed

    def kill_when(self, condition: Callable[[], bool], what: str) -> None:
        """Kill the process once something has happened; wait until its workers are gone too."""
        try:
            wait_until(lambda: condition() or self.process.poll() is not None, what)
            assert self.process.poll() is None, self.process.communicate()[1]
        finally:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
        wait_until(lambda: not self._left(), "the workers of a killed job have ended")

    def _left(self) -> list[int]:
        """Processes of the session that are alive."""
        return [process.pid for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            ours = os.getsid(process.pid) == self.process.pid
            return ours and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False
