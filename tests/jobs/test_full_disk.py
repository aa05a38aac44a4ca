"""A disk that is full, read-only or out of quota: exit codes 5 and 2, a path, no traceback.

The disk is a real one, a tmpfs, and only root can mount it; the errors arise wherever they do, in
this process or in a worker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from figrl.store.files import put, read_json, write_json
from figrl.store.reserve import RESERVE_BYTES, STEP_BYTES, keep_reserve, tell
from tests.faults.test_nights import vectors_of
from tests.learn.test_accurate import planted_edges
from tests.learn.test_embed import random_edges
from tests.nightly.test_alerts import firing, metrics_of
from tests.nightly.test_reindex import Nights
from tests.reference import write_edges

JOBS = ("ingest", "embed", "export", "fold-in", "reindex")

LEFT = [int(n) for n in os.environ.get("FIGRL_TEST_LEFT", "0 30").split()]
"""Kilobytes that are left on the disk: for nothing, or for the lock and some blocks."""


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._filler = folder, folder / "filler"

    def leave(self, kilobytes: int) -> None:
        """Fill the disk but for some kilobytes."""
        free = shutil.disk_usage(self.folder).free
        self._filler.write_bytes(bytes(max(free - 1024 * kilobytes, 0)))

    def free(self) -> None:
        self._filler.unlink()

    def remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def prepared(client, tmp_path_factory):
    """Folder with the input of all jobs, and a store before each of them."""
    from figrl import embed, ingest

    folder = tmp_path_factory.mktemp("prepared")
    nights = Nights(folder, client, ingest={"block_rows": 64})
    nights.write(1, planted_edges(3))
    nights.run()
    (folder / "store").rename(folder / "reindex")
    nights.write(2, [(i, i + 1) for i in range(60)])
    nights.config()
    edges = write_edges(folder / "edges.parquet", random_edges(5, 300, weighted=False))
    write_edges(folder / "new.parquet", [(10_000 + i, i % 100) for i in range(2_000)])
    (folder / "ingest").mkdir()
    ingest(edges, store=folder / "embed", client=client, block_rows=64)
    shutil.copytree(folder / "embed", folder / "export")
    embed(folder / "export", client=client, dim=8, sketch_size=32)
    shutil.copytree(folder / "export", folder / "fold-in")
    return folder


def set_up(prepared, job, folder):
    """Put the store of a job on the disk; return the job's words."""
    shutil.rmtree(folder / "store", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.copytree(prepared / job, folder / "store")
    store, out = folder / "store", folder / "out"
    if job == "reindex":
        shutil.copy(prepared / "night.yaml", folder)
        text = (prepared / "night.yaml").read_text()
        (folder / "night.yaml").write_text(
            text.replace("sources: edges", f"sources: {prepared}/edges")
        )
    return {
        "ingest": ["ingest", prepared / "edges.parquet", "--store", store, "--block-rows", 64],
        "embed": ["embed", "--store", store, "--dim", 8, "--sketch-size", 32],
        "export": ["export", "--store", store, "--out", out],
        "fold-in": ["fold-in", prepared / "new.parquet", "--store", store, "--out", out],
        "reindex": ["reindex", folder / "night.yaml"],
    }[job]


def check_that_it_is_told(figrl, store, job):
    """In space that the store keeps for it, while the disk is still full."""
    status = figrl("status", "--store", store, "--json").json
    last = status["last_jobs"][-1]
    assert (last["job"], last["result"], last["exit_code"]) == (job, "failed", 5)
    assert "no space left" in last["reason"] or "kB of disk" in last["reason"]
    if job == "reindex":
        made, event = status["last_attempt"], status["history"][-1]
        assert (made["job"], made["result"], made["exit_code"]) == (job, "failed", 5)
        assert (event["action"], event["reason"]) == ("failed", made["reason"])
        metrics = metrics_of(store)
        assert metrics["figrl_last_job_exit_code"] == 5
        assert metrics["figrl_last_attempt_served"] == 0
        assert metrics["figrl_disk_free_bytes"] < 1 << 20
        assert {"FigrlNightFailed", "FigrlDiskLow"} <= firing(metrics, 0)


def test_many_nights_on_a_full_disk_are_told(figrl, prepared, disk):
    words = set_up(prepared, "reindex", disk.folder)
    disk.leave(0)
    for number in range(1, 5):
        assert figrl(*words).code == 5
        jobs = figrl("status", "--store", disk.folder / "store", "--json").json["last_jobs"]
        assert [one["exit_code"] for one in jobs].count(5) == number
    disk.free()
    assert figrl(*words).code == 0
    assert (disk.folder / "store" / "logs" / ".reserve").stat().st_size == RESERVE_BYTES


def test_a_reserve_is_given_up_by_steps_and_filled_up_again(disk):
    keep_reserve(disk.folder)
    reserve = disk.folder / "logs" / ".reserve"
    assert reserve.stat().st_size == reserve.stat().st_blocks * 512 == RESERVE_BYTES
    disk.leave(0)
    tell(disk.folder, lambda: write_json(disk.folder / "told", {"why": "full"}))
    assert read_json(disk.folder / "told") == {"why": "full"}
    assert reserve.stat().st_size == RESERVE_BYTES - STEP_BYTES
    with pytest.raises(OSError, match="No space left"):
        tell(disk.folder, lambda: put(disk.folder / "large", bytes(2 * RESERVE_BYTES)))
    assert reserve.stat().st_size == 0
    keep_reserve(disk.folder)
    assert reserve.stat().st_size == 0, "what is left is for others"
    disk.free()
    keep_reserve(disk.folder)
    assert reserve.stat().st_size == RESERVE_BYTES


@pytest.mark.parametrize("job", JOBS)
def test_a_full_disk_ends_with_5_and_the_job_goes_on_when_there_is_space(
    figrl, prepared, disk, job
):
    codes = []
    for kilobytes in LEFT:
        words = set_up(prepared, job, disk.folder)
        published = vectors_of(disk.folder / "store") if job == "reindex" else None
        disk.leave(kilobytes)
        outcome = figrl(*words)
        codes.append(outcome.code)
        assert outcome.code in (0, 5), outcome.err
        assert "Traceback" not in outcome.err
        if outcome.code == 5 and job in ("embed", "reindex"):
            check_that_it_is_told(figrl, disk.folder / "store", job)
        disk.free()
        if outcome.code == 5:
            # The plan of a run counts what is free before anything is written.
            assert str(disk.folder) in outcome.err or "kB of disk" in outcome.err
            if published is not None:
                assert vectors_of(disk.folder / "store") == published
            assert figrl(*words).code == 0
    assert codes[0] == 5


@pytest.mark.parametrize("job", ["ingest", "embed", "reindex"])
def test_a_read_only_store_ends_with_2_and_the_path(figrl, prepared, disk, job):
    words = set_up(prepared, job, disk.folder)
    disk.remount("ro")
    outcome = figrl(*words)
    assert outcome.code == 2
    assert f"error: {disk.folder}/store/" in outcome.err
    assert "the file system is read-only" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("job", ["export", "fold-in"])
def test_a_read_only_output_ends_with_2_and_the_path(figrl, prepared, disk, tmp_path, job):
    words = set_up(prepared, job, tmp_path)
    disk.remount("ro")
    outcome = figrl(*words[:-1], disk.folder / "out")
    assert outcome.code == 2
    assert f"error: {disk.folder}/" in outcome.err
    assert "the file system is read-only" in outcome.err
