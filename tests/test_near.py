"""A small graph is done by one worker: same stages, same bits, and it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline import embed, ingest
from pipeline.errors import BadInputError
from pipeline.files import read_json, write_json
from pipeline.job import Block, Job, Silent, StageResult
from pipeline.near import run_near
from pipeline.plan import EmbedPlan
from pipeline.run import ClusterJob
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges


def _count(folder: Path, number: int) -> dict[str, int]:
    path = folder / f"{number}.json"
    write_json(path, 1 + (read_json(path) if path.exists() else 0))
    return {"number": number}


def _two_stages(job: Job, folder: Path, flag: Path) -> dict[str, int]:
    first = job.run("first", _count, [Block(f"{i}", (folder, i)) for i in range(5)])
    job.monitor.note(f"{first.reused} reused")
    if not flag.exists():
        flag.touch()
        raise BadInputError("stopped on purpose")
    return job.run("second", _count, [Block("9", (folder, 9))]).stats["9"]


class Heard(Silent):
    """Keeps what is said, and the stages that are seen."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []

    def finished(self, result: StageResult) -> None:
        self.stages.append(result.name)

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_finished_blocks_are_not_done_again(client, tmp_path):
    args = tmp_path / "out", tmp_path / "flag"
    heard = Heard()
    with pytest.raises(BadInputError, match="on purpose"):
        run_near(ClusterJob(client, tmp_path / "marks", heard), "whole", _two_stages, *args)
    done = run_near(ClusterJob(client, tmp_path / "marks", heard), "whole", _two_stages, *args)
    assert done == {"number": 9}
    assert heard.notes == ["5 reused"]
    assert heard.stages == ["whole"]
    assert [read_json(path) for path in sorted((tmp_path / "out").iterdir())] == [1] * 6
    run_near(ClusterJob(client, tmp_path / "marks", heard), "whole", _two_stages, *args)
    assert read_json(tmp_path / "out" / "9.json") == 1


@pytest.mark.parametrize("block_rows", [1024, 128])
def test_near_or_far_gives_the_same_bits(client, tmp_path, monkeypatch, block_rows):
    path = write_edges(tmp_path / "edges.parquet", planted_edges(5))
    found = {}
    for small in (True, False):
        store = tmp_path / f"{small}"
        ingest(path, store=store, client=client, block_rows=block_rows)
        if not small:
            monkeypatch.setattr(EmbedPlan, "is_small", property(lambda self: False))
        run = embed(store, dim=8, client=client)
        assert not (run.path / "work").exists()
        names = [stage["name"] for stage in run.manifest["stages"]]
        found[small] = np.asarray(run.vectors), names, run.run
    np.testing.assert_array_equal(found[True][0], found[False][0])
    assert found[True][1:] == found[False][1:]
    assert "smooth-001" in found[True][1]
