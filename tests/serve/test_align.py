"""Alignment against SciPy's orthogonal Procrustes; fold-in goes on to hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from figrl import fold_in, ingest
from figrl.engine.session import Session
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import StoreView
from figrl.serve.runs import learn_run, run_embed
from figrl.store.arrays import open_zarr
from figrl.store.graph import open_graph
from figrl.store.layout import store_paths
from tests.learn.test_accurate import planted_edges
from tests.reference import write_edges

OPTIONS = EmbedOptions(dim=6, smoothing=3, prominence=0.5)


@pytest.fixture(scope="module", params=[64, 1024])
def nights(client, tmp_path_factory, request):
    """Two nights of a graph: some edges go, and some nodes come."""
    folder = tmp_path_factory.mktemp("nights")
    paths = store_paths(folder / "store")
    first = planted_edges(3)
    second = [
        *first[40:],
        *((2000 + i, i) for i in range(30)),
        *((2000 + i, i + 3) for i in range(30)),
    ]
    session = Session(client)
    ingest(
        write_edges(folder / "1.parquet", first),
        store=paths.root,
        client=client,
        block_rows=request.param,
    )
    run_embed(paths.root, OPTIONS, session)
    reference = StoreView(paths).embedding()
    ingest(
        write_edges(folder / "2.parquet", second),
        store=paths.root,
        client=client,
        block_rows=request.param,
    )
    plain, _ = learn_run(client, paths, open_graph(paths), OPTIONS, session)
    name, done = learn_run(client, paths, open_graph(paths), OPTIONS, session, reference=reference)
    assert not done
    view = StoreView(paths)
    return paths, reference, view.embedding(plain), view.embedding(name), second


def shared(reference, aligned):
    old, new = reference.ids().to_pylist(), aligned.ids().to_pylist()
    both = sorted(set(old) & set(new))
    assert 100 < len(both) < len(new)
    return both


def test_it_is_the_rotation_of_procrustes(nights):
    _, reference, plain, aligned, _ = nights
    both = shared(reference, aligned)
    # The last dimension means the same in both runs, and stays.
    rotation = np.eye(6)
    first = plain.lookup(both)[:, :5], reference.lookup(both)[:, :5]
    rotation[:5, :5], _ = orthogonal_procrustes(*first)
    np.testing.assert_allclose(aligned.vectors, np.asarray(plain.vectors) @ rotation, atol=2e-5)
    basis = np.asarray(open_zarr(plain.path / "basis")) @ rotation
    np.testing.assert_allclose(np.asarray(open_zarr(aligned.path / "basis")), basis, atol=2e-5)


def test_drift_is_measured_for_every_shared_node(nights):
    _, reference, plain, aligned, _ = nights
    both = shared(reference, aligned)
    cosines = (aligned.lookup(both) * reference.lookup(both)).sum(axis=1)
    raw = (plain.lookup(both) * reference.lookup(both)).sum(axis=1)
    found = aligned.manifest["alignment"]
    assert found["reference"] == reference.run
    assert found["shared_nodes"] == found["compared_nodes"] == len(both)
    assert found["mean_cosine"] == pytest.approx(cosines.mean(), abs=1e-5)
    assert found["mean_cosine_unaligned"] == pytest.approx(raw.mean(), abs=1e-5)
    assert found["mean_cosine"] >= found["mean_cosine_unaligned"]
    assert sum(found["histogram"]) == len(both)
    stored = np.asarray(open_zarr(aligned.path / "drift"))
    drift = dict(zip(aligned.ids().to_pylist(), stored, strict=True))
    np.testing.assert_allclose([drift[node] for node in both], 1 - cosines, atol=1e-5)
    assert all(np.isnan(drift[node]) for node in set(drift) - set(both))


def test_a_seen_node_is_folded_into_its_own_vector(nights, client, tmp_path):
    paths, _, _, aligned, edges = nights
    own = [(a, b) for a, b in {tuple(sorted(edge)) for edge in edges} if a != b]
    folded = fold_in(
        paths.root,
        write_edges(tmp_path / "own.parquet", [*own, *((b, a) for a, b in own)]),
        out=tmp_path / "out.parquet",
        run=aligned.run,
        known="recompute",
        client=client,
    ).table()
    vectors = np.stack(folded["vector"].to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(vectors, aligned.lookup(folded["id"].to_pylist()), atol=2e-5)


def test_another_reference_is_another_run(nights, client):
    paths, reference, plain, aligned, _ = nights
    assert len({reference.run, plain.run, aligned.run}) == 3
    name, done = learn_run(
        client, paths, open_graph(paths), OPTIONS, Session(client), reference=reference
    )
    assert (name, done) == (aligned.run, True)
