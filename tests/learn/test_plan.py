"""The plan: its numbers, its refusals, and that no worker exceeds what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import distributed
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figrl import embed, ingest
from figrl.bench.rates import measure_rates
from figrl.engine.capacity import ClusterMemory
from figrl.engine.rates import Rates, measured_rates, rates_path
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import RESERVED_BYTES, Memory, Stage, StageResult, list_stages, numbered
from figrl.errors import ConfigError, ResourceError
from figrl.learn.embed import embed_stages
from figrl.learn.plan import imagined_graph, plan_embedding
from figrl.learn.setup import Setup, Tiling
from figrl.learn.spec import SMOOTHING_STEPS, EmbedOptions
from figrl.learn.tiling import plan_stages
from figrl.store.files import read_json
from figrl.store.graph import Graph
from figrl.study.planted import PlantedGraph
from tests.learn.test_embed import random_edges
from tests.reference import write_edges

GRAPH = Graph(
    path=Path("nowhere"),
    version="test",
    nodes=1_000_000,
    edges=8_000_000,
    block_rows=1 << 15,
    blocks=31,
    largest_block_edges=600_000,
    id_kind="int",
    id_starts=(0, 1_000_000),
    weighted=False,
    mean_degree=16.0,
)


def plan_with(limit: float, *, threads: int = 2, graph: Graph = GRAPH, size: int = 512):
    config = EmbedOptions(preset="paper", dim=100, sketch_size=size)
    return plan_embedding(graph, config, ClusterMemory(1, threads, int(limit)))


def needed(plan) -> dict[str, Stage]:
    """Stages of a plan that have blocks, by name."""
    return {planned.stage.name: planned.stage for planned in plan.stages if planned.stage.blocks}


def test_costs_of_each_stage():
    plan = plan_with(64e9)
    stages = needed(plan)
    assert list(stages) == ["sketch", "factor", "factor-combine-1", "factor-solve", "vectors"]
    assert len(stages["sketch"].blocks) == 31
    assert stages["sketch"].cost.flops == 2 * 16_000_000 * 512
    assert stages["sketch"].cost.written_bytes == 4 * 1_000_000 * 512
    assert stages["factor"].cost.flops == 1_000_000 * 512**2
    assert stages["vectors"].cost.written_bytes == 2 * 4 * 1_000_000 * 100
    arrays = 4 * 1_000_000 * (512 + 2 * 100)
    partials = (plan.setup.groups + 2) * 8 * 512**2
    assert plan.disk_bytes == arrays + partials


def test_disk_counts_what_is_deleted_on_the_way():
    memory = ClusterMemory(1, 2, int(64e9))
    plan = plan_embedding(GRAPH, EmbedOptions(dim=128, keep_sketch=True), memory)
    sizes = [array.nbytes for planned in plan.stages for array in planned.stage.writes]
    sketch, vectors = (4 * GRAPH.nodes * columns for columns in (plan.setup.columns, 128))
    # The sketch; then three steps of smoothing, or the last two, embedding and basis.
    assert sketch + 4 * vectors <= plan.disk_bytes < sketch + 7 * vectors < sum(sizes)
    # Unless it is kept, the sketch goes before smoothing.
    usual = plan_embedding(GRAPH, EmbedOptions(dim=128), memory)
    assert sketch + vectors <= usual.disk_bytes < sketch + 2 * vectors


def test_with_room_for_all_columns_there_is_one_pass():
    assert plan_with(64e9).setup.wide.slice_columns >= 512
    assert plan_with(64e9).setup.wide.operand_rows == GRAPH.nodes


@given(limit=st.floats(0.7e9, 20e9), threads=st.integers(1, 4), size=st.integers(100, 1500))
def test_a_plan_fits_or_is_refused_and_more_memory_never_hurts(limit, threads, size):
    plan = plan_with(limit, threads=threads, size=size)
    fits = plan.peak_bytes <= plan.memory.allowed_bytes
    if fits:
        plan.check(free_disk_bytes=10**15)
    else:
        with pytest.raises(ResourceError):
            plan.check(free_disk_bytes=10**15)
    richer = plan_with(2 * limit, threads=threads, size=size)
    assert richer.setup.wide.slice_columns >= plan.setup.wide.slice_columns
    assert richer.setup.geometry == plan.setup.geometry


def test_a_graph_too_large_for_any_slice_takes_the_operand_in_parts():
    huge = replace(GRAPH, nodes=100_000_000, blocks=3052)
    plan = plan_with(3e9, graph=huge, size=192)
    plan.check(free_disk_bytes=10**15)
    assert plan.setup.wide.slice_columns == 16
    assert plan.setup.wide.operand_rows < huge.nodes


def test_a_run_that_was_begun_goes_on_with_its_tiles_and_their_memory(tmp_path):
    tiling = Tiling(slice_columns=256, operand_rows=GRAPH.nodes)
    plan = plan_with(3e9)
    begun = replace(plan, setup=replace(plan.setup, wide=tiling, narrow=tiling))
    assert begun.in_folder(tmp_path).setup.wide == tiling
    resumed = plan.in_folder(tmp_path)
    assert (resumed.setup.wide, resumed.setup.narrow) == (tiling, tiling)
    assert needed(resumed)["sketch"].memory.shared_bytes == 4 * GRAPH.nodes * 256
    assert resumed.peak_bytes + resumed.setup.kept_bytes <= plan.memory.allowed_bytes
    # With less memory it starts over, in tiles that fit.
    (tmp_path / "sketch").mkdir()
    poor = plan_with(1e9).in_folder(tmp_path)
    assert poor.setup.wide == plan_with(1e9).setup.wide != tiling
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert read_json(tmp_path / "work" / "tiling.json")["wide"] == vars(poor.setup.wide)


def test_products_go_in_a_row_where_one_worker_holds_the_graph_and_two_matrices():
    config = EmbedOptions(dim=32)
    graph = replace(GRAPH, nodes=100_000, edges=500_000, blocks=4)
    rich, poor = ClusterMemory(1, 2, int(8e9)), ClusterMemory(1, 2, int(0.75e9))
    alone = plan_embedding(graph, config, rich)
    chain = alone.setup.narrow.chain
    assert chain > 2
    steps = [p.stage for p in alone.stages if p.stage.name == "smooth"]
    assert steps[0].memory.shared_bytes > 3 * 4 * graph.nodes * 32
    assert len(steps) == math.ceil(SMOOTHING_STEPS / chain)
    assert all(len(step.blocks) == 1 for step in steps)
    # Little memory, or a large graph, has no room.
    large = plan_embedding(replace(GRAPH, edges=10**9), config, rich)
    small_memory = plan_embedding(graph, config, poor)
    assert {plan.setup.narrow.chain for plan in (large, small_memory)} == {0}


def test_the_refusal_names_the_stage_the_numbers_and_the_option():
    with pytest.raises(ResourceError) as refused:
        plan_with(0.65e9).check(free_disk_bytes=10**15)
    message = str(refused.value)
    for part in (
        "Stage '",
        "460 MB for the process",
        "105 MB for each of 2 threads",
        "650 MB",
        "--memory-limit to",
        "--sketch-size",
    ):
        assert part in message
    with pytest.raises(ResourceError) as refused:
        plan_with(0.5e9).check(free_disk_bytes=10**15)
    assert "--sketch-size" not in str(refused.value), "the process alone has more than 375 MB"
    # Raising the limit to what the message says is enough.
    wanted = int(message.split("--memory-limit to ")[1].split("MB")[0]) * 1_000_000
    assert plan_with(wanted).peak_bytes <= ClusterMemory(1, 2, wanted).allowed_bytes
    with pytest.raises(ResourceError, match=r"of disk, and 5 MB are free"):
        plan_with(64e9).check(free_disk_bytes=5_000_000)


def test_the_papers_rule_may_ask_for_more_columns_than_nodes():
    small = replace(GRAPH, nodes=2_000, blocks=1)
    config = EmbedOptions(preset="paper", dim=50, epsilon=0.1)
    plan = plan_embedding(small, config, ClusterMemory(1, 2, int(64e9)))
    assert plan.setup.spec.sketch_size == 5000
    assert plan.notes == [
        "The paper's rule asks for 5,000 sketch columns, more than the graph has nodes (2,000): "
        "the sketch is larger than the matrix it stands for. A larger --epsilon or a "
        "--sketch-size would be cheaper."
    ]


def test_an_imagined_graph_can_be_planned():
    graph = imagined_graph(10**9, 10**10)
    config = EmbedOptions(preset="paper", dim=128, sketch_size=192)
    plan = plan_embedding(graph, config, ClusterMemory(64, 8, int(64e9)))
    plan.check(free_disk_bytes=10**15)
    report = plan.describe()
    assert report["stages"][0]["flops"] == 2 * 2 * 10**10 * 192
    assert report["disk_bytes"] > 4 * 10**9 * (192 + 2 * 128)
    assert report["rates"]["measured"] is False
    assert report["seconds"] == pytest.approx(sum(s["seconds"] for s in report["stages"]), abs=0.1)
    assert report["binds"] in ("compute", "memory", "disk", "tasks")


def test_seconds_follow_the_rates_and_the_cores():
    plan = plan_with(64e9)

    def seconds(rates: Rates, memory: ClusterMemory = plan.memory) -> dict[str, dict[str, float]]:
        chosen = (planned for planned in plan.stages if planned.stage.blocks)
        return {planned.stage.name: planned.seconds(rates, memory) for planned in chosen}

    usual = seconds(Rates())
    slow = seconds(replace(Rates(), gram=Rates().gram / 2))
    more = slow["factor"]["compute"] - usual["factor"]["compute"]
    assert more == pytest.approx(1_000_000 * 512**2 / Rates().gram / 2)
    assert slow["sketch"] == usual["sketch"]
    wide = seconds(Rates(), ClusterMemory(4, 2, int(64e9)))
    assert wide["factor"]["compute"] == pytest.approx(usual["factor"]["compute"] / 4)
    assert wide["factor"]["disk"] == pytest.approx(usual["factor"]["disk"] / 4)


def test_measured_rates_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="figrl bench rates"):
        measured_rates()
    before = plan_with(3e9)
    measured = measure_rates(tmp_path)
    assert measured_rates() == measured
    assert all(value > 0 for value in vars(measured).values())
    # Only predicted seconds depend on them, and only where they are asked for.
    assert plan_with(3e9).describe() == before.describe()
    assert before.describe(measured)["rates"] == {**vars(measured), "measured": True}
    rates_path().write_text("{}")
    with pytest.raises(ConfigError, match="figrl bench rates"):
        measured_rates()


@pytest.mark.parametrize(
    ("threads", "limit", "options"),
    [
        (1, 900_000_000, {"preset": "paper", "sketch_size": 1000}),
        (2, 900_000_000, {"preset": "paper", "sketch_size": 1000}),
        (2, 900_000_000, {"depth": 2, "width": 480, "smoothing": 2}),
    ],
)
def test_no_worker_exceeds_the_plan(tmp_path, threads, limit, options):
    """Measured: a sketch of 320 MB in workers that may use less than that."""
    planted = PlantedGraph(nodes=80_000, communities=10, edges_per_node=8, new_nodes=10)
    planted.write_partitions(tmp_path / "edges", partitions=4)
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=threads,
        memory_limit=limit,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    )
    with cluster, distributed.Client(cluster) as client:
        ingest(tmp_path / "edges" / "known", store=tmp_path / "store", client=client)
        run = embed(tmp_path / "store", dim=32, client=client, **options)
    plan = run.manifest["plan"]
    planned = {stage["name"]: stage["peak_bytes"] for stage in plan["stages"]}
    if options.get("preset") == "paper":
        assert plan["tiling"]["slice_columns"] < 1000, "the sketch should not fit at once"
    for stage in run.manifest["stages"]:
        name, peak = stage["name"], planned.get(stage["name"], plan["peak_worker_bytes"])
        assert 0 < stage["peak_bytes"] <= peak, f"{name}: {stage['peak_bytes']:,} of {peak:,}"
        assert peak <= plan["allowed_bytes"] < limit
    assert run.manifest["stages"][0]["peak_bytes"] > RESERVED_BYTES / 2
    assert np.isfinite(np.asarray(run.vectors[:100])).all()


def _stage(name: str, blocks: int, memory: Memory, **more: object) -> Stage:
    return Stage(name, print, numbered(name, blocks), memory, **more)  # type: ignore[arg-type]


def test_workers_hold_the_buffers_of_earlier_stages_until_they_are_released():
    stages = [
        _stage("first", 9, Memory(100, 10)),
        _stage("second", 9, Memory(40, 30)),
        _stage("not needed", 0, Memory(10**9, 10**9)),
        _stage("one block", 1, Memory(0, 50)),
        _stage("after", 9, Memory(1, 2), releases_buffers=True),
    ]
    planned = plan_stages(stages, threads=2)
    held = [stage.peak_bytes - RESERVED_BYTES for stage in planned]
    assert held == [100 + 20, 100 + 60, 100 + 60, 100 + 60, 1 + 4]
    assert [stage.fresh_bytes for stage in planned] == [120, 40, 0, 0, 5]


GRID = [
    {"preset": "paper", "dim": 8, "sketch_size": 40},
    {"preset": "paper", "dim": 8, "width": 16, "depth": 3},
    {"dim": 8, "depth": 1, "smoothing": 0},
    {"dim": 8, "depth": 2, "smoothing": 1},
    {"dim": 8, "depth": 9, "smoothing": "auto", "regularization": 0},
    {"preset": "fast", "dim": 8, "smoothing": 3},
    {"dim": 40, "representation": "product"},
]


@pytest.mark.parametrize(
    "tiles",
    [
        *(None, Tiling(16, 64, groups=2), Tiling(64, 10**6, chain=3, holds_graph=True)),
        Tiling(16, 10**6, chain=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", GRID, ids=lambda o: "-".join(map(str, o.values())))
def test_what_is_planned_is_what_is_run(client, tmp_path, graph_of_300, options, tiles):
    """Name by name and step by step; whatever a run finds, it adds and leaves out no stage."""
    chosen = EmbedOptions(**options)
    plan = plan_embedding(graph_of_300, chosen, ClusterMemory(2, 1, int(4e9)))
    setup = replace(plan.setup, folder=tmp_path / "run")
    if tiles is not None:
        # Slices of the sketch divide its width.
        width = math.gcd(tiles.slice_columns, setup.spec.width)
        setup = replace(setup, wide=replace(tiles, slice_columns=width), narrow=tiles)
    runner = ClusterRunner(client, tmp_path / "marks")
    runner.run(embed_stages(setup))
    planned = [(stage.name, stage.step) for stage in list_stages(embed_stages(setup))]
    assert planned == [(result.name, result.step) for result in runner.results]
    assert len(set(planned)) == len(planned)
    _check_blocks(setup, runner.results)


def _check_blocks(setup: Setup, results: list[StageResult]) -> None:
    """Stages that do not depend on what is found have as many blocks as planned."""
    adaptive = "factor-"
    counts = {(r.name, r.step): r.blocks for r in results if not r.name.startswith(adaptive)}
    for stage in list_stages(embed_stages(setup)):
        if (stage.name, stage.step) in counts and stage.name != "sketch":
            assert counts[stage.name, stage.step] == len(stage.blocks), stage.name


@pytest.fixture(scope="module")
def graph_of_300(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    path = write_edges(folder / "edges.parquet", random_edges(3, 300, weighted=True))
    return ingest(path, store=folder / "store", client=client, block_rows=64)
