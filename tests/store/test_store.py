"""The store and its files: one writer, nothing half-written, and clear words for what is broken."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

from figrl.errors import BadInputError, ConfigError, DamagedError, StoreInUseError
from figrl.store.arrays import ArraySpec, create_array, open_zarr, read_range, write_rows
from figrl.store.files import (
    append_line,
    atomic_write,
    delete,
    digest,
    free_bytes,
    get,
    load_array,
    modified_time,
    read_json,
    save_array,
    size_bytes,
    write_json,
    write_text,
)
from figrl.store.heartbeat import heartbeat
from figrl.store.layout import FORMAT, existing_store, read_manifest, store_paths, write_manifest
from figrl.store.leftovers import list_temporary
from figrl.store.lock import owner_of
from tests.waiting import LONG, wait_until

HOLD_LOCK = """
import sys, time
from figrl.store.layout import store_paths
with store_paths(sys.argv[1]).locked("embed"):
    print("locked", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lock of the store."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


INDICES = st.one_of(
    basic_indices((23, 9), allow_newaxis=False),
    st.tuples(st.lists(st.integers(-23, 22), min_size=1), st.slices(9)),
    st.tuples(st.slices(23), st.lists(st.integers(-9, 8), min_size=1)),
    st.lists(st.booleans(), min_size=23, max_size=23),
)


@given(INDICES)
def test_any_index_of_a_stored_array_gives_what_numpy_gives(tmp_path_factory, index):
    folder = tmp_path_factory.getbasetemp() / "indexed"
    values = np.arange(23 * 9, dtype=np.float32).reshape(23, 9)
    if not folder.exists():
        create_array(ArraySpec(folder, values.shape, (5, 4)))
        zarr.open_array(str(folder))[...] = values
    expected = values[index]
    np.testing.assert_array_equal(open_zarr(folder)[index], expected)
    lazy = da.from_array(open_zarr(folder), chunks=(10, 9))
    np.testing.assert_array_equal(np.asarray(lazy[index].compute()), expected)


@pytest.mark.parametrize("index", [23, -24, (0, 9)])
def test_a_number_that_is_too_large_is_an_index_error(tmp_path, index):
    create_array(ArraySpec(tmp_path / "array", (23, 9), (5, 4)))
    with pytest.raises(IndexError):
        open_zarr(tmp_path / "array")[index]


def test_a_locked_store_names_its_owner_and_is_free_when_that_dies(holder, tmp_path):
    paths = store_paths(tmp_path / "store")
    expected = rf"'embed' \(process {os.uname().nodename}:{holder.pid}, running for .* ago\)"
    with pytest.raises(StoreInUseError, match=expected) as caught, paths.locked("ingest"):
        pytest.fail("two jobs have the lock")
    assert caught.value.exit_code == 6
    holder.kill()
    holder.wait()
    with paths.locked("ingest"):
        pass


def test_a_lock_ends_with_its_job_also_after_an_error(tmp_path):
    paths = store_paths(tmp_path)
    for _ in range(2):
        with pytest.raises(KeyError), paths.locked("ingest"):
            raise KeyError
    assert owner_of(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}"])
def test_an_owner_that_cannot_be_read_is_another_job(tmp_path, text):
    paths = store_paths(tmp_path)
    with paths.locked("ingest"):
        (tmp_path / ".owner.json").write_text(text)
        with pytest.raises(StoreInUseError, match="another job"), paths.locked("embed"):
            pass


def test_an_owner_elsewhere_keeps_the_store_while_it_shows_signs_of_life(tmp_path, monkeypatch):
    """As on a file system where this machine does not see the locks of another."""
    paths = store_paths(tmp_path)
    owner = {"purpose": "reindex", "process": "elsewhere:7", "token": "x", "since": 0.0}
    beating = threading.Event()

    def beat():
        while not beating.wait(0.05):
            write_json(tmp_path / ".owner.json", {**owner, "beat": time.time()})

    write_json(tmp_path / ".owner.json", {**owner, "beat": 0.0})
    thread = threading.Thread(target=beat)
    thread.start()
    with (
        pytest.raises(StoreInUseError, match=r"'reindex' \(process elsewhere:7"),
        paths.locked("embed"),
    ):
        pass
    beating.set()
    thread.join()
    monkeypatch.setattr("figrl.store.lock.DEAD_AFTER_SECONDS", 1.0)
    with paths.locked("embed") as lock:
        lock.check()
        found = owner_of(tmp_path)
        assert found is not None
        assert found["purpose"] == "embed"
        write_json(tmp_path / ".owner.json", {**owner, "beat": time.time()})
        with pytest.raises(StoreInUseError, match="taken over by 'reindex'"):
            lock.check()
    assert owner_of(tmp_path) is not None, "it belongs to the other"


def test_a_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr("figrl.store.heartbeat.BEAT_SECONDS", 0.02)
    with store_paths(tmp_path).locked("embed"):
        first = owner_of(tmp_path)
        wait_until(lambda: owner_of(tmp_path) != first, "the heart beats")
        assert first is not None
        later = owner_of(tmp_path)
        assert later is not None
        assert later["beat"] > first["beat"]
        assert later["since"] == first["since"]


def test_a_beat_that_fails_is_followed_by_others(monkeypatch):
    monkeypatch.setattr("figrl.store.heartbeat.BEAT_SECONDS", 0.01)
    beats = threading.Semaphore(0)

    def beat():
        beats.release()
        raise OSError("disk full")

    with heartbeat(beat):
        assert all(beats.acquire(timeout=LONG) for _ in range(3))


def test_logs_grow_by_lines_and_leftovers_are_found(tmp_path):
    log = tmp_path / "logs" / "a.jsonl"
    for line in ("one", "two"):
        append_line(log, line, durable=True)
    assert get(log) == b"one\ntwo\n"
    assert abs(modified_time(log) - time.time()) < LONG
    (tmp_path / ".run.1234abcd.tmp").mkdir()
    assert [path.name for path in list_temporary(tmp_path)] == [".run.1234abcd.tmp"]


def test_readers_see_one_published_run_or_the_other(tmp_path):
    paths = store_paths(tmp_path)
    paths.publish("a" * 4000)
    seen, stop = set(), threading.Event()

    def read():
        while not stop.is_set():
            seen.add(paths.current_run())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        paths.publish("ab"[number % 2] * 4000)
    stop.set()
    reader.join()
    assert seen
    assert seen <= {"a" * 4000, "b" * 4000}
    assert paths.current_run() == "b" * 4000
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_a_run_is_finished_when_it_has_a_manifest(tmp_path):
    paths = store_paths(tmp_path)
    assert paths.current_run() is None
    assert paths.finished_runs() == []
    for number, name in enumerate(("second", "first", "unfinished")):
        paths.run(name).mkdir(parents=True)
        if name != "unfinished":
            write_manifest(paths.run(name), {"run": name})
            os.utime(paths.run(name) / "manifest.json", (100 - number, 100 - number))
    assert paths.finished_runs() == ["first", "second"]


def test_a_store_without_a_graph_says_how_to_make_one(tmp_path):
    with pytest.raises(BadInputError, match=r"no graph in .*figrl ingest EDGES --store"):
        existing_store(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_store_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        store_paths(tmp_path / "file")


def test_a_manifest_comes_back(tmp_path):
    write_manifest(tmp_path / "run", {"dim": 3, "path": "ü"})
    assert read_manifest(tmp_path / "run") == {"format": FORMAT, "dim": 3, "path": "ü"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"is not complete: it has no manifest.json"),
        (b"", r"damaged: .*manifest.json cannot be read"),
        (b'{"format": 1', r"damaged: .*manifest.json cannot be read"),
        (b"\xff\x00", r"damaged: .*manifest.json cannot be read"),
        (b"[1]", r"damaged: .*manifest.json has no checksum"),
        (b'{"format": 99}', rf"has layout 99; this version of figrl reads layout {FORMAT}"),
        (b"{}", r"damaged: .*manifest.json has no checksum"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path) in caught.value.message


def test_atomic_write_leaves_nothing_behind_on_error(tmp_path):
    path = tmp_path / "new" / "file.txt"

    def write():
        with atomic_write(path) as aside:
            aside.write_text("half")
            assert not path.exists()
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert list(path.parent.iterdir()) == []


def test_atomic_write_keeps_the_old_content_on_error(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write():
        with atomic_write(path) as aside:
            aside.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert path.read_text() == "old"
    with atomic_write(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_removes_a_folder_that_was_not_finished(tmp_path):
    def write():
        with atomic_write(tmp_path / "folder") as aside:
            (aside / "deep").mkdir(parents=True)
            (aside / "deep" / "file").touch()
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_json_that_cannot_be_written_leaves_the_old(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json") == {"a": 1}
    write_text(tmp_path / "x.json", '{"a": 2}', durable=True)
    assert read_json(tmp_path / "x.json") == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_is_removed_in_one_step(tmp_path, monkeypatch):
    """Killed in the middle of it, a job must not leave marks whose output is gone."""
    folder = tmp_path / "run"
    for name in ("output", "marks"):
        (folder / name).mkdir(parents=True)
        (folder / name / "000.json").touch()

    def killed(path: Path, **_: object) -> None:
        assert sorted(child.name for child in Path(path).iterdir()) == ["marks", "output"]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(folder)
    assert not folder.exists()
    delete(folder)


def test_remove_takes_files_links_and_nothing(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    for name in ("link", "file", "nothing"):
        delete(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
    delete(tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_arrays_come_back(tmp_path):
    values = np.arange(12, dtype=np.uint32).reshape(3, 4)
    save_array(tmp_path / "x.npy", values)
    np.testing.assert_array_equal(load_array(tmp_path / "x.npy"), values)
    mapped = load_array(tmp_path / "x.npy", mapped=True)
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    assert mapped.dtype == np.uint32


@pytest.fixture
def array(tmp_path):
    create_array(ArraySpec(tmp_path / "array", (10, 7), (4, 3)))
    return open_zarr(tmp_path / "array")


def test_rows_of_one_and_two_dimensions_are_written(tmp_path, array):
    create_array(ArraySpec(tmp_path / "vector", (10,), (4,), "int64"))
    vector = open_zarr(tmp_path / "vector")
    write_rows(vector, 0, np.zeros(10))
    write_rows(vector, 4, np.arange(4))
    np.testing.assert_array_equal(np.asarray(vector[...]), [0, 0, 0, 0, 0, 1, 2, 3, 0, 0])
    write_rows(array, 8, np.ones((2, 7), np.float32))
    assert array[8:].sum() == 14
    with pytest.raises(DamagedError, match="c/0/0 is missing"):
        array[...]
    with pytest.raises(AssertionError):
        write_rows(vector, 2, np.arange(4))


def test_ranges_are_what_zarr_reads(tmp_path):
    create_array(ArraySpec(tmp_path / "vector", (10,), (4,), "uint64"))
    zarr.open_array(str(tmp_path / "vector"))[...] = np.arange(10)
    for start, stop in ((0, 10), (0, 4), (3, 5), (8, 10), (9, 10), (4, 8)):
        found = read_range(tmp_path / "vector", start, stop, chunk=4, dtype=np.uint64)
        np.testing.assert_array_equal(found, np.arange(start, stop, dtype=np.uint64))
    chunk = tmp_path / "vector" / "c" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-8])
    with pytest.raises(BadInputError, match="c/1 has 28 bytes where 36 belong"):
        read_range(tmp_path / "vector", 0, 10, chunk=4, dtype=np.uint64)
    chunk.unlink()
    with pytest.raises(BadInputError, match="c/1 is missing"):
        read_range(tmp_path / "vector", 0, 10, chunk=4, dtype=np.uint64)


def test_chunks_of_zeros_are_on_the_disk(tmp_path, array):
    write_rows(array, 0, np.zeros((4, 7), np.float32))
    chunk = tmp_path / "array" / "c" / "0" / "0"
    assert chunk.read_bytes()[:48] == bytes(48)


def test_create_array_keeps_what_is_the_same_and_replaces_what_is_not(tmp_path, array):
    write_rows(array, 0, np.ones((4, 7), np.float32))
    same = {"shape": (10, 7), "chunks": (4, 3), "dtype": np.float32}
    create_array(ArraySpec(tmp_path / "array", **(same)))
    assert open_zarr(tmp_path / "array")[:4].sum() == 28
    for change in ({"shape": (11, 7)}, {"chunks": (4, 7)}, {"dtype": np.float64}):
        create_array(ArraySpec(tmp_path / "array", **(same)))
        write_rows(open_zarr(tmp_path / "array"), 0, np.ones((4, 7), np.float32))
        create_array(ArraySpec(tmp_path / "array", **(same | change)))
        changed = open_zarr(tmp_path / "array")
        assert not (changed.path / "c").exists()
        assert (changed.shape, changed.chunks, changed.dtype) == tuple((same | change).values())
    assert [path.name for path in tmp_path.iterdir()] == ["array"]


def test_equal_values_have_equal_digests():
    assert digest({"a": 1, "b": [2, None]}) == digest({"b": [2, None], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest({"a": 1}) != digest({"a": "1"})
    assert len(digest(1)) == 12


def test_sizes(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a").write_bytes(bytes(10))
    (tmp_path / "folder" / "deep" / "b").write_bytes(bytes(7))
    assert size_bytes(tmp_path / "folder") == 17
    assert size_bytes(tmp_path / "folder" / "a") == 10
    assert size_bytes(tmp_path / "nothing") == 0
    # Others write to the same disk.
    assert free_bytes(tmp_path / "not" / "yet") == pytest.approx(free_bytes(tmp_path), rel=0.1)
    assert free_bytes(tmp_path) > 0


def test_it_is_known_who_has_the_lock(tmp_path):
    with store_paths(tmp_path).locked("fold-in"):
        owner = owner_of(tmp_path)
    assert owner is not None
    assert owner["purpose"] == "fold-in"
    assert owner["process"] == f"{os.uname().nodename}:{os.getpid()}"
    assert abs(owner["beat"] - time.time()) < LONG
