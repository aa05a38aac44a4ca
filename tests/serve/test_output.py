"""Where an output may be, what it may replace, who writes it; and that a store is only read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from figrl import embed, export, find_clusters, fold_in, ingest
from figrl.errors import ConfigError, StoreInUseError
from figrl.serve.output import check_output, output_locked
from tests.reference import write_edges

JOBS = ("export", "fold-in", "cluster")
NODES = 90


@pytest.fixture(scope="module")
def learnt(client, tmp_path_factory):
    """A folder with a store that has a run, and with edges of new nodes."""
    folder = tmp_path_factory.mktemp("learnt")
    edges = [(i, (i + step) % NODES) for i in range(NODES) for step in (1, 5)]
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=32)
    embed(folder / "store", dim=3, sketch_size=8, client=client)
    (folder / "new").mkdir()
    write_edges(folder / "new" / "new.parquet", [(1000 + i, i) for i in range(20)])
    return folder


def run(job: str, learnt: Path, out: Path, client, *, overwrite: bool = False) -> Path:
    store = learnt / "store"
    options = {"out": out, "overwrite": overwrite, "client": client}
    if job == "export":
        return export(store, **options)
    if job == "cluster":
        return find_clusters(store, 3, **options)
    return fold_in(store, learnt / "new", **options).path


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of all below a folder, folders too."""
    found = {str(path): path.lstat() for path in [folder, *folder.rglob("*")]}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("place", "relation"),
    [
        ("store", "is the store"),
        ("store/vectors", "lies in the store"),
        ("store/../store", "is the store"),
        (".", "holds the store"),
        ("link", "is the store"),
        ("link/v.parquet", "lies in the store"),
    ],
)
def test_the_store_is_no_place_for_an_output(client, learnt, job, place, relation):
    (learnt / "link").unlink(missing_ok=True)
    (learnt / "link").symlink_to("store")
    before = contents(learnt)
    with pytest.raises(ConfigError, match=relation):
        run(job, learnt, learnt / place, client, overwrite=True)
    assert contents(learnt) == before


@pytest.mark.parametrize(
    ("edges", "out", "relation"),
    [
        ("new", "new", "is the input"),
        ("new", "new/v.parquet", "lies in the input"),
        ("new/new.parquet", "new/new.parquet", "is the input"),
        ("new/new.parquet", "new", "holds the input"),
        ("new/*.parquet", "new/v.parquet", "is one of the files that the input"),
        ("linked", "new/v.parquet", "lies in the input"),
    ],
)
def test_neither_is_the_input(client, learnt, edges, out, relation):
    (learnt / "linked").unlink(missing_ok=True)
    (learnt / "linked").symlink_to("new")
    before = contents(learnt)
    with pytest.raises(ConfigError, match=relation):
        fold_in(learnt / "store", learnt / edges, out=learnt / out, overwrite=True, client=client)
    assert contents(learnt) == before


def test_rejected_rows_replace_nothing_of_others(client, learnt, tmp_path):
    bad = tmp_path / "v.quarantine" / "bad.parquet"
    bad.parent.mkdir()
    pq.write_table(pa.table({"source": [5000, None], "target": [1, 2]}), bad)
    out, store = tmp_path / "v", learnt / "store"
    options = {"on_bad_edges": "quarantine", "client": client}
    with pytest.raises(ConfigError, match="holds the input"):
        fold_in(store, bad, out=out, **options)
    moved = shutil.copy(bad, tmp_path / "bad.parquet")
    with pytest.raises(ConfigError, match=r"bad.parquet was not written by figrl"):
        fold_in(store, moved, out=out, **options)
    shutil.rmtree(bad.parent)
    for _ in range(2):
        fold_in(store, moved, out=out, overwrite=True, **options)
        assert pq.read_table(bad.parent)["row"].to_pylist() == [2]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", ["v.csv", "v.npy", "v.parq", "v.parquet.gz"])
def test_a_format_that_is_not_written_is_refused(client, learnt, tmp_path, job, name):
    with pytest.raises(ConfigError, match=r"only Parquet is written.*ends in \.parquet"):
        run(job, learnt, tmp_path / name, client)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_end_in_a_number(tmp_path):
    assert check_output(tmp_path / "v-1.2", store="store") == tmp_path / "v-1.2"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file is a file"):
        check_output(tmp_path / "file" / "v.parquet", store="store")


def foreign(kind: str, path: Path) -> None:
    """Put something at a path that figrl did not write."""
    table = pa.table({"id": [1], "vector": [[0.5]]})
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "text":
        path.write_text("precious")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "notes.txt").write_text("precious")


@pytest.mark.parametrize("kind", ["parquet", "text", "folder", "pipe"])
@pytest.mark.parametrize("name", ["v.parquet", "v"])
def test_only_what_figrl_wrote_is_replaced(client, learnt, tmp_path, kind, name):
    out = tmp_path / name
    foreign(kind, out)
    before = contents(tmp_path)
    for job in JOBS:
        with pytest.raises(ConfigError, match=r"was not written by figrl.*another out"):
            run(job, learnt, out, client, overwrite=True)
    assert {k: v for k, v in contents(tmp_path).items() if k != str(tmp_path)} == {
        k: v for k, v in before.items() if k != str(tmp_path)
    }


