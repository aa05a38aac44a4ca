"""An hour of random jobs on one store, with faults, beside readers in processes of their own.

python -m tests.faults.soak FOLDER [--minutes 60] [--seed 0] [--readers 2]

The jobs, their faults and the model of what has to be in the store are those of
`tests.faults.machine`. Readers open the published run again and again, and tell what they saw: all
of it has to be a state that the run was in. Every few jobs the store is verified, tidied up, and
its files are counted. Prints counts as JSON, and with them how memory, open files and left-over
files grew. Exits with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import json
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from figrl.serve.embedding import open_store
from tests.faults import store_jobs as jobs
from tests.faults.every_call import watch_nothing
from tests.faults.machine import Fault, StoreMachine, World
from tests.faults.store_jobs import ARRIVALS, GRAPHS, OPTIONS, Vectors

JOBS_BETWEEN_CHECKS = 25
_OUTS = ("folder", "file.parquet")
_SECONDS_BETWEEN_LOOKS = 0.2


def content_of(vectors: Vectors) -> str:
    """Digest of ids and vectors."""
    content = hashlib.sha256()
    for node in sorted(vectors):
        content.update(b"%d " % node + vectors[node])
    return content.hexdigest()


def read_again_and_again(store: Path, log: Path, stop: Path) -> None:
    """Read the published run until a file appears; write down each content that was seen."""
    looks, seen, sizes = 0, set(), []
    while not stop.exists():
        run = open_store(store).embedding()
        found = f"{run.run} {content_of(jobs.run_vectors(run))}"
        looks += 1
        if found not in seen:
            seen.add(found)
            with log.open("a") as lines:
                lines.write(found + "\n")
        sizes.append(_resources())
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    sys.stdout.write(json.dumps({"looks": looks, "contents": len(seen), **grown(sizes)}) + "\n")


def _resources() -> dict[str, int]:
    this = psutil.Process()
    return {
        "bytes": this.memory_info().rss,
        "open_files": this.num_fds(),
        "threads": this.num_threads(),
    }


def grown(sizes: list[dict[str, int]]) -> dict[str, list[int]]:
    """Medians of the second, the third and the last quarter of some measures."""
    count = len(sizes)
    quarters = [sizes[count * k // 4 : count * (k + 1) // 4] or sizes[-1:] for k in (1, 2, 3)]
    names = sizes[0] if sizes else {}
    return {
        name: [sorted(one[name] for one in part)[len(part) // 2] for part in quarters]
        for name in names
    }


class Soak:
    """A store at work: random jobs, one after the other, and what was wrong about them."""

    def __init__(self, folder: Path, world: World, seed: int) -> None:
        self.folder, self.world, self.chance = folder, world, random.Random(seed)
        kind: Any = type("Machine", (StoreMachine,), {"world": world, "readers_elsewhere": True})
        self.machine: StoreMachine = kind()
        self.store = self.machine.place.store
        self.wrong: list[str] = []
        self.sizes: list[dict[str, int]] = []
        self.rules: dict[str, Callable[[], Any]] = {
            "ingest": lambda: self.machine.ingest(self._one(GRAPHS), self._fault()),
            "embed": lambda: self.machine.embed(
                self._options(), self.chance.random() < 0.7, self._fault()
            ),
            "night": lambda: self.machine.night(self._one(GRAPHS), self._options(), self._fault()),
            "publish": lambda: self.machine.publish(self._pick(), self._fault()),
            "roll back": lambda: self.machine.roll_back(self._fault()),
            "pin": lambda: self.machine.pin(
                self._pick(), self.chance.random() < 0.4, self._fault()
            ),
            "retire": lambda: self.machine.retire(self.chance.randint(1, 3), self._fault()),
            "fold in and serve": lambda: self.machine.fold_and_serve(
                self._one(ARRIVALS), self._fault()
            ),
            "fold in": lambda: self.machine.fold_in(
                self._one(ARRIVALS), self._one(_OUTS), self._fault()
            ),
            "export": lambda: self.machine.export(self._pick(), self._one(_OUTS), self._fault()),
            "open": lambda: self.machine.open_reader(self._pick()),
            "close": self.machine.close_reader,
        }

    def _one(self, choices: Any) -> Any:
        return self.chance.choice(list(choices))

    def _options(self) -> int:
        return self.chance.randrange(len(OPTIONS))

    def _pick(self) -> int:
        return self.chance.randrange(100)

    def _fault(self) -> Fault:
        kind = self._one(["none", "none", "the disk is gone", "killed"])
        most = self._one([30, 400])
        return Fault(kind, self.chance.randint(1, most), self.chance.random() < 0.5)

    def begin(self) -> None:
        """Publish a first run, so that there is something to read."""
        none = Fault("none", 0, False)
        self.machine.ingest(0, none)
        self.machine.embed(0, True, none)

    def step(self) -> None:
        """Do a job and compare; what is wrong is noted, and is from there on what is there."""
        name = self._one(self.rules)
        self._compared(name, self.rules[name])

    def check(self) -> None:
        """Verify the store, tidy it up, and count what it and this process hold."""
        self._compared("verify", self.machine.check_whole)
        self._compared("tidy up", self.machine.check_tidy)
        gc.collect()
        files = [path for path in self.store.rglob("*") if path.is_file()]
        beside = [path for path in self.store.parent.iterdir() if path != self.store]
        counted = {"files": len(files), "runs": len(self.machine.model.runs)}
        self.sizes.append({**_resources(), **counted, "files_beside": len(beside)})

    def _compared(self, name: str, rule: Callable[[], Any]) -> None:
        try:
            rule()
        except Exception:
            self.wrong.append(f"{name}: {traceback.format_exc()}")
            sys.stderr.write(self.wrong[-1] + "\n")
            self.machine.model = self.machine.observe()

    def check_seen(self, readers: list[Path]) -> None:
        """Compare what readers saw with all states that a run may be in."""
        expected = self.world.expected
        seen = {line for log in readers if log.exists() for line in log.read_text().splitlines()}
        served = [
            frozenset(some)
            for count in range(len(ARRIVALS) + 1)
            for some in itertools.combinations(ARRIVALS, count)
        ]
        for key, name in expected.runs.items():
            left = {line for line in seen if line.startswith(name)}
            for some in served:
                if left:
                    left.discard(f"{name} {content_of(expected.vectors(*key, some))}")
            self.wrong += [f"a reader saw {line}" for line in sorted(left)]
        names = tuple(expected.runs.values())
        self.wrong += [f"a reader saw {line}" for line in seen if not line.startswith(names)]


@contextmanager
def reading(store: Path, folder: Path, count: int) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Have processes read a store; yield what ends them and tells what they counted."""
    stop = folder / "stop"
    readers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.faults.soak", str(folder)),
                *("--read", str(store), str(folder / f"seen-{number}")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]

    def end() -> list[dict[str, Any]]:
        stop.touch()
        told: list[dict[str, Any]] = []
        for reader in readers:
            printed, errors = reader.communicate(timeout=300)
            ended = {"exit_code": reader.returncode, "errors": errors[-4000:]}
            told.append(json.loads(printed) if reader.returncode == 0 else ended)
        return told

    try:
        yield end
    finally:
        stop.touch()
        for reader in readers:
            reader.wait(timeout=300)


