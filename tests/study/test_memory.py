"""Memory that clustering and simulations of influence are said to need, against what they take."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import zarr

from pipeline.blocks import Stats
from pipeline.files import save_array
from pipeline.job import Block
from pipeline.run import ClusterJob
from pipeline.study.cluster_calls import _LIBRARY_BYTES, kmeans_bytes
from pipeline.study.cluster_tasks import ClusterTask, centers_in_memory
from pipeline.study.diffusion import InfluenceTask, influence, influence_bytes


def _loaded() -> Stats:
    """Have a worker load what the stages after it need."""
    return {}


def growth(job: ClusterJob) -> int:
    """Peak of the last stage above that of the first."""
    first, last = (max(job.results[place].peaks.values()) for place in (0, -1))
    return last - first


@pytest.mark.parametrize("clusters", [10, 700])
def test_kmeans_takes_no_more_than_was_counted(client, tmp_path, clusters):
    nodes, dim = 300_000, 32
    array = zarr.create_array(
        tmp_path / "embedding", shape=(nodes, dim), chunks=(50_000, dim), dtype="float32"
    )
    array[...] = np.random.default_rng(0).normal(size=(nodes, dim)).astype(np.float32)
    task = ClusterTask(
        SimpleNamespace(nodes=nodes), tmp_path / "embedding", tmp_path, tmp_path, "kmeans", clusters
    )
    job = ClusterJob(client, tmp_path / "marks")
    job.run("first", _loaded, [Block(str(i), ()) for i in range(8)])
    job.run("centers", centers_in_memory, [Block("all", (task, 0, 0))])
    assert 4 * nodes * dim < growth(job) <= _LIBRARY_BYTES + kmeans_bytes(nodes, dim, clusters)


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_simulations_take_no_more_than_was_counted(client, tmp_path, model):
    nodes, edges, clusters = 2_000_000, 4_000_000, 20
    rng = np.random.default_rng(0)
    save_array(tmp_path / "lists" / "starts.npy", np.arange(0, 2 * edges + 1, 2 * edges // nodes))
    neighbours = rng.integers(0, nodes, 2 * edges).astype(np.int32)
    save_array(tmp_path / "lists" / "neighbours.npy", neighbours)
    save_array(tmp_path / "labels.npy", rng.integers(0, clusters, nodes).astype(np.int32))
    # A hole in every cluster, so that all nodes are in some pool.
    labels = np.load(tmp_path / "labels.npy")
    holes = np.array([np.flatnonzero(labels == c)[0] for c in range(clusters)])
    save_array(tmp_path / "holes.npy", holes)
    paths = (tmp_path / name for name in ("lists", "labels.npy", "holes.npy"))
    job = ClusterJob(client, tmp_path / "marks")
    job.run("first", _loaded, [Block(str(i), ()) for i in range(8)])
    found = influence(job, InfluenceTask(*paths, model), runs=2)
    assert found.together.active > clusters
    counted = influence_bytes(nodes, edges, weighted=False, threads=1)
    assert 8 * edges < growth(job) <= counted
