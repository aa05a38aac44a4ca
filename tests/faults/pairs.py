"""Two of the same job at once, again and again: one result, whole, and a clear exit code 6.

python -m tests.faults.pairs --count 100 [--kinds export fold-in embed reindex] [--seed 0]

The two processes of a pair have loaded figrl before; they start at the same moment, or one of them
up to a second later. Prints for each kind how often the pair ended with which exit codes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from figrl.serve.embedding import open_store
from figrl.serve.publish import history
from figrl_jobs.main import main
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges

KINDS = ("export", "fold-in", "embed", "reindex")

Codes = tuple[int, int]

_LATEST_SECONDS = 1.0
"""Most by which one of two starts later: about as long as a job takes."""


class Process:
    """A process that runs one command line of figrl after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.pairs", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, words: list[str], at: float) -> None:
        """Start a command line at a time of the machine's clock."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"words": words, "at": at}) + "\n")
        self._process.stdin.flush()

    def finish(self) -> tuple[int, str]:
        """Exit code, and what was printed to standard error."""
        assert self._process.stdout is not None
        done = json.loads(self._process.stdout.readline())
        return done["code"], done["errors"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve() -> None:
    """Run the command lines that come in; write down how each ended."""
    out = sys.stdout
    for line in sys.stdin:
        asked, errors = json.loads(line), io.StringIO()
        time.sleep(max(asked["at"] - time.monotonic(), 0))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = main(asked["words"])
        out.write(json.dumps({"code": code, "errors": errors.getvalue()}) + "\n")
        out.flush()


@dataclass
class Pairs:
    """A store, jobs on it, what each makes when it is alone, and two processes."""

    folder: Path
    client: distributed.Client
    seed: int = 0
    processes: list[Process] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Pairs:
        self.cluster = self.folder / "cluster.yaml"
        self.cluster.write_text(f"scheduler: {self.client.scheduler.address}\n")
        write_edges(self.folder / "edges" / "first.parquet", planted_edges(3))
        write_edges(self.folder / "new.parquet", [(5000 + i, i) for i in range(30)])
        ingest = ["ingest", str(self.folder / "edges"), "--block-rows", "64"]
        self._alone([*ingest, "--store", str(self._store("graph"))])
        shutil.copytree(self._store("graph"), self._store("learnt"))
        self._alone(self._words("embed", self._store("learnt"), self.folder))
        self._alone(self._words("reindex", self._store("night"), self.folder))
        write_edges(self.folder / "edges" / "second.parquet", [(i, i + 1) for i in range(40)])
        for kind in KINDS:
            place = self.folder / "alone" / kind
            store = self._prepare(kind, place)
            self._alone(self._words(kind, store, place))
            self.expected[kind] = self._result(kind, store, place)
        self.processes = [Process(), Process()]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.close()

    def _store(self, name: str) -> Path:
        return self.folder / f"store-{name}"

    def _alone(self, words: list[str]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*words, "--cluster", str(self.cluster)]) == 0, words

    def _prepare(self, kind: str, place: Path) -> Path:
        """The store of a pair: a copy of its own where the job writes to it."""
        place.mkdir(parents=True)
        if kind in ("export", "fold-in"):
            return self._store("learnt")
        origin = self._store("graph" if kind == "embed" else "night")
        return Path(shutil.copytree(origin, place / "store"))

    def _words(self, kind: str, store: Path, place: Path) -> list[str]:
        if kind == "reindex":
            config = {"store": str(store), "sources": str(self.folder / "edges")}
            (place / "night.yaml").write_text(
                yaml.safe_dump({**config, "embed": {"dim": 4, "smoothing": 2}})
            )
            return ["reindex", str(place / "night.yaml")]
        if kind == "embed":
            return ["embed", "--store", str(store), "--dim", "4", "--smoothing", "2"]
        edges = [str(self.folder / "new.parquet")] if kind == "fold-in" else []
        return [kind, *edges, "--store", str(store), "--out", str(place / "out.parquet")]

    def _result(self, kind: str, store: Path, place: Path) -> Any:
        """What a job has made: a table of ids and vectors; nothing else lies where it works."""
        if kind in ("export", "fold-in"):
            [out] = place.iterdir()
            return pq.read_table(out)
        view = open_store(store)
        run = view.embedding()
        assert view.runs[-1] == run.run
        assert not list((store / "work").glob("*")), "work is left"
        published = [event["action"] for event in history(view.paths)]
        vectors = pa.array(list(run.lookup(run.ids().to_pylist())))
        return [published, run.run, pa.table({"id": run.ids(), "vector": vectors})]

    def run(self, kind: str, number: int) -> Codes:
        """Run a pair; the exit codes, after what it made was compared with what one alone makes."""
        chance = random.Random(f"{self.seed} {kind} {number}")
        place = self.folder / f"{kind}-{number}"
        store = self._prepare(kind, place)
        words = self._words(kind, store, place)
        if kind in ("export", "fold-in"):
            # One file or a folder; replaced by the second, or refused.
            words[-1] = str(place / chance.choice(["out.parquet", "out"]))
            words += ["--overwrite"] * chance.randint(0, 1)
        at, late = time.monotonic() + 0.05, chance.choice([0.0, chance.uniform(0, _LATEST_SECONDS)])
        for process, start in zip(self.processes, [at, at + late], strict=True):
            process.start([*words, "--cluster", str(self.cluster)], start)
        ended = [process.finish() for process in self.processes]
        for code, errors in ended:
            self._check_end(code, errors, overwritten="--overwrite" in words)
        assert 0 in (code for code, _ in ended), f"neither did it: {ended}"
        assert self.expected[kind] == self._result(kind, store, place), f"{kind} is not whole"
        shutil.rmtree(place)
        first, second = sorted(code for code, _ in ended)
        return first, second

    def _check_end(self, code: int, errors: str, *, overwritten: bool) -> None:
        if code == 2:
            # The second came when the first was done.
            assert not overwritten, errors
            assert "is there already" in errors, errors
            return
        assert code in (0, 6), errors
        if code == 6:
            # Just after a job took the lock, its name is not written down yet: "another job".
            assert "is in use by" in errors or "is being written by" in errors, errors


def count_pairs(pairs: Pairs, kind: str, count: int) -> Counter[Codes]:
    """Run pairs of a kind; how often they ended with which exit codes."""
    return Counter(pairs.run(kind, number) for number in range(count))


def _main() -> None:
    from tests.conftest import running

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return
    with (
        tempfile.TemporaryDirectory(prefix="figrl-pairs-") as folder,
        running(2, 1) as client,
        Pairs(Path(folder), client, asked.seed) as pairs,
    ):
        for kind in asked.kinds:
            started = time.monotonic()
            ended = count_pairs(pairs, kind, asked.count)
            took = time.monotonic() - started
            told = ", ".join(f"{times} x {codes}" for codes, times in sorted(ended.items()))
            line = f"{kind}: {asked.count} pairs, exit codes {told} ({took:.0f} s)\n"
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    _main()