def run(folder: Path, *, minutes: float, seed: int, readers: int) -> dict[str, Any]:
    """Soak a store for some minutes; counts, and what was wrong."""
    watch_nothing()
    with jobs.in_process_client(folder) as client:
        soak = Soak(folder, World(folder, client), seed)
        soak.begin()
        with reading(soak.store, folder, readers) as end:
            started = time.monotonic()
            for number in itertools.count(1):
                soak.step()
                if number % JOBS_BETWEEN_CHECKS == 0:
                    soak.check()
                    _report(folder, soak, time.monotonic() - started)
                if time.monotonic() - started > 60 * minutes:
                    break
            told = end()
        soak.wrong += [f"a reader failed: {one}" for one in told if "errors" in one]
        soak.check_seen([folder / f"seen-{number}" for number in range(readers)])
        soak.machine.close_reader()
        soak.machine.readers_elsewhere = False
        soak.check()
        report = _report(folder, soak, time.monotonic() - started)
        return {**report, "readers": told, "wrong": soak.wrong}


def _report(folder: Path, soak: Soak, seconds: float) -> dict[str, Any]:
    counts: Counter[str] = soak.world.counts
    facts = {"minutes": round(seconds / 60, 1), "counts": counts, "checks": len(soak.sizes)}
    report = {**facts, "mismatches": len(soak.wrong), "grown": grown(soak.sizes)}
    (folder / "progress.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--read", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    if asked.read:
        read_again_and_again(*asked.read, folder / "stop")
        return 0
    folder.mkdir(parents=True)
    report = run(folder, minutes=asked.minutes, seed=asked.seed, readers=asked.readers)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(_main())
