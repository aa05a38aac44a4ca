"""Memory that clustering and simulations of influence are said to need, against what they take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import distributed
import numpy as np
import pytest

from figrl.analyze.centers import LIBRARY_BYTES, ClusterOptions, ClusterTask, centers_in_memory
from figrl.analyze.influence import InfluenceTask, influence, influence_memory
from figrl.analyze.kmeans import kmeans_bytes
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import RESERVED_BYTES, Block, Stage, Stats
from figrl.store.arrays import ArraySpec, create_array
from figrl.store.files import save_array
from figrl.store.matrix import open_matrix
from tests.conftest import running


@pytest.fixture(scope="module")
def two_threads() -> Iterator[distributed.Client]:
    """A worker of its own, which holds nothing of other tests, with threads that share memory."""
    with running(1, 2) as client:
        yield client


def _loaded() -> Stats:
    """Have a worker load what the stages after it need."""
    return {}


def growth(job: ClusterRunner) -> int:
    """Peak of the last stage above that of the first."""
    first, last = (max(job.results[place].peaks.values()) for place in (0, -1))
    return last - first


@pytest.mark.parametrize("clusters", [10, 700])
def test_kmeans_takes_no_more_than_was_counted(two_threads, tmp_path, clusters):
    nodes, dim = 300_000, 16
    create_array(ArraySpec(tmp_path / "embedding", (nodes, dim), (50_000, dim)))
    vectors = np.random.default_rng(0).normal(size=(nodes, dim)).astype(np.float32)
    open_matrix(tmp_path / "embedding").write((0, 0), vectors)
    options = ClusterOptions(clusters=clusters)
    graph = SimpleNamespace(nodes=nodes)
    task = ClusterTask(graph, tmp_path / "embedding", dim, tmp_path, tmp_path, options)
    job = ClusterRunner(two_threads, tmp_path / "marks")
    job.run_stage(Stage("first", _loaded, [Block(str(i), ()) for i in range(8)]))
    job.run_stage(Stage("centers", centers_in_memory, [Block("all", (task, 0))]))
    assert 4 * nodes * dim < growth(job) <= LIBRARY_BYTES + kmeans_bytes(nodes, dim, clusters)


def random_task(folder: Path, nodes: int, edges: int, model: str) -> InfluenceTask:
    """A hole in each of twenty clusters, so that all nodes are in some pool."""
    rng = np.random.default_rng(0)
    starts = np.arange(0, 2 * edges + 1, 2 * edges // nodes)
    save_array(folder / "lists" / "starts.npy", starts)
    neighbours = rng.integers(0, nodes, 2 * edges, np.int32)
    save_array(folder / "lists" / "neighbours.npy", neighbours)
    labels = rng.integers(0, 20, nodes, np.int32)
    save_array(folder / "labels.npy", labels)
    save_array(folder / "holes.npy", np.unique(labels, return_index=True)[1])
    return InfluenceTask(*(folder / name for name in ("lists", "labels.npy", "holes.npy")), model)


@pytest.mark.parametrize("model", ["lt", "ic"])
def test_simulations_take_no_more_than_was_counted(two_threads, tmp_path, model):
    """Most of it is the lists, which threads have to share."""
    nodes, edges = 400_000, 20_000_000
    job = ClusterRunner(two_threads, tmp_path / "small-marks")
    influence(job, random_task(tmp_path / "small", 100, 200, model), runs=8, nodes=1, members=1)
    job = ClusterRunner(two_threads, tmp_path / "marks")
    job.run_stage(Stage("first", _loaded, [Block(str(i), ()) for i in range(8)]))
    task = random_task(tmp_path / "large", nodes, edges, model)
    found = influence(job, task, runs=8, nodes=nodes, members=nodes)
    assert found.together.active > 20
    stated = influence_memory(nodes, edges, weighted=False).peak_bytes(threads=2)
    counted = stated - RESERVED_BYTES
    assert 8 * edges < growth(job) <= counted < 2 * 8 * edges
    # Nothing is held once the simulations are over.
    job.run_stage(Stage("after", _loaded, [Block(str(i), ()) for i in range(8)]))
    assert growth(job) < 4 * edges
