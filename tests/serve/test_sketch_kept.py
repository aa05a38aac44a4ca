"""The sketch goes when the vectors are made, unless it is to stay; repair works without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import figrl
from figrl.engine.session import Session
from figrl.serve.repair import run_repair
from figrl.serve.verify import verify
from figrl.store.layout import read_contents, store_paths
from tests.learn.test_embed import random_edges
from tests.reference import write_edges


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("c/*/*")}


@pytest.mark.parametrize("block_rows", [64, 1024])
def test_the_sketch_goes_and_the_vectors_are_the_same(client, tmp_path, block_rows):
    edges = write_edges(tmp_path / "edges.parquet", random_edges(5, 300, weighted=False))
    runs = {}
    for kept in (False, True):
        store = tmp_path / f"store-{kept}"
        figrl.ingest(edges, store=store, client=client, block_rows=block_rows)
        run = figrl.embed(store, dim=8, keep_sketch=kept, client=client)
        assert (run.path / "sketch").exists() is kept
        assert ("sketch" in read_contents(run.path)["arrays"]) is kept
        runs[kept] = run
    assert runs[False].run == runs[True].run, "it changes nothing that counts"
    assert content(runs[False].path / "embedding") == content(runs[True].path / "embedding")
    assert content(runs[False].path / "basis") == content(runs[True].path / "basis")
    without = tmp_path / "store-False"
    before = content(runs[False].path)
    [chunk] = list((runs[False].path / "embedding").rglob("c/0/0"))
    chunk.write_bytes(b"\0" * 7)
    shutil.rmtree(runs[False].path / "basis")
    assert verify(without)["damaged"]
    assert run_repair(store_paths(without), Session(client))["damaged"] == []
    assert content(runs[False].path) == before
