"""What is exchanged arrives as it was sent, however often it is regrouped on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import distributed
import numpy as np
import pytest
from distributed.protocol.pickle import dumps, loads
from hypothesis import given, settings
from hypothesis import strategies as st

from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import Silent, Stage, StageResult
from figrl.errors import DamagedError
from figrl.ingestion.build import IngestSizes
from figrl.ingestion.exchange import FAN_IN, Exchange, regroup_stages, runs
from figrl.learn.plan import plan_embedding
from figrl.learn.spec import EmbedOptions
from figrl.store.files import get
from figrl.store.graph import Graph
from figrl.store.parts import PartsFile, write_parts
from figrl.store.range_starts import RangeStarts, write_starts
from tests.ingestion.stored import ingested
from tests.reference import write_edges

TYPES = ("int64", "float64", "uint8")


def run_all(stages: Iterator[Stage]) -> list[Stage]:
    """Do all blocks of some stages here, and delete what each of them frees."""
    done = []
    for stage in stages:
        for block in stage.blocks:
            stage.function(*block.args)
        for path in stage.frees:
            for file in path.glob("*"):
                file.unlink()
        done.append(stage)
    return done


@settings(max_examples=40)
@given(
    sources=st.integers(1, 40),
    targets=st.integers(1, 40),
    fan_in=st.integers(2, 7),
    most=st.integers(0, 6),
    run_bytes=st.sampled_from([8, 100, 10_000]),
)
def test_each_target_gets_its_parts_in_the_order_of_the_sources(
    tmp_path_factory: pytest.TempPathFactory,
    sources: int,
    targets: int,
    fan_in: int,
    most: int,
    run_bytes: int,
) -> None:
    rng = np.random.default_rng(sources * targets)
    exchange = Exchange(tmp_path_factory.mktemp("exchange"), sources, targets, TYPES, fan_in)
    expected: list[list[list[Any]]] = [[[] for _ in TYPES] for _ in range(targets)]
    for source in range(sources):
        sizes = rng.integers(0, most + 1, (targets, len(TYPES)))
        columns = [
            rng.integers(0, 200, count).astype(kind)
            for count, kind in zip(sizes.sum(axis=0), TYPES, strict=True)
        ]
        exchange.write(source, sizes, columns)
        for column, values in enumerate(columns):
            cuts = np.cumsum(sizes[:, column])[:-1]
            for target, part in enumerate(np.split(values, cuts)):
                expected[target][column] += part.tolist()
    stages = run_all(regroup_stages("test", [exchange], run_bytes))
    assert [stage.step for stage in stages] == list(range(1, exchange.levels + 1))
    assert (exchange.levels == 0) == (min(sources, targets) <= fan_in)
    for target in range(targets):
        found = exchange.gather(target)
        assert [values.dtype.name for values in found] == list(TYPES)
        assert [values.tolist() for values in found] == expected[target]


@pytest.mark.parametrize("pieces", [65, 1000, 4096, 5000, 300_000])
def test_no_task_opens_more_files_than_it_may(pieces: int) -> None:
    exchange = Exchange(Path(), pieces, 2 * pieces, ("int64",))
    assert exchange.levels == {65: 1, 1000: 1, 4096: 1, 5000: 2, 300_000: 3}[pieces]
    opened = tasks = 0
    for level in range(1, exchange.levels + 1):
        sources, parts = exchange.groups(level)
        sizes = {len(exchange.members(level, group)) for group in range(sources)}
        assert max(sizes) <= FAN_IN
        opened += exchange.groups(level - 1)[0] * parts
        tasks += sources * parts
        # A group of targets is part of one group of the level before.
        ends = [exchange.target_range(level, part) for part in range(parts)]
        assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])]
        assert ends[-1][1] == exchange.targets
    assert exchange.groups(exchange.levels)[0] <= FAN_IN
    assert opened <= FAN_IN * tasks
    assert tasks <= 4 * exchange.levels * pieces


def test_few_pieces_are_not_regrouped() -> None:
    for sources, targets in ((FAN_IN, 10**6), (10**6, FAN_IN), (1, 1)):
        exchange = Exchange(Path(), sources, targets, ("int64",))
        assert list(regroup_stages("test", [exchange], 100)) == []


@given(sizes=st.lists(st.integers(0, 20), max_size=20), most=st.integers(1, 30))
def test_runs_hold_no_more_than_fits(sizes: list[int], most: int) -> None:
    found = list(runs(np.array(sizes, np.int64), most))
    assert [n for begin, end in found for n in range(begin, end)] == list(range(len(sizes)))
    assert all(end - begin == 1 or sum(sizes[begin:end]) <= most for begin, end in found)


def test_a_file_that_is_cut_off_is_found(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    write_parts(path, np.array([[3], [4]]), [np.arange(7)])
    whole = get(path)
    path.write_bytes(whole[:-1])
    with PartsFile(path, ("int64",), 2) as file:
        assert file.read(0, 0, 3).tolist() == [0, 1, 2]
        assert file.starts(0, 2).tolist() == [[0], [3], [7]]
        with pytest.raises(DamagedError, match=r"parts has no 32 bytes"):
            file.read(0, 3, 7)


def cut_finely(fan_in: int, kind: Any) -> Any:
    """Sizes that make many chunks and many ranges of a small input."""
    small = IngestSizes(20, 3000, 10**6, kind, fan_in)
    return patch.object(IngestSizes, "for_memory", return_value=small)


def random_edges(ids: str, *, weighted: bool, seed: int = 0) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    numbers = [chance.getrandbits(60) for _ in range(90)]
    names: list[Any] = numbers if ids == "int" else [f"{n:x}" * (n % 3) for n in numbers] + ["ü"]
    edges = [tuple(chance.choices(names, k=2)) for _ in range(500)]
    return [(*edge, chance.uniform(0.1, 2)) for edge in edges] if weighted else edges


def all_bytes(graph: Graph) -> dict[str, bytes]:
    """Every file of a graph, without the times in its manifest."""
    files = {
        str(path.relative_to(graph.path)): path.read_bytes()
        for path in graph.path.rglob("*")
        if path.is_file()
    }
    manifest = json.loads(files.pop("manifest.json"))
    told = {name: manifest[name] for name in ("graph", "config", "contents")}
    return files | {"manifest.json": json.dumps(told, sort_keys=True).encode()}


def blocks_of(report: dict[str, Any]) -> dict[str, int]:
    return {f"{stage['name']}-{stage['step']}": stage["blocks"] for stage in report["stages"]}


CASES = [
    ("undirected", "int", False),
    ("undirected", "string", True),
    ("bipartite", "string", False),
    ("directed", "int", True),
]


@pytest.mark.parametrize(("kind", "ids", "weighted"), CASES)
def test_levels_leave_no_trace(
    tmp_path: Path, client: distributed.Client, kind: str, ids: str, *, weighted: bool
) -> None:
    path = write_edges(tmp_path / "e.parquet", random_edges(ids, weighted=weighted))
    found, blocks = {}, {}
    for fan_in in (FAN_IN, 6, 3):
        with cut_finely(fan_in, ids):
            store = tmp_path / str(fan_in)
            graph, report = ingested(client, path, store, block_rows=4, kind=kind)
        found[fan_in], blocks[fan_in] = all_bytes(graph), blocks_of(report)
    for name in ("ids", "places", "edges"):
        assert f"{name}-regroup-1" in blocks[6]
    assert blocks[3]["edges-regroup-2"] > 1
    assert not [name for name in blocks[FAN_IN] if "regroup" in name]
    assert blocks[FAN_IN]["relabel-None"] == 25
    assert blocks[FAN_IN]["ids-None"] > 10
    assert found[6] == found[3] == found[FAN_IN]


class StoppedError(Exception):
    """Someone pulled the plug."""


class StopsWithin(Silent):
    """Ends the job when some blocks of a stage are done."""

    def __init__(self, stage: str, blocks: int) -> None:
        self.stage, self.blocks = stage, blocks

    def advanced(self, result: StageResult) -> None:
        if (result.name, len(result.stats)) == (self.stage, self.blocks):
            raise StoppedError


@pytest.mark.parametrize("stage", ["ids-regroup", "places-regroup", "edges-regroup"])
def test_a_job_that_stops_while_it_regroups_goes_on_there(
    tmp_path: Path, client: distributed.Client, stage: str
) -> None:
    path = write_edges(tmp_path / "e.parquet", random_edges("int", weighted=True))
    store = tmp_path / "store"
    with cut_finely(FAN_IN, "int"):
        whole, _ = ingested(client, path, tmp_path / "whole", block_rows=4)
    with cut_finely(4, "int"):
        with pytest.raises(StoppedError):
            ingested(client, path, store, block_rows=4, monitor=StopsWithin(stage, 3))
        graph, report = ingested(client, path, store, block_rows=4)
    stages = {(one["name"], one["step"]): one for one in report["stages"]}
    names = list(stages)
    for name in names[: names.index((stage, 1))]:
        assert stages[name]["computed"] == 0
    assert stages[stage, 1]["reused"] >= 3
    assert stages[stage, 1]["computed"] == stages[stage, 1]["blocks"] - stages[stage, 1]["reused"]
    for name in names[names.index((stage, 1)) + 1 :]:
        assert stages[name]["reused"] == 0
    assert all_bytes(graph) == all_bytes(whole)


def test_tasks_are_sent_no_list_that_grows_with_the_graph(
    tmp_path: Path, client: distributed.Client
) -> None:
    """Of thousands of blocks and ranges, none has more than a few KB of arguments."""
    edges = [(3 * number, 3 * number + 7) for number in range(2500)]
    path = write_edges(tmp_path / "e.parquet", edges)
    sizes: dict[str, tuple[int, int]] = {}
    run_stage = ClusterRunner.run_stage

    def measured(runner: ClusterRunner, stage: Stage) -> StageResult:
        largest = max((len(dumps(block.args)) for block in stage.blocks), default=0)
        sizes[stage.key] = len(stage.blocks), largest
        return run_stage(runner, stage)

    small = IngestSizes(100, 1000, 10**6, "int")
    with (
        patch.object(IngestSizes, "for_memory", return_value=small),
        patch.object(ClusterRunner, "run_stage", measured),
    ):
        graph, _ = ingested(client, path, tmp_path / "store", block_rows=4)
    assert len(graph.id_starts) > 500
    assert sizes["build"][0] == graph.blocks > 1000
    assert max(size for _, size in sizes.values()) < 4000
    options = EmbedOptions(dim=4, width=8, depth=2, smoothing=2)
    plan = plan_embedding(graph, options, ClusterMemory(2, 2, 4 << 30))
    for planned in plan.stages:
        assert all(len(dumps(block.args)) < 4000 for block in planned.stage.blocks[:2])
    sent = loads(dumps(graph))
    assert len(dumps(graph)) < 2000
    assert sent == graph
    assert sent.index.ids_of(3990, 4000).to_pylist() == graph.index.ids_of(3990, 4000).to_pylist()


def test_tasks_of_fold_in_find_the_ranges_of_a_graph_that_is_not_committed(tmp_path: Path) -> None:
    starts = tuple(range(0, 5000, 5))
    write_starts(tmp_path, starts)
    sent = loads(dumps(RangeStarts.of(starts, tmp_path)))
    assert len(dumps(sent)) < 500
    assert (len(sent), sent[3], sent[-2:], list(sent)) == (1000, 15, (4990, 4995), list(starts))
    assert sent == starts
    assert RangeStarts.of((0, 7), tmp_path) == (0, 7)
