"""Output that is put in its place: the last step of fold-in and export can be cut off as well."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from figrl import embed, export, fold_in, ingest
from figrl.errors import BadInputError, ConfigError
from figrl.serve.delivery import deliver
from tests.reference import write_edges


@pytest.fixture(scope="module")
def complete(client, tmp_path_factory):
    """A store with a run, and edges of new nodes."""
    folder = tmp_path_factory.mktemp("complete")
    edges = [(i, (i + step) % 90) for i in range(90) for step in (1, 5)]
    path = write_edges(folder / "edges.parquet", edges)
    ingest(path, store=folder / "store", client=client, block_rows=32)
    embed(folder / "store", dim=3, sketch_size=8, client=client)
    return folder / "store", write_edges(folder / "new.parquet", [(1000 + i, i) for i in range(20)])


@pytest.fixture
def learnt(complete, tmp_path):
    store, new = complete
    shutil.copytree(store, tmp_path / "store")
    return tmp_path / "store", new


class Killed(BaseException):
    """Stands for the death of the process: no handler of the product catches it."""


def run(job, learnt, out, client):
    store, new = learnt
    if job == "export":
        export(store, out=out, client=client)
    else:
        fold_in(store, new, out=out, client=client)


ROWS = {"export": 90, "fold-in": 20}
CALLS = {"export": "figrl.serve.export", "fold-in": "figrl.serve.fold_in"}


@pytest.mark.parametrize("job", ROWS)
@pytest.mark.parametrize("name", ["out.parquet", "out"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_is_killed_as_it_delivers(client, learnt, tmp_path, monkeypatch, job, name, moment):
    """Just before, or just after, the output takes its place: the same command goes on."""
    store, _ = learnt
    out = tmp_path / name

    def dying(move):
        def moved(path, target):
            if target != out:
                return move(path, target)
            if moment == "after":
                move(path, target)
            raise Killed

        return moved

    def not_reached(space: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        # A file is joined on a worker; the death of the job comes after that.
        patch.setattr("figrl.serve.output.clear", not_reached)
        with pytest.raises(Killed):
            run(job, learnt, out, client)
    run(job, learnt, out, client)
    assert pq.read_table(out).num_rows == ROWS[job]
    assert not (store / "work").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"store", out.name}
    with pytest.raises(ConfigError, match="is there already"):
        run(job, learnt, out, client)


@pytest.mark.parametrize("name", ["one.parquet", "one"])
def test_another_output_is_another_job(client, learnt, tmp_path, monkeypatch, name):
    def not_reached(space: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("figrl.serve.output.clear", not_reached)
        with pytest.raises(Killed):
            run("fold-in", learnt, tmp_path / name, client)
    run("fold-in", learnt, tmp_path / f"other-{name}", client)
    assert pq.read_table(tmp_path / f"other-{name}").num_rows == 20


@pytest.mark.parametrize("job", ROWS)
def test_a_folder_has_its_parts_and_nothing_else(client, learnt, tmp_path, monkeypatch, job):
    """Not the litter of a worker that died, and also on another disk than the store's."""
    move, elsewhere = os.rename, tmp_path / "elsewhere"

    def other_disk(source, target, **options):
        if Path(source).is_relative_to(elsewhere) != Path(target).is_relative_to(elsewhere):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return move(source, target, **options)

    def littered(runner, place, parts, *arguments):
        (parts / ".part-000000.parquet.0badf00d.tmp").touch()
        deliver(runner, place, parts, *arguments)

    monkeypatch.setattr(os, "rename", other_disk)
    monkeypatch.setattr(f"{CALLS[job]}.deliver", littered)
    run(job, learnt, elsewhere / "out", client)
    names = sorted(path.name for path in (elsewhere / "out").iterdir())
    blocks = {"export": 3, "fold-in": 1}[job]
    assert names == [f"part-{block:06d}.parquet" for block in range(blocks)]
    assert pq.read_table(elsewhere / "out").num_rows == ROWS[job]


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_a_job_never_delivers_the_parts_of_another(client, learnt, tmp_path, monkeypatch, name):
    """An export is killed, and a fold-in, which has fewer blocks, goes to the same place."""
    out = tmp_path / name

    def not_reached(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("figrl.serve.export.deliver", not_reached)
        with pytest.raises(Killed):
            run("export", learnt, out, client)
    run("fold-in", learnt, out, client)
    assert sorted(pq.read_table(out)["id"].to_pylist()) == list(range(1000, 1020))


@pytest.mark.parametrize("job", ROWS)
@pytest.mark.parametrize("name", ["out.parquet", "out"])
@pytest.mark.parametrize("damage", ["lost", "cut", "other"])
def test_parts_that_changed_are_not_delivered(
    client, learnt, tmp_path, monkeypatch, job, name, damage
):
    """Something else deletes a part, cuts it or puts another one there: an error, then a rerun."""
    out = tmp_path / name

    def changed(runner, place, parts, *arguments):
        part = parts / "part-000000.parquet"
        if damage == "lost":
            part.unlink()
        elif damage == "cut":
            part.write_bytes(part.read_bytes()[:-9])
        else:
            pq.write_table(pq.read_table(part)[1:], part)
        deliver(runner, place, parts, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(f"{CALLS[job]}.deliver", changed)
        with pytest.raises(BadInputError, match=r"changed since they were written: part-000000"):
            run(job, learnt, out, client)
    assert not out.exists()
    run(job, learnt, out, client)
    assert pq.read_table(out).num_rows == ROWS[job]
