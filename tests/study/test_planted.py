"""The generator of graphs: what was asked for is what is written."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from figrl.study.planted import PlantedGraph


@pytest.mark.parametrize("tail", [0.0, 0.4])
def test_edges_stay_in_communities_and_degrees_follow_the_tail(tail):
    graph = PlantedGraph(nodes=20_000, communities=10, edges_per_node=12, inside=0.8, tail=tail)
    source, target = graph.edges_of(0, 20_000)
    assert 0.9 < source.size / (12 * 20_000) < 1.1
    assert target.min() >= 0
    assert target.max() < 20_000
    same = graph.community(source) == graph.community(target)
    assert abs(same.mean() - (0.8 + 0.2 / 10)) < 0.01
    degrees = np.bincount(np.concatenate([source, target]), minlength=20_000)
    heavy = np.sort(degrees)[-200:].sum() / degrees.sum()
    assert heavy < 0.02 if tail == 0 else heavy > 0.08


def test_partitions_hold_all_edges_and_the_nodes_held_back(tmp_path):
    graph = PlantedGraph(nodes=1000, communities=4, edges_per_node=5, new_nodes=50, ids="string")
    assert graph.write_partitions(tmp_path, 3) == 5000
    known = pq.read_table(tmp_path / "known")
    assert known.num_rows == 5000
    assert known["source"][0].as_py() == "user/0000000000"
    new = pq.read_table(tmp_path / "new")
    assert set(new["source"].to_pylist()) == {f"user/{i:010d}" for i in range(1000, 1050)}
    assert max(new["target"].to_pylist()) < "user/0000001000"
