"""A small graph is done by one worker: same stages, same bits, and it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from figrl import embed, ingest
from figrl.engine.local_runner import run_in_one_worker
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import Block, Silent, Stage, StageResult, Stages
from figrl.errors import BadInputError
from figrl.store.files import read_json, write_json
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges


def _count(folder: Path, number: int) -> dict[str, int]:
    path = folder / f"{number}.json"
    write_json(path, 1 + (read_json(path) if path.exists() else 0))
    return {"number": number}


def _two_stages(folder: Path, flag: Path) -> Stages[dict[str, int]]:
    first = yield Stage("first", _count, [Block(f"{i}", (folder, i)) for i in range(5)])
    if not flag.exists():
        flag.touch()
        raise BadInputError("stopped on purpose")
    second = yield Stage("second", _count, [Block("9", (folder, 9))])
    return {**second.only, "reused": first.reused}


class Heard(Silent):
    """Keeps the stages that are seen."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def finished(self, result: StageResult) -> None:
        self.stages.append(result.name)


def test_finished_blocks_are_not_done_again(client, tmp_path):
    args = tmp_path / "out", tmp_path / "flag"
    heard = Heard()

    def run() -> tuple[ClusterRunner, dict[str, int]]:
        runner = ClusterRunner(client, tmp_path / "marks", heard)
        return runner, run_in_one_worker(runner, "whole", _two_stages, *args)

    with pytest.raises(BadInputError, match="on purpose"):
        run()
    runner, done = run()
    assert done == {"number": 9, "reused": 5}
    assert heard.stages == ["whole"]
    # The stages inside are those that a manifest shows.
    assert [(stage.name, stage.computed) for stage in runner.results] == [
        ("first", 0),
        ("second", 1),
    ]
    assert [read_json(path) for path in sorted((tmp_path / "out").iterdir())] == [1] * 6
    assert run()[1] == done
    assert read_json(tmp_path / "out" / "9.json") == 1


def _shared_out(runner, name, job, *args):
    """Run the stages of a small job as those of a large one."""
    return runner.run(job(*args))


@pytest.mark.parametrize("block_rows", [1024, 128])
def test_in_one_worker_or_shared_out_gives_the_same_bits(client, tmp_path, monkeypatch, block_rows):
    path = write_edges(tmp_path / "edges.parquet", planted_edges(5))
    found = {}
    for small in (True, False):
        store = tmp_path / f"{small}"
        ingest(path, store=store, client=client, block_rows=block_rows)
        if not small:
            monkeypatch.setattr("figrl.serve.runs.run_in_one_worker", _shared_out)
        run = embed(store, dim=8, smoothing=3, client=client)
        assert not (run.path / "work").exists()
        names = [(stage["name"], stage["step"]) for stage in run.manifest["stages"]]
        found[small] = np.asarray(run.vectors), names, run.run
    np.testing.assert_array_equal(found[True][0], found[False][0])
    assert found[True][1:] == found[False][1:]
    assert ("smooth", 1) in found[True][1]
