"""Every call of the operating system of a whole night fails: once, for good, or by SIGKILL.

python -m tests.faults.every_call FOLDER [--every N] [--first N]

A night (ingest, embed, align, check, publish, retire) runs on a store that has a night before it.
All opens for reading and writing, renames, deletions, lists and syncs below the store are counted.
Then, for every N-th of them and each fault, the night runs again in a process of its own that meets
the fault there, and once more without a fault. Prints counts as JSON. Exits with 1 if something is
wrong: a traceback, a hang, a published run that is neither the old nor the new one, or other bits
at the end.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib
import json
import logging
import os
import pickle
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numba.core.dispatcher import Dispatcher

import figrl.nightly.report
import figrl.store.heartbeat
from figrl.learn.projection import quantile_table
from figrl_jobs.main import main
from tests.learn.test_accurate import planted_edges
from tests.nightly.test_reindex import Nights

FAULTS = ("fails once", "fails for good", "is killed")
SECONDS = 600.0

_EVENTS = {
    "os.rename": "rename",
    "os.scandir": "list",
    "os.listdir": "list",
    "os.remove": "delete",
    "os.rmdir": "delete",
    "os.mkdir": "write",
}
_ARROW = ((pa, "OSFile"), (pa, "memory_map"), (pq, "ParquetWriter"), (pq, "ParquetFile"))


class Calls:
    """Counts calls below a folder, and has one of them meet a fault."""

    def __init__(self, folder: Path, fault: str | None, number: int) -> None:
        self._folder = str(folder)
        self.arm(fault, number)

    def arm(self, fault: str | None, number: int) -> None:
        """Count from the beginning; the call of a number, from 1 on, meets the fault."""
        self._fault, self._number = fault, number
        self._broken: str | None = None
        self.kinds: list[str] = []

    def install(self) -> None:
        """Watch this process until it ends."""
        sys.addaudithook(self._audit)
        os.fsync = self._watched(os.fsync, "sync")
        os.write = self._watched(os.write, "write")
        os.preadv = self._watched(os.preadv, "read")
        for module, name in _ARROW:
            kind = "write" if "Writer" in name else "read"
            setattr(module, name, self._watched(getattr(module, name), kind))

    def _watched(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def watched(target: Any, *args: Any, **options: Any) -> Any:
            is_open = isinstance(target, int)
            self._meet(Path(f"/proc/self/fd/{target}").readlink() if is_open else target, kind)
            return function(target, *args, **options)

        return watched

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            writing = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            self._meet(args[0], "write" if writing else "read")
        elif event in _EVENTS:
            self._meet(args[0], _EVENTS[event])

    def _meet(self, path: Any, kind: str) -> None:
        if not isinstance(path, str | Path) or not str(path).startswith(self._folder):
            return
        self.kinds.append(kind)
        if len(self.kinds) == self._number:
            if self._fault == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            self._broken = {"fails for good": kind, "is gone": "all"}.get(self._fault or "")
        if len(self.kinds) == self._number or self._broken in (kind, "all"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def _note_loaded(path: Path) -> None:
    """Write down what a night has loaded: modules, and kernels with the types they are for."""
    kernels = [
        (module, name, value.signatures)
        for module, found in list(sys.modules.items())
        if module.startswith("figrl")
        for name, value in vars(found).items()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module
    ]
    path.write_bytes(pickle.dumps((list(sys.modules), kernels)))


def _load(path: Path) -> None:
    """Load what a night has loaded, so that those that are forked from here need not."""
    modules, kernels = pickle.loads(path.read_bytes())
    for module in modules:
        # A few modules within libraries cannot be loaded by the names that they give themselves.
        with suppress(ImportError):
            importlib.import_module(module)
    for module, name, signatures in kernels:
        for signature in signatures:
            getattr(sys.modules[module], name).compile(signature)
    quantile_table()
    draw_nothing()
    watch_nothing()


def draw_nothing() -> None:
    """Leave out what is drawn in memory, and takes longer than all else: no call to the disk."""
    figrl.nightly.report._pictures = lambda *_: iter(())
    figrl.nightly.report.render_page = lambda *_, **__: "a page"  # type: ignore[attr-defined]


def watch_nothing() -> None:
    """Make clusters without web pages and profiles, which nobody looks at."""
    dask.config.set({f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")})
    dask.config.set({"distributed.worker.profile.enabled": False})
    # Nor a log of messages: in one process it holds what the tasks held, with open files.
    dask.config.set({"distributed.admin.low-level-log-length": 0})


class Harness:
    """A store before a night, and what the night makes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        nights = Nights(folder, None, keep={"runs": 1})
        nights.write(1, planted_edges(2))
        self._store, self._config = nights.store, nights.config()
        # All in one process, one block after the other, so that calls keep their order.
        arguments = {
            "processes": False,
            "n_workers": 1,
            "threads_per_worker": 1,
            "memory_limit": "4GB",
            "dashboard_address": "127.0.0.1:0",
            "silence_logs": logging.CRITICAL,
        }
        section = {"class": "distributed.LocalCluster", "arguments": arguments}
        (folder / "cluster.yaml").write_text(yaml.safe_dump({"custom": section}))
        self._night_ends_with(0)
        self._before = self._published()
        shutil.copytree(self._store, folder / "before", symlinks=True)
        nights.write(2, [(i, i + 1) for i in range(60)])
        self._night_ends_with(0, "loads")
        self._after = self._published()
        _load(folder / "loaded")
        assert self._after != self._before

    def _night_ends_with(self, code: int, fault: str | None = None) -> None:
        found, printed = self.night(fault, 0)
        assert found == code, printed

    def _published(self) -> str:
        """Name and vectors of the published run."""
        name = (self._store / "current").read_text().strip()
        content = hashlib.sha256(name.encode())
        for array in ("embedding", "basis"):
            for path in sorted((self._store / "runs" / name / array).rglob("c/*/*")):
                content.update(path.read_bytes())
        return content.hexdigest()

    def go_back(self) -> None:
        """Put the store as it was before the night."""
        shutil.rmtree(self._store)
        shutil.copytree(self._folder / "before", self._store, symlinks=True)

    def night(self, fault: str | None, number: int) -> tuple[int | str, str]:
        """Run the night in a process of its own; its exit code, or how it ended, and its words."""
        log = self._folder / "log"
        child = os.fork()
        if child == 0:
            self._run_here(log, fault, number)
        deadline = time.monotonic() + SECONDS
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "hung", log.read_text()
            time.sleep(0.02)
        code = os.waitstatus_to_exitcode(ended[1])
        return ("killed" if code == -signal.SIGKILL else code), log.read_text()

    def _run_here(self, log: Path, fault: str | None, number: int) -> None:
        code = 1
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            # Beats come by the clock, and would be counted in one run but not in the other.
            figrl.store.heartbeat.BEAT_SECONDS = 3600.0
            calls = Calls(self._store, fault, number)
            calls.install()
            cluster = self._folder / "cluster.yaml"
            code = main(["reindex", str(self._config), "--cluster", str(cluster)])
            (self._folder / "kinds.json").write_text(json.dumps(calls.kinds))
            if fault == "loads":
                _note_loaded(self._folder / "loaded")
            sys.stderr.flush()
        finally:
            os._exit(code)

    def count(self) -> list[str]:
        """Kind of each call of the night."""
        self.go_back()
        self._night_ends_with(0)
        kinds: list[str] = json.loads((self._folder / "kinds.json").read_text())
        return kinds

    def check(self, fault: str, number: int) -> tuple[int | str, str | None]:
        """Meet a fault; how the night ended, and what is wrong about it, if anything."""
        self.go_back()
        code, printed = self.night(fault, number)
        if code == "hung" or "Traceback" in printed or "Unexpected" in printed:
            return code, printed
        if self._published() not in (self._before, self._after):
            return code, "what is published is neither of the two runs"
        again, printed = self.night(None, 0)
        if again != 0:
            return code, f"the night after it ends with {again}: {printed}"
        if self._published() != self._after:
            return code, "the night after it published other bits"
        return code, None


def run(folder: Path, *, every: int, first: int) -> dict[str, Any]:
    """Check every `every`-th call with each fault."""
    harness = Harness(folder)
    kinds = harness.count()
    numbers = range(first, len(kinds) + 1, every)
    ends: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    wrong = []
    for number in numbers:
        for fault in FAULTS:
            code, problem = harness.check(fault, number)
            ends[fault][str(code)] += 1
            if problem is not None:
                wrong.append(
                    {"fault": fault, "call": number, "kind": kinds[number - 1], "problem": problem}
                )
                sys.stderr.write(f"{fault} at call {number}, {kinds[number - 1]}: {problem}\n")
            with (folder / "cases.txt").open("a") as told:
                told.write(f"{number} {fault}: {code}\n")
    return {
        "calls": Counter(kinds),
        "cases": len(FAULTS) * len(numbers),
        "ends": ends,
        "wrong": wrong,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    report = run(given.folder.absolute(), every=given.every, first=given.first)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if report["wrong"] else 0)
