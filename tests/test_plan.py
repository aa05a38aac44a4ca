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

from pipeline import embed, ingest
from pipeline.config import EmbedConfig
from pipeline.costs import RESERVED_BYTES, Tiling, Tilings
from pipeline.errors import ResourceError
from pipeline.graph import Graph
from pipeline.plan import imagined_graph, plan_embedding
from pipeline.rates import Rates, known_rates, measure_rates, rates_path
from pipeline.run import ClusterMemory
from pipeline.stages import planned_stage
from pipeline.study.planted import PlantedGraph

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
    config = EmbedConfig(preset="paper", dim=100, sketch_size=size)
    return plan_embedding(graph, config, ClusterMemory(1, threads, int(limit)))


def test_costs_of_each_stage():
    plan = plan_with(64e9)
    stages = {stage.name: stage for stage in plan.stages}
    assert list(stages) == ["sketch", "factor", "factor-solve", "vectors"]
    assert stages["sketch"].tasks == 31
    assert stages["sketch"].flops == 2 * 16_000_000 * 512
    assert stages["sketch"].written_bytes == 4 * 1_000_000 * 512
    assert stages["factor"].flops == 1_000_000 * 512**2
    assert stages["vectors"].written_bytes == 2 * 4 * 1_000_000 * 100
    assert plan.disk_bytes == sum(stage.written_bytes for stage in plan.stages)


def test_with_room_for_all_columns_there_is_one_pass():
    assert plan_with(64e9).tiling.slice_columns >= 512
    assert plan_with(64e9).tiling.operand_rows == GRAPH.nodes


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
    assert richer.tiling.slice_columns >= plan.tiling.slice_columns
    assert richer.geometry == plan.geometry


def test_a_graph_too_large_for_any_slice_takes_the_operand_in_parts():
    huge = replace(GRAPH, nodes=100_000_000, blocks=3052)
    plan = plan_with(3e9, graph=huge, size=192)
    plan.check(free_disk_bytes=10**15)
    assert plan.tiling.slice_columns == 16
    assert plan.tiling.operand_rows < huge.nodes


def test_a_run_that_was_begun_goes_on_with_its_tiles_and_their_memory():
    plan = plan_with(3e9)
    tiling = Tiling(slice_columns=256, operand_rows=GRAPH.nodes)
    begun = Tilings(tiling, tiling)
    assert plan.fits(begun)
    resumed = plan.cut_like(begun)
    assert resumed.tilings == begun
    (sketch,) = (stage for stage in resumed.stages if stage.name == "sketch")
    assert sketch.shared_bytes == 4 * GRAPH.nodes * 256
    assert sketch.peak_bytes(2) + resumed.kept_bytes <= plan.memory.allowed_bytes
    assert not plan_with(1e9).fits(begun)


def test_products_go_in_a_row_where_one_worker_holds_the_graph_and_two_matrices():
    config = EmbedConfig(dim=32)
    graph = replace(GRAPH, nodes=100_000, edges=500_000, blocks=4)
    rich, poor = ClusterMemory(1, 2, int(8e9)), ClusterMemory(1, 2, int(0.75e9))
    alone = plan_embedding(graph, config, rich)
    assert alone.narrow.chain > 2
    smoothing = next(stage for stage in alone.stages if stage.name == "smoothing")
    assert smoothing.shared_bytes > 2 * 4 * graph.nodes * 32
    assert smoothing.tasks == math.ceil(alone.recipe.smoothing / alone.narrow.chain)
    # Two workers share the blocks of a product out; little memory, or a large graph, has no room.
    shared = plan_embedding(graph, config, replace(rich, workers=2))
    large = plan_embedding(replace(GRAPH, edges=10**9), config, rich)
    small_memory = plan_embedding(graph, config, poor)
    assert {plan.narrow.chain for plan in (shared, large, small_memory)} == {1}
    assert alone.cut_like(shared.tilings).stages == shared.stages


