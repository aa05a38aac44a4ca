"""Real graphs, where FIGRL_DATA names their folder."""

from __future__ import annotations

import distributed
import numpy as np
import pytest

from pipeline import embed, ingest

pytestmark = pytest.mark.data

SIZES = {
    "karate": (34, 78),
    "dolphins": (62, 159),
    "us-football": (115, 613),
    "polblogs": (1_224, 16_715),
    "ca-HepTh": (9_875, 25_973),
    "ca-CondMat": (23_133, 93_439),
    "email-Enron": (36_692, 183_831),
}


@pytest.mark.parametrize("name", SIZES)
def test_nodes_and_edges_are_those_of_the_collection(client, data, tmp_path, name):
    graph = ingest(data / f"{name}.txt.gz", store=tmp_path, client=client)
    assert (graph.nodes, graph.edges) == SIZES[name]
    assert graph.id_kind == "int"
    assert not graph.weighted


def test_a_sketch_larger_than_the_memory_limit(data, tmp_path):
    """com-dblp, d = 1,000: a sketch of 1.27 GB in a worker that is limited to 1 GB."""
    limit = 1_000_000_000
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        memory_limit=limit,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    )
    with cluster, distributed.Client(cluster) as client:
        graph = ingest(data / "com-dblp.txt.gz", store=tmp_path, client=client)
        assert (graph.nodes, graph.edges) == (317_080, 1_049_866)
        run = embed(tmp_path, dim=100, sketch_size=1000, client=client)
        lengths = (run.vectors**2).sum(axis=1)[::1000].compute()
    plan = run.manifest["plan"]
    assert 4 * graph.nodes * 1000 > limit
    for stage in plan["stages"]:
        measured = next(s for s in run.manifest["stages"] if s["name"] == stage["name"])
        assert 0 < measured["peak_bytes"] <= stage["peak_bytes"] <= plan["allowed_bytes"]
    assert all(worker["peak_bytes"] < limit for worker in run.manifest["workers"])
    assert np.isfinite(lengths).all()
    assert (lengths > 0).all()
    assert run.manifest["rank"] == 100
