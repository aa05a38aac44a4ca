"""Alignment of a graph with sides: a node is matched with itself on its own side."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from figrl import ingest
from figrl.engine.session import Session
from figrl.learn.spec import EmbedOptions
from figrl.serve.embedding import StoreView
from figrl.serve.runs import learn_run, run_embed
from figrl.store.graph import open_graph
from figrl.store.layout import store_paths
from tests.learn.test_embed import random_edges
from tests.reference import write_edges

OPTIONS = EmbedOptions(preset="paper", dim=5, sketch_size=40)


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
def test_it_is_the_rotation_of_procrustes_over_both_sides(client, tmp_path, kind):
    """The sides begin at other rows in the second night, within a chunk."""
    paths, session = store_paths(tmp_path / "store"), Session(client)
    first = random_edges(1, 60, weighted=False)
    second = [*first[30:], *((2000 + i, i) for i in range(20))]
    for number, edges in enumerate((first, second)):
        path = write_edges(tmp_path / f"{number}.parquet", edges)
        ingest(path, store=paths.root, client=client, kind=kind, block_rows=32)
        if number == 0:
            run_embed(paths.root, OPTIONS, session)
    view = StoreView(paths)
    reference, graph = view.embedding(), open_graph(paths)
    assert graph.target_start != reference.graph.target_start
    plain = view.embedding(learn_run(client, paths, graph, OPTIONS, session)[0])
    name, _ = learn_run(client, paths, graph, OPTIONS, session, reference=reference)
    aligned = view.embedding(name)
    old, new = [], []
    for side in ("source", "target"):
        both = set(reference.ids(side=side).to_pylist()) & set(plain.ids(side=side).to_pylist())
        old.append(reference.lookup(sorted(both), side))
        new.append(plain.lookup(sorted(both), side))
    rotation, _ = orthogonal_procrustes(np.concatenate(new), np.concatenate(old))
    rotated = np.asarray(plain.vectors) @ rotation
    np.testing.assert_allclose(aligned.vectors, rotated, atol=1e-4 * np.abs(rotated).max())
    assert aligned.manifest["alignment"]["shared_nodes"] == sum(map(len, old))
