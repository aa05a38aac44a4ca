"""Every file of a store, damaged: verify names it, and no call gives a wrong vector."""

from __future__ import annotations

import shutil

import pytest

import figrl
from figrl.engine.session import Session
from figrl.errors import DamagedError
from figrl.serve.repair import run_repair
from figrl.store.layout import store_paths
from figrl_jobs.main import main
from tests.faults.flips import flipped, make_small


@pytest.fixture(scope="module")
def small(client, tmp_path_factory):
    return make_small(tmp_path_factory.mktemp("flips"), client)


def kind(path):
    """What a file is one of many of: its folders and suffix, without numbers and names."""
    parts = [part for part in path.parts if not part.isdigit() and len(part) != 12]
    return (*parts[:-1], path.suffix or ("" if path.stem.isdigit() else path.name))


def one_of_each_kind(small):
    return list({kind(path.relative_to(small.store)): path for path in small.files()}.values())


def test_a_whole_store_has_no_damage(small):
    report = figrl.verify(small.store)
    assert report["damaged"] == []
    assert (report["graphs"], report["runs"]) == (1, 1)
    assert len(one_of_each_kind(small)) > 20


@pytest.mark.parametrize("place", ["head", "middle", "tail"])
def test_a_flipped_bit_is_found_and_gives_no_wrong_vector(small, place):
    found = {}
    for number, path in enumerate(small.files()):
        size = path.stat().st_size
        at = {"head": min(5, size - 1), "middle": size // 2, "tail": size - 1}[place]
        problems = small.problems(flipped(path, 8 * at + number % 8), path)
        found |= {str(path): problems} if problems else {}
    assert found == {}


@pytest.mark.parametrize("left", [None, 0.0, 0.5, 1.0])
def test_a_file_that_is_missing_or_short_is_found(small, left):
    found = {}
    for path in small.files():
        if left is None and path.match("clusters/*.json"):
            # Clusters are complete when they have a report; without one they are found again.
            continue
        content = path.read_bytes()
        keep = None if left is None else content[: min(int(left * len(content)), len(content) - 1)]
        problems = small.problems(keep, path)
        found |= {str(path): problems} if problems else {}
    assert found == {}


def test_jobs_give_no_wrong_vector_either(small):
    found = {}
    for path in one_of_each_kind(small):
        problems = small.problems(flipped(path, 4 * path.stat().st_size), path, jobs=True)
        found |= {str(path): problems} if problems else {}
    assert found == {}


@pytest.mark.parametrize("name", ["../runs", "/tmp", "a/b", ".", "A", ""])
def test_a_name_that_is_no_digest_is_refused(small, name):
    for pointer in (small.store / "current", *small.store.glob("runs/*/overlay/current")):
        assert small.problems(f"{name}\n".encode(), pointer) == []


def test_what_is_damaged_is_named_and_repaired_to_the_same_bytes(small, client, tmp_path, capsys):
    store = tmp_path / "store"
    shutil.copytree(small.store, store)
    [run], [graph] = store.glob("runs/*"), store.glob("graph/*/")
    [shard], [version] = run.glob("index/*.usearch"), run.glob("overlay/*/vectors/000000.npy")
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for path in (
        graph / "edges" / "part-000000.parquet",
        graph / "degrees" / "c" / "1",
        graph / "ids" / "000000.arrow",
        run / "embedding" / "c" / "0" / "0",
        run / "basis" / "zarr.json",
        shard,
        version,
    ):
        path.write_bytes(flipped(path, 100))
    shutil.rmtree(run / "sketch")
    (store / "current").unlink()
    with pytest.raises(DamagedError, match=r"damaged: .*figrl verify --store .* --repair"):
        figrl.open_store(store).embedding(run.name).lookup(["n1"])
    assert main(["verify", "--store", str(store)]) == 3
    shown = capsys.readouterr().err
    assert str(run / "embedding" / "c" / "0" / "0") in shown
    assert f"graph {graph.name}" in shown
    report = run_repair(store_paths(store), Session(client))
    assert report["damaged"] == []
    assert str(run / "embedding" / "c" / "0" / "0") in {one["file"] for one in report["repaired"]}
    assert main(["verify", "--store", str(store)]) == 0
    after = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    # The overlay's manifest says when it was made.
    again = {
        version.parents[1] / "manifest.json",
        store / ".owner.json",
        store / "logs" / "jobs.jsonl",
    }
    assert after.keys() == before.keys()
    assert [path for path in before if before[path] != after[path] and path not in again] == []


def test_what_cannot_be_repaired_is_said(small, client, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(small.store, store)
    [graph] = store.glob("graph/*/manifest.json")
    graph.write_bytes(flipped(graph, 500))
    [left] = run_repair(store_paths(store), Session(client))["damaged"]
    assert left["file"] == str(graph)
    assert "ingest the edges again" in left["cannot"]
