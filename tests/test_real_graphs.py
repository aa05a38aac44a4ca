"""Real graphs, where FIGRL_DATA names their folder."""

from __future__ import annotations

import gzip

import distributed
import numpy as np
import pytest
import scipy.sparse.linalg

from figrl import embed, ingest
from figrl.analyze.kmeans import kmeans_in_memory
from figrl.analyze.metrics import modularity
from figrl.bench.embed import read_matrix
from tests.reference import write_edges

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


@pytest.mark.parametrize(
    ("name", "kind", "sides", "edges"),
    [
        ("lastfm-artists.train", "bipartite", (1_878, 4_476), 42_135),
        ("soc-Epinions1.directed", "directed", (75_879, 75_879), 508_837),
    ],
)
def test_sides_are_those_of_the_collection(client, data, tmp_path, name, kind, sides, edges):
    graph = ingest(data / f"{name}.txt.gz", store=tmp_path, client=client, kind=kind)
    assert tuple(graph.side_nodes().values()) == sides
    assert graph.edges == edges


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
        run = embed(tmp_path, preset="paper", dim=100, sketch_size=1000, client=client)
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


@pytest.fixture(scope="module")
def hepth(client, data, tmp_path_factory):
    """ca-HepTh with default options."""
    store = tmp_path_factory.mktemp("hepth")
    ingest(data / "ca-HepTh.txt.gz", store=store, client=client)
    return embed(store, client=client)


def clusters_of(run):
    labels, _ = kmeans_in_memory(np.asarray(run.vectors), 100)
    return labels


def test_loose_pairs_do_not_change_the_clusters(client, data, hepth, tmp_path):
    with gzip.open(data / "ca-HepTh.txt.gz", "rt") as lines:
        edges = [tuple(map(int, line.split())) for line in lines if line[0] != "#"]
    last = max(max(edge) for edge in edges) + 1
    pairs = [(last + 2 * pair, last + 2 * pair + 1) for pair in range(1000)]
    path = write_edges(tmp_path / "edges.parquet", edges + pairs)
    ingest(path, store=tmp_path / "store", client=client)
    run = embed(tmp_path / "store", client=client)
    assert len(run) == len(hepth) + 2000
    # Ids are sorted, so the first rows are those of the graph without pairs.
    found = modularity(hepth.graph, clusters_of(run)[: len(hepth)])
    assert found == pytest.approx(modularity(hepth.graph, clusters_of(hepth)), abs=0.02)


def test_the_eigenvalues_of_a_wide_sketch_are_near_the_largest_there_are(client, hepth):
    run = embed(hepth.path.parent.parent, width=96, client=client)
    spec, certificate = run.manifest["spec"], run.manifest["certificate"]
    matrix = read_matrix(hepth.graph, spec["regularization"]).astype(np.float64)
    k = run.eigenvalues.size
    largest = scipy.sparse.linalg.eigsh(matrix, k=k, which="LA", tol=1e-6)[0][::-1]
    assert certificate["square_norm"] == pytest.approx((matrix.data**2).sum(), rel=1e-5)
    # Those of a subspace are never above the true ones.
    shortfall = largest - run.eigenvalues
    assert shortfall.min() > -1e-5
    assert shortfall[:32].max() < 0.005
    assert shortfall.max() < 0.04
    assert certificate["largest_residual"] < 0.1


@pytest.mark.parametrize("name", ["karate", "dolphins", "us-football", "polblogs"])
def test_the_certificate_holds_on_small_graphs(client, data, tmp_path, name):
    graph = ingest(data / f"{name}.txt.gz", store=tmp_path, client=client)
    for depth in (1, 3, 6):
        run = embed(tmp_path, dim=12, depth=depth, client=client)
        tau = run.manifest["spec"]["regularization"]
        exact = np.linalg.eigvalsh(read_matrix(graph, tau).toarray().astype(np.float64))
        residuals = run.manifest["certificate"]["residuals"]
        for value, residual in zip(run.eigenvalues, residuals, strict=True):
            assert np.abs(exact - value).min() <= residual + 1e-5


@pytest.mark.parametrize("name", ["us-football", "polblogs", "PPI", "pubmed", "ca-HepTh"])
def test_linked_nodes_are_close_and_vectors_are_not_parallel(client, data, tmp_path, name):
    ingest(data / f"{name}.txt.gz", store=tmp_path, client=client)
    run = embed(tmp_path, dim=32 if name == "us-football" else 128, client=client)
    vectors = np.asarray(run.vectors)
    matrix = read_matrix(run.graph).tocoo()
    linked = np.einsum("ij,ij->i", vectors[matrix.row], vectors[matrix.col]).mean()
    mean = np.linalg.norm(vectors.mean(axis=0))
    assert mean < 0.8
    assert linked > mean**2 + 0.1