def test_the_refusal_names_the_stage_the_numbers_and_the_option():
    with pytest.raises(ResourceError) as refused:
        plan_with(0.5e9).check(free_disk_bytes=10**15)
    message = str(refused.value)
    for part in (
        "Stage '",
        "460 MB for the process",
        "500 MB",
        "--memory-limit to",
        "--sketch-size",
    ):
        assert part in message
    # Raising the limit to what the message says is enough.
    wanted = int(message.split("--memory-limit to ")[1].split("MB")[0]) * 1_000_000
    assert plan_with(wanted).peak_bytes <= ClusterMemory(1, 2, wanted).allowed_bytes
    with pytest.raises(ResourceError, match=r"of disk, and 5 MB are free"):
        plan_with(64e9).check(free_disk_bytes=5_000_000)


def test_the_papers_rule_may_ask_for_more_columns_than_nodes():
    small = replace(GRAPH, nodes=2_000, blocks=1)
    config = EmbedConfig(preset="paper", dim=50, epsilon=0.1)
    plan = plan_embedding(small, config, ClusterMemory(1, 2, int(64e9)))
    assert plan.sketch_size == 5000
    assert plan.notes == [
        "The paper's rule asks for 5,000 sketch columns, more than the graph has nodes (2,000): "
        "the sketch is larger than the matrix it stands for. A larger --epsilon or a "
        "--sketch-size would be cheaper."
    ]


def test_an_imagined_graph_can_be_planned():
    graph = imagined_graph(10**9, 10**10)
    config = EmbedConfig(preset="paper", dim=128, sketch_size=192)
    plan = plan_embedding(graph, config, ClusterMemory(64, 8, int(64e9)))
    plan.check(free_disk_bytes=10**15)
    report = plan.describe()
    assert report["stages"][0]["flops"] == 2 * 2 * 10**10 * 192
    assert report["disk_bytes"] > 4 * 10**9 * (192 + 2 * 128)
    assert report["seconds"] == pytest.approx(sum(s["seconds"] for s in report["stages"]), abs=0.1)
    assert report["binds"] in ("compute", "memory", "disk", "tasks")


def test_seconds_follow_the_rates_and_the_cores():
    plan = plan_with(64e9)
    usual = plan.seconds(Rates())
    slow = plan.seconds(replace(Rates(), gram=Rates().gram / 2))
    more = slow["factor"]["compute"] - usual["factor"]["compute"]
    assert more == pytest.approx(1_000_000 * plan.sketch_size**2 / Rates().gram / 2)
    assert slow["sketch"] == usual["sketch"]
    wide = replace(plan, memory=ClusterMemory(4, 2, int(64e9))).seconds(Rates())
    assert wide["factor"]["compute"] == pytest.approx(usual["factor"]["compute"] / 4)
    assert wide["factor"]["disk"] == pytest.approx(usual["factor"]["disk"] / 4)


def test_measured_rates_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert known_rates() == (Rates(), False)
    measured = measure_rates(tmp_path)
    assert known_rates() == (measured, True)
    assert all(value > 0 for value in vars(measured).values())
    rates_path().write_text("{}")
    assert known_rates() == (Rates(), False)


@pytest.mark.parametrize(
    ("threads", "limit", "options"),
    [
        (1, 900_000_000, {"preset": "paper"}),
        (2, 900_000_000, {"preset": "paper"}),
        (2, 1_100_000_000, {"power_iterations": 2, "smoothing": 2}),
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
        run = embed(tmp_path / "store", dim=32, sketch_size=1000, client=client, **options)
    plan = run.manifest["plan"]
    planned = {stage["name"]: stage["peak_bytes"] for stage in plan["stages"]}
    assert plan["tiling"]["slice_columns"] < 1000, "the sketch should not fit at once"
    for stage in run.manifest["stages"]:
        name, peak = stage["name"], planned[planned_stage(stage["name"])]
        assert 0 < stage["peak_bytes"] <= peak, f"{name}: {stage['peak_bytes']:,} of {peak:,}"
        assert peak <= plan["allowed_bytes"] < limit
    assert run.manifest["stages"][0]["peak_bytes"] > RESERVED_BYTES / 2
    assert np.isfinite(np.asarray(run.vectors[:100])).all()
