"""Damage to a small store, one file at a time: what verify finds, and what every call then does.

Beyond CI: ``python -m tests.faults.flips --count 10000`` flips that many bits, chosen at random
over all files; some of the flips are met by export and fold-in too, and some are repaired.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow.parquet as pq

import figrl
from figrl.analyze.clusters import run_cluster
from figrl.engine.session import Session
from figrl.errors import FigrlError
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.index import build_index
from figrl.serve.overlay_update import run_fold_publish
from figrl.serve.repair import run_repair
from figrl.store.layout import store_paths
from tests.conftest import running
from tests.reference import write_edges

NODES = 60


@dataclass(frozen=True)
class Small:
    """A store with a graph, a run, an overlay and an index, and what its calls return."""

    store: Path
    new_edges: Path
    client: distributed.Client
    expected: dict[str, Any]

    def calls(self, *, jobs: bool) -> dict[str, Callable[[], Any]]:
        """All calls that give vectors; with those that run on a cluster if asked for."""
        quick = {
            "lookup": lambda: self._run().lookup(self._ids()),
            "vectors": lambda: np.asarray(self._run().vectors.compute(scheduler="sync")),
            "neighbors": lambda: figrl.neighbors(self.store, self._ids(), count=3).to_pylist(),
            "approximate": lambda: figrl.neighbors(
                self.store, self._ids(), count=3, approximate=True
            ).to_pylist(),
        }
        slow = {"export": self._export, "fold-in": self._fold_in}
        return {**quick, **(slow if jobs else {})}

    def _run(self) -> figrl.Embedding:
        return figrl.open_store(self.store).embedding()

    def _ids(self) -> list[str]:
        return [*(f"n{i}" for i in range(NODES)), "x1", "x2"]

    def _export(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            out = figrl.export(self.store, out=Path(folder) / "v", client=self.client)
            return pq.read_table(out).to_pylist()

    def _fold_in(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "v"
            figrl.fold_in(self.store, self.new_edges, out=out, client=self.client)
            return pq.read_table(out).to_pylist()

    def files(self) -> list[Path]:
        """All files of the store but its lock."""
        # Logs are not checked: nothing is computed from them.
        found = (path for path in self.store.rglob("*") if path.parent.name != "logs")
        return sorted(p for p in found if p.is_file() and not p.name.startswith("."))

    def repaired(self, change: bytes, path: Path) -> tuple[str, list[str]]:
        """Put something else in place of a file and repair the store: how it ended, and problems.

        The store is as it was after that.
        """
        before = {file: file.read_bytes() for file in self.files()}
        with _replaced(path, change):
            report = run_repair(store_paths(self.store), Session(self.client))
            left = report["damaged"]
            found = [f"{one['file']} is left" for one in left if "cannot" not in one]
            if not left:
                after = {file: file.read_bytes() for file in self.files()}
                found += self._other_bytes(before, after)
                found += [f"{one} after it" for one in self.wrong_calls(jobs=False)]
            for file in {*self.files()} - before.keys():
                file.unlink()
            for file, content in before.items():
                if not file.exists() or file.read_bytes() != content:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
        return ("said that it cannot" if left else "repaired"), found

    def _other_bytes(self, before: dict[Path, bytes], after: dict[Path, bytes]) -> list[str]:
        """Files that were not restored.

        Those that say when something happened say it anew; clusters are found again when somebody
        asks for them.
        """
        [overlay] = self.store.glob("runs/*/overlay/*/manifest.json")
        dated = {overlay, self.store / "history.jsonl", self.store / "attempt.json"}
        there = before.keys() & after.keys()
        other = {file for file in there - dated if before[file] != after[file]}
        other |= {file for file in before.keys() ^ after.keys() if file.parent.name != "clusters"}
        return [f"{file} is not the same" for file in other]

    def problems(self, change: bytes | None, path: Path, *, jobs: bool = False) -> list[str]:
        """Put something else in place of a file: what is not as it should be? Put it back."""
        found = []
        with _replaced(path, change):
            if not figrl.verify(self.store)["damaged"]:
                found.append("verify found nothing")
            found += self.wrong_calls(jobs=jobs)
        return found

    def wrong_calls(self, *, jobs: bool) -> list[str]:
        """Calls that neither give what they should, nor say that the store is damaged."""
        found = []
        for name, call in self.calls(jobs=jobs).items():
            try:
                if not _same(call(), self.expected[name]):
                    found.append(f"{name} gave something else")
            except FigrlError as error:
                if error.exit_code != 3:
                    found.append(f"{name} ended with {error.exit_code}: {error}")
            except Exception as error:
                found.append(f"{name} raised {type(error).__name__}: {error}")
        return found


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return found.shape == expected.shape and found.tobytes() == expected.tobytes()
    return bool(found == expected)


@contextmanager
def _replaced(path: Path, content: bytes | None) -> Iterator[None]:
    original = path.read_bytes()
    try:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        yield
    finally:
        path.write_bytes(original)


def flipped(path: Path, bit: int) -> bytes:
    """The bytes of a file with one bit flipped."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    return bytes(content)


def make_small(folder: Path, client: distributed.Client) -> Small:
    """Make the store, and note what its calls return while it is whole."""
    rng, store = np.random.default_rng(0), folder / "store"
    ends = [(a, b) for a, b in rng.integers(0, NODES, (300, 2)) if a != b]
    ring = [(i, (i + 1) % NODES) for i in range(NODES)]
    edges = [(f"n{a}", f"n{b}") for a, b in [*ends, *ring]]
    figrl.ingest(
        write_edges(folder / "edges.parquet", edges), store=store, client=client, block_rows=32
    )
    embedding = figrl.embed(store, dim=4, width=4, depth=2, keep_sketch=True, client=client)
    new = write_edges(folder / "new.parquet", [("x1", "n1"), ("x1", "n2"), ("x2", "n3")])
    run_fold_publish(store, new, FoldInOptions(), Session(client))
    run_cluster(store, 3, Session(client), out=folder / "clusters")
    build_index(client, embedding, store / "work" / "index", Session(client))
    more = write_edges(folder / "more.parquet", [("y1", "n4"), ("y2", "n50"), ("y2", "n7")])
    small = Small(store, Path(more), client, {})
    small.expected.update({name: call() for name, call in small.calls(jobs=True).items()})
    return small


def main() -> None:
    """Flip many bits and count what happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs-every", type=int, default=100, help="export and fold-in too")
    parser.add_argument("--repair-every", type=int, default=100)
    options = parser.parse_args()
    choose, counts = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, running(1, 1) as client:
        small = make_small(Path(folder), client)
        bits = [(path, 8 * path.stat().st_size) for path in small.files()]
        weights = [size for _, size in bits]
        for number in range(options.count):
            [(path, size)] = choose.choices(bits, weights)
            bit = choose.randrange(size)
            jobs = number % options.jobs_every == 0
            problems = small.problems(flipped(path, bit), path, jobs=jobs)
            counts.update({"flips": 1, "with jobs": jobs})
            if number % options.repair_every == 0:
                ended, more = small.repaired(flipped(path, bit), path)
                counts[ended] += 1
                problems += more
            counts.update(wrong=bool(problems))
            for problem in problems:
                sys.stdout.write(f"{path.relative_to(small.store)}, bit {bit}: {problem}\n")
            if number % 100 == 0:
                sys.stderr.write(f"{dict(counts)}\n")
    sys.stdout.write(f"{dict(counts)}\n")


if __name__ == "__main__":
    main()
