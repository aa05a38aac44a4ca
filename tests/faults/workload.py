"""A small graph that has several blocks in each stage, the four jobs on it, and their bits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl.engine.session import Session
from figrl.ingestion.ingest import run_ingest
from figrl.ingestion.options import IngestOptions
from figrl.learn.spec import EmbedOptions
from figrl.serve.export import run_export
from figrl.serve.fold_in import FoldInOptions, run_fold_in
from figrl.serve.runs import run_embed

NODES = 4_500
INGEST = IngestOptions(block_rows=256)
EMBED = EmbedOptions(dim=4, width=8, depth=3, smoothing=3)

JOBS = ("ingest", "embed", "fold-in", "export")

Block = tuple[str, str]


@dataclass(frozen=True)
class Workload:
    """Input of the jobs: edges of the graph, and edges of new nodes."""

    edges: Path
    new_edges: Path

    @classmethod
    def write(cls, folder: Path) -> Workload:
        """Three files of several row groups; weights, so that the order of sums can be told."""
        rng = np.random.default_rng(0)
        (folder / "edges").mkdir(parents=True)
        for number in range(3):
            ends = rng.integers(0, NODES, (2, 6_000))
            table = {"source": ends[0], "target": ends[1], "weight": rng.random(6_000) + 0.1}
            path = folder / "edges" / f"part-{number}.parquet"
            pq.write_table(pa.table(table), path, row_group_size=1_000)
        new = np.arange(10**6, 10**6 + 70_000)
        table = {
            "source": new,
            "target": rng.integers(0, NODES, new.size),
            "weight": rng.random(70_000) + 0.1,
        }
        pq.write_table(pa.table(table), folder / "new.parquet", row_group_size=20_000)
        return cls(folder / "edges", folder / "new.parquet")

    def command(self, job: str, store: Path) -> list[str]:
        """Command line of a job, without the cluster."""
        return {
            "ingest": ["ingest", str(self.edges), "--store", str(store), "--block-rows", "256"],
            "embed": [
                *("embed", "--store", str(store), "--dim", "4"),
                *("--width", "8", "--depth", "3", "--smoothing", "3"),
            ],
            "fold-in": [
                *("fold-in", str(self.new_edges), "--store", str(store)),
                *("--out", str(output(store, "fold-in"))),
            ],
            "export": ["export", "--store", str(store), "--out", str(output(store, "export"))],
        }[job]

    def run(self, job: str, store: Path, client: distributed.Client) -> dict[str, Any]:
        """Do the same as `command`, by the client that is given."""
        session = Session(client)
        if job == "ingest":
            return run_ingest(self.edges, store, INGEST, session)
        if job == "embed":
            return run_embed(store, EMBED, session)
        out = output(store, job)
        if job == "fold-in":
            return run_fold_in(store, self.new_edges, out, FoldInOptions(), session)
        return run_export(store, out, session)


def output(store: Path, job: str) -> Path:
    """Where a job on a store puts what it makes: a folder, or one file."""
    names = {"ingest": "graph", "embed": "runs", "fold-in": "new.parquet", "export": "vectors"}
    folder = store if job in ("ingest", "embed") else store.with_name(store.name + "-out")
    return folder / names[job]


def bits(store: Path, job: str) -> dict[str, str]:
    """Digest of each file that a job has made, by its path."""
    made = output(store, job)
    paths = [made] if made.is_file() else sorted(p for p in made.rglob("*") if p.is_file())
    return {
        str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        # A manifest tells how long things took; what begins with a dot is nobody's.
        if path.name != "manifest.json" and not path.name.startswith(".")
    }


def marked_blocks(store: Path) -> set[Block]:
    """Stage and key of each block whose mark is on the disk: in the store, or beside an output."""
    folders = store, output(store, "export").parent
    marks = (mark for folder in folders for mark in folder.rglob("marks/*/*.json"))
    return {(mark.parent.name, mark.stem) for mark in marks}
