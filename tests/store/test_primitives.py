"""Each primitive of storage, alone and beside other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from figrl.store.files import atomic_write, delete, exists, get, list_prefix, modified_time, put
from figrl.store.leftovers import delete_temporary, list_temporary
from tests.waiting import LONG

CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "object"


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("durable", [False, True])
def test_an_object_is_put_and_replaced(path, durable):
    for content in (b"first", b"", b"second"):
        put(path, content, durable=durable)
        assert get(path) == content
    assert names(path.parent) == ["object"]


def test_a_range_is_read(path):
    put(path, b"0123456789")
    assert get(path, start=3, size=4) == b"3456"
    assert get(path, start=7) == b"789"
    assert get(path, start=8, size=10) == b"89"
    assert get(path, start=20) == b""
    with pytest.raises(FileNotFoundError):
        get(path.with_name("missing"))


def _put_until_killed(path: Path) -> None:
    while True:
        put(path, b"b" * (1 << 22))
        put(path, b"a" * (1 << 22))


def test_a_killed_put_leaves_a_whole_object(path):
    put(path, b"a" * (1 << 22))
    for _ in range(5):
        process = CONTEXT.Process(target=_put_until_killed, args=(path,))
        process.start()
        time.sleep(0.05)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert get(path) in (b"a" * (1 << 22), b"b" * (1 << 22))
    assert list_prefix(path.parent) == [path], "what was left behind is hidden"


def test_a_put_that_is_killed_before_its_rename_leaves_the_old_object(path):
    put(path, b"old")

    def killed() -> None:
        with atomic_write(path) as aside:
            aside.write_bytes(b"ne")
            os.kill(os.getpid(), signal.SIGKILL)

    process = CONTEXT.Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert get(path) == b"old"
    assert len(names(path.parent)) == 2
    assert list_prefix(path.parent) == [path]


def test_a_list_leaves_hidden_names_out(tmp_path):
    assert list_prefix(tmp_path / "missing") == []
    for name in ("b.json", "a.json", ".hidden.json", "c.txt"):
        put(tmp_path / name, b"")
    put(tmp_path / "d" / "below.json", b"")
    assert [path.name for path in list_prefix(tmp_path)] == ["a.json", "b.json", "c.txt", "d"]
    assert [path.name for path in list_prefix(tmp_path, "*.json")] == ["a.json", "b.json"]
    with atomic_write(tmp_path / "e.json") as aside:
        aside.touch()
        assert [path.name for path in list_prefix(tmp_path, "*.json")] == ["a.json", "b.json"]


def test_what_was_left_half_written_is_deleted_wherever_it_is(tmp_path):
    kept = tmp_path / "array" / "c" / "0"
    for path in (kept, kept.with_name(".0.12345678.tmp"), tmp_path / ".a.12345678.tmp" / "b"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert list_temporary(tmp_path) == [tmp_path / ".a.12345678.tmp"]
    delete_temporary(tmp_path)
    assert list_temporary(tmp_path, deep=True) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


def test_a_prefix_is_deleted_in_one_step(tmp_path):
    """A reader sees all objects below a prefix, or none."""
    folder = tmp_path / "run"
    partial = []

    def watch(ready, seen):
        ready.set()
        while True:
            first, last = exists(folder / "000"), exists(folder / "499")
            if not first and last:
                # The folder may have gone between the two looks, but not come back.
                seen.put("partial")
            if not exists(folder):
                seen.put("gone")
                return

    for number in range(500):
        put(folder / f"{number:03d}", b"")
    ready, seen = CONTEXT.Event(), CONTEXT.Queue()
    watcher = CONTEXT.Process(target=watch, args=(ready, seen))
    watcher.start()
    ready.wait()
    delete(folder)
    while (what := seen.get(timeout=LONG)) != "gone":
        partial.append(what)
    watcher.join()
    assert partial == []
    assert names(tmp_path) == []


def test_the_time_of_an_object_is_that_of_its_last_put(path):
    put(path, b"")
    os.utime(path, (100, 100))
    assert modified_time(path) == 100
    put(path, b"")
    assert modified_time(path) == pytest.approx(time.time(), abs=LONG)
