"""Makes ``layout-3.tar.gz``, a store of layout 3 and what the code of then answers of it.

It runs on that code, which is in the history of the repository (the parent of the commit that
added checksums):

    git worktree add /tmp/old 203ebf6^
    PYTHONPATH=/tmp/old/pipeline:/tmp/old/jobs python tests/store/older/make_layout_3.py

The store has two published nights and one that was refused, nodes that were folded in, clusters, a
pinned run and unfinished work. Logs and reports are left out: they are not read.
"""

from __future__ import annotations

import shutil
import tarfile
from contextlib import suppress
from pathlib import Path

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from figrl import export, find_clusters, run_reindex
from figrl.engine.session import Session
from figrl.errors import GateError
from figrl.nightly.config import ReindexConfig
from figrl.serve.fold_in import FoldInOptions, fold_in
from figrl.serve.overlay_update import run_fold_publish
from figrl.serve.publish import pin

FOLDER = Path("/tmp/figrl-layout-3")
STORE = FOLDER / "store"


def write(path: Path, edges: np.ndarray, weights: np.ndarray) -> Path:
    """Write edges between nodes named ``n000``, ``n001``, ..."""
    names = [np.array([f"n{number:03d}" for number in column]) for column in edges.T]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"source": names[0], "target": names[1], "weight": weights}), path)
    return path


def planted(seed: int, nodes: int, groups: int) -> np.ndarray:
    """Edges, most of them inside of groups."""
    rng = np.random.default_rng(seed)
    pairs = np.argwhere(np.triu(np.ones((nodes, nodes)), 1))
    same = pairs[:, 0] % groups == pairs[:, 1] % groups
    return pairs[rng.random(len(pairs)) < np.where(same, 0.25, 0.01)]


def main() -> None:
    """Make the store, ask it, and pack both."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    edges, rng = planted(1, 100, 5), np.random.default_rng(0)
    cut = len(edges) - 20
    parts = [edges[:cut], edges[cut:], np.array([[i, 99 - i] for i in range(45)])]
    settings = {
        "store": str(STORE),
        "sources": str(FOLDER / "edges"),
        "ingest": {"block_rows": 64},
        "embed": {"dim": 8, "width": 8, "depth": 3, "smoothing": 3},
        "gates": {"edges_change": 0.1},
    }
    with distributed.Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as client:
        session = Session(client)
        for night, part in enumerate(parts):
            path = FOLDER / "edges" / f"{night}.parquet"
            write(path, part, rng.integers(1, 4, len(part)).astype(float))
            with suppress(GateError):
                run = run_reindex(ReindexConfig(**settings), session)["run"]
            if night == 0:
                pin(STORE, run)
            if night == 1:
                new = np.array([[100, 0], [100, 5], [101, 1], [102, 2], [102, 100]])
                folded = write(FOLDER / "folded.parquet", new, np.ones(len(new)))
                run_fold_publish(STORE, folded, FoldInOptions(), session)
        find_clusters(STORE, 4, client=client)
        new = np.array([[160, 3], [160, 8], [161, 4]])
        late = write(FOLDER / "new.parquet", new, np.array([1.0, 2.0, 1.0]))
        export(STORE, out=FOLDER / "vectors.parquet", client=client)
        fold_in(STORE, late, out=FOLDER / "new-vectors.parquet", client=client)
    unfinished = STORE / "runs" / "0123456789ab" / "work" / "marks" / "project"
    unfinished.mkdir(parents=True)
    (unfinished / "0.json").write_text("{}")
    for left_out in (*STORE.glob("runs/*/log.jsonl"), *STORE.glob("runs/*/report.html")):
        left_out.unlink()
    for name in ("logs", "metrics.prom", ".lock"):
        path = STORE / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with tarfile.open(Path(__file__).with_name("layout-3.tar.gz"), "w:gz") as archive:
        for name in ("store", "vectors.parquet", "new.parquet", "new-vectors.parquet"):
            archive.add(FOLDER / name, name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
