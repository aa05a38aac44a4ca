"""A store of layout 3, made by the code of then (`older/make_layout_3.py`), is migrated."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import figrl
from figrl.errors import BadInputError
from figrl.serve import migrate as serve_migrate
from figrl.serve.migrate import migrate
from figrl.serve.publish import history, is_pinned, is_reindexed
from figrl.serve.status import store_status
from figrl.serve.verify import verify
from figrl.store import migration
from figrl.store.layout import store_paths
from figrl_jobs.main import main

ARCHIVE = Path(__file__).parent / "older" / "layout-3.tar.gz"
ALL_JOBS = (
    *("status", "verify", "rollback", "plan", "embed", "cluster --clusters 3", "holes"),
    *("neighbors n001", "pin run", "ingest new.parquet", "export --out x.parquet"),
    "fold-in new.parquet --out x.parquet",
)


@pytest.fixture
def old(tmp_path, monkeypatch):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


def content(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}


def numbers(path: Path) -> np.ndarray:
    vectors = pq.read_table(path).sort_by("id")["vector"].combine_chunks()
    return np.asarray(vectors.flatten()).reshape(len(vectors), -1)


def test_ids_vectors_and_exports_are_those_of_then(old, client, capsys):
    assert main(["migrate", "--store", "store", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["from_format"], report["format"], report["already_done"]) == (3, 4, False)
    assert (len(report["graphs"]), len(report["runs"])) == (3, 3)
    assert verify(old)["damaged"] == []
    assert not (old / "migrating").exists()

    then, embedding = pq.read_table("vectors.parquet"), figrl.open_store(old).embedding()
    assert embedding.overlay is not None
    assert len(then) == len(embedding)
    vectors = embedding.lookup(then["id"].to_pylist())
    assert np.array_equal(vectors, np.stack(then["vector"].to_numpy()))
    figrl.export(old, out="now.parquet", client=client)
    now = pq.read_table("now.parquet")
    assert now["id"].equals(then["id"])
    assert now["vector"].equals(then["vector"])
    figrl.fold_in(old, "new.parquet", out="new-now.parquet", client=client)
    assert np.array_equal(numbers(Path("new-now.parquet")), numbers(Path("new-vectors.parquet")))

    paths = store_paths(old)
    events = [(event["action"], event["run"]) for event in history(paths)]
    assert [action for action, _ in events] == ["published", "published", "refused"]
    assert paths.current_run() == events[1][1]
    assert is_pinned(paths, events[0][1])
    assert is_reindexed(paths), "so the gates still protect its readers"
    status = store_status(old)
    assert status["last_attempt"]["result"] == "refused"
    assert {run["run"] for run in status["runs"]} == {run for _, run in events}

    before = content(old)
    assert migrate(old)["already_done"]
    assert content(old) == before

    chunk = embedding.path / "basis" / "c" / "0" / "0"
    chunk.write_bytes(b"\0" + chunk.read_bytes()[1:])
    assert main(["verify", "--store", "store", "--repair"]) == 3
    assert "made by an earlier version of figrl and migrated" in capsys.readouterr().err


def test_every_job_names_the_command(old, capsys):
    before = content(old)
    for job in ALL_JOBS:
        assert main([*job.split(), "--store", "store"]) == 3, job
        assert f"figrl migrate --store {old}" in capsys.readouterr().err
    with pytest.raises(BadInputError, match="figrl migrate"):
        figrl.open_store(old)
    assert content(old) == before


def test_it_is_killed_at_any_moment_and_goes_on(old, tmp_path):
    whole = tmp_path / "whole"
    shutil.copytree(old, whole)
    migrate(whole)
    wanted = {str(p.relative_to(whole)): p.read_bytes() for p in whole.rglob("c/*/*")}
    # In one process, which forks before it is killed: starting Python takes longer than migrating.
    code = f"""
import os, signal, sys
from figrl.serve.migrate import migrate
from figrl.store import files
for number in range(0, 2000, 23):
    if os.fork() == 0:
        left = [number]
        def counted(function):
            def call(*args, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)
            return call
        for name in ("put", "move", "delete", "atomic_write", "write_text", "write_record"):
            setattr(files, name, counted(getattr(files, name)))
        migrate({str(old)!r})
        os._exit(0)
    if os.wait()[1] == 0:
        print(number)
        break
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
    found = {str(p.relative_to(old)): p.read_bytes() for p in old.rglob("c/*/*")}
    assert found == wanted
    assert verify(old)["damaged"] == []
    assert not list((old / "work").iterdir())


def test_while_it_is_half_done_no_job_touches_the_store(old, monkeypatch, capsys):
    def fails(folder: Path, aside: Path) -> int:
        if folder.parent.name == "runs":
            raise OSError(28, os.strerror(28), str(folder))
        return migration.migrate_folder(folder, aside)

    monkeypatch.setattr(serve_migrate, "_migrate", fails)
    assert main(["migrate", "--store", "store"]) == 5
    capsys.readouterr()
    assert main(["status", "--store", "store"]) == 3
    assert "is being migrated, or that was interrupted" in capsys.readouterr().err
    monkeypatch.undo()
    with contextlib.chdir(old.parent):
        assert len(migrate(old)["runs"]) == 3
        assert verify(old)["damaged"] == []


@pytest.mark.parametrize("change", ["layout 2", "method", "chunk"])
def test_what_cannot_be_migrated_is_named(old, change):
    run = next(path for path in sorted((old / "runs").iterdir()) if (path / "embedding").exists())
    manifest = json.loads((run / "manifest.json").read_text())
    told = "Nothing was changed"
    if change == "layout 2":
        manifest["format"] = 2
    elif change == "method":
        del manifest["local_weight"]
    else:
        (run / "embedding" / "c" / "0" / "0").unlink()
        told = "is missing. Layout 3 has no checksums"
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = content(old)
    with pytest.raises(BadInputError, match=told) as error:
        migrate(old)
    assert str(run) in error.value.message
    if change != "chunk":
        logs = {old / "logs" / name for name in ("jobs.jsonl", ".reserve")}
        assert content(old).keys() - before.keys() <= {*logs, old / ".lock"}
        assert all(path.read_bytes() == before[path] for path in before)