@pytest.mark.parametrize("name", ["v.parquet", "v"])
def test_an_output_of_another_job_may_be_replaced(client, learnt, tmp_path, name):
    out = tmp_path / name
    for job, rows in (("export", 90), ("fold-in", 20), ("cluster", 90), ("export", 90)):
        assert run(job, learnt, out, client, overwrite=True) == out
        assert pq.read_table(out).num_rows == rows
    if name == "v":
        (out / "notes.txt").write_text("precious")
        with pytest.raises(ConfigError, match=r"notes.txt was not written by figrl"):
            run("export", learnt, out, client, overwrite=True)
        assert (out / "notes.txt").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("job", JOBS)
def test_one_job_writes_an_output_at_a_time(client, learnt, tmp_path, job):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with (
        output_locked(tmp_path / "there" / "v", "export", overwrite=False),
        pytest.raises(StoreInUseError, match=r"there/v is being written by 'export'"),
    ):
        run(job, learnt, tmp_path / "link" / "v", client)
    out = run(job, learnt, tmp_path / "link" / "v", client)
    assert out == tmp_path / "there" / "v"


def test_the_lock_of_a_folder_that_is_gone_does_not_count(tmp_path, monkeypatch):
    """The job before deletes its folder with the lock just as the next one opens it."""
    from figrl.serve import output

    real, out, calls = output.locked, tmp_path / "v", []

    def late(space, purpose):
        calls.append(purpose)
        if len(calls) == 1:
            shutil.rmtree(space)
        elif len(calls) == 2:
            space.rename(tmp_path / "gone")
            space.mkdir()
        return real(space, purpose)

    monkeypatch.setattr(output, "locked", late)
    with output_locked(out, "export", overwrite=False) as place:
        assert len(calls) == 3
        assert (place.space / ".lock").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["gone"]


def test_a_store_is_only_read(client, learnt, tmp_path):
    before = contents(learnt / "store")
    for job in ("export", "fold-in"):
        run(job, learnt, tmp_path / job, client)
    assert contents(learnt / "store") == before


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
import distributed
from figrl import export, fold_in

store, new, out = map(Path, sys.argv[1:])
if __name__ == "__main__":
    with distributed.Client(processes=False, dashboard_address=None) as client:
        # Once before: another user may not be allowed to import what is not loaded yet.
        for attempt in ("before", "after"):
            export(store, out=out / attempt / "v.parquet", client=client)
            fold_in(store, new, out=out / attempt / "new.parquet", client=client)
            (out / attempt).chmod(0o777)
            if os.getuid() == 0:
                os.setgroups([]), os.setgid(65534), os.setuid(65534)
        try:
            (store / "x").touch()
        except PermissionError:
            os._exit(0)
    sys.exit("the store is writable")
"""


def test_a_read_only_store_is_enough(learnt):
    """In a process of a user who may read the store but not write to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(learnt, folder / "learnt", symlinks=True)
        below = [path for path in (folder / "learnt").rglob("*") if not path.is_symlink()]
        for path in below:
            path.chmod(0o555 if path.is_dir() else 0o444)
        (folder / "out").mkdir()
        for path, mode in ((folder, 0o755), (folder / "learnt", 0o555), (folder / "out", 0o777)):
            path.chmod(mode)
        arguments = [folder / "learnt" / "store", folder / "learnt" / "new", folder / "out"]
        done = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER, *map(str, arguments)],
            cwd=folder / "out",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        for path in [folder / "learnt", *below]:
            path.chmod(0o755)
        assert done.returncode == 0, done.stdout + done.stderr
        assert pq.read_table(folder / "out" / "after" / "v.parquet").num_rows == NODES
        assert pq.read_table(folder / "out" / "after" / "new.parquet").num_rows == 20


def test_a_job_that_begins_while_another_ends_keeps_its_lock(tmp_path, monkeypatch):
    out, following = tmp_path / "out.parquet", ExitStack()

    def delete_and_begin(space: Path) -> None:
        shutil.rmtree(space)
        following.enter_context(output_locked(out, "export", overwrite=True)).lock.check()

    monkeypatch.setattr("figrl.serve.output.clear", delete_and_begin)
    with output_locked(out, "export", overwrite=True):
        pass
    monkeypatch.undo()
    [space] = tmp_path.iterdir()
    with following:
        assert (space / ".owner.json").exists()
    assert not space.exists()


@pytest.mark.parametrize("name", ["v", "v[1].parquet"])
def test_what_a_killed_job_left_beside_an_output_is_deleted(client, learnt, tmp_path, name):
    for left in (f".{name}.0123abcd.tmp", f"..{name}.figrl.0123abcd.tmp"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "part-000000.parquet").write_bytes(b"half")
    (tmp_path / f".{name}.89abcdef.tmp").write_bytes(b"half")
    (tmp_path / f".{name}.mine.tmp").write_bytes(b"of the user")
    run("export", learnt, tmp_path / name, client)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{name}.mine.tmp", name]
