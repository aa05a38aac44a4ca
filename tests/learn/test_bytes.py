"""Bytes that the plan counts, against those that workers read and wrote, stage by stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from figrl import ingest
from figrl.engine.capacity import ClusterMemory
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import group_by_name
from figrl.learn.embed import embed_stages
from figrl.learn.plan import plan_embedding
from figrl.learn.setup import Tiling
from figrl.learn.spec import EmbedOptions
from figrl.study.planted import PlantedGraph
from tests.conftest import running

WITHIN = 1.3
NODES = 20_000


@pytest.fixture(scope="module")
def graph(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    planted = PlantedGraph(nodes=NODES, communities=20, edges_per_node=10, new_nodes=10)
    planted.write_partitions(folder / "edges", partitions=2)
    return ingest(
        folder / "edges" / "known", store=folder / "store", client=client, block_rows=4096
    )


def check_bytes(client, graph, folder, tiling: Tiling | None) -> None:
    workers = len(client.nthreads())
    plan = plan_embedding(graph, EmbedOptions(dim=32), ClusterMemory(workers, 1, int(4e9)))
    setup = replace(plan.setup, folder=folder)
    if tiling is not None:
        setup = replace(setup, wide=replace(tiling, slice_columns=16), narrow=tiling, kept_bytes=0)
    runner = ClusterRunner(client, folder / "marks")
    runner.run(embed_stages(setup))
    planned = {s["name"]: s for s in replace(plan, setup=setup).describe()["stages"]}
    measured = group_by_name(result.describe() for result in runner.results if result.blocks)
    assert set(planned) == set(measured)
    for name, stage in planned.items():
        for key in ("read_bytes", "written_bytes"):
            # What is smaller are matrices of the size of the dimensions.
            if max(stage[key], measured[name][key]) > 4 * NODES * 8:
                ratio = stage[key] / measured[name][key]
                assert 1 / WITHIN < ratio < WITHIN, f"{name}, {key}: {ratio}"


@pytest.mark.parametrize(
    "tiling",
    [
        *(None, Tiling(16, NODES), Tiling(16, NODES, chain=2)),
        *(Tiling(32, NODES, chain=3, holds_graph=True), Tiling(16, 8192, groups=2)),
    ],
    ids=str,
)
def test_planned_bytes_are_those_that_two_workers_move(client, tmp_path, graph, tiling):
    check_bytes(client, graph, tmp_path, tiling)


@pytest.mark.parametrize("workers", [1, 3])
def test_planned_bytes_are_those_that_one_or_three_workers_move(tmp_path, graph, workers):
    with running(workers, 1) as other:
        check_bytes(other, graph, tmp_path / "plan", None)
        check_bytes(other, graph, tmp_path / "tiles", Tiling(16, NODES))
