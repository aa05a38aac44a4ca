"""Nights of bipartite and directed graphs, and of edges that grow old."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from figrl.engine.session import Session
from figrl.errors import ConfigError
from figrl.nightly.checks import NEAREST
from figrl.nightly.config import example_config
from figrl.serve.embedding import open_store
from figrl.serve.fold_in import FoldInOptions
from figrl.serve.overlay_update import run_fold_publish
from figrl.store.files import read_json
from tests.learn.test_embed import random_edges
from tests.nightly.test_reindex import Nights
from tests.reference import DenseGraph, unit_rows, write_edges

PAPER = {"preset": "paper", "dim": 5, "sketch_size": 40}


@pytest.mark.parametrize("kind", ["bipartite", "directed"])
def test_nodes_that_were_folded_in_stay_on_their_side(client, tmp_path, kind):
    nights = Nights(tmp_path, client, embed=PAPER, ingest={"kind": kind})
    nights.write(1, random_edges(1, 60, weighted=False))
    nights.run()
    new = write_edges(tmp_path / "new.parquet", [(900, 7), (901, 8), (900, 9)])
    run_fold_publish(nights.store, new, FoldInOptions(side="target"), Session(client))
    nights.write(2, [(i, i + 1) for i in range(10)])
    second = nights.run()
    assert (second["carried_nodes"], second["nothing_to_do"]) == (2, False)
    run = open_store(nights.store).embedding()
    assert run.run == second["run"]
    assert run.sides_at(run.rows_of([900, 901])) == ["target", "target"]


def test_a_node_that_is_never_a_target_does_not_count_as_a_zero_vector(client, tmp_path):
    """Half of the nodes of this directed graph are never targets; that is no damage."""
    nights = Nights(tmp_path, client, embed=PAPER, ingest={"kind": "directed"})
    nights.write(1, [(100 + a, b) for a, b in random_edges(2, 40, weighted=False)])
    report = nights.run()
    assert report["measures"]["zero_vectors"] == 0
    isolated = read_json(nights.store / "graph" / report["graph"] / "manifest.json")["graph"]
    assert isolated["isolated_nodes"] == report["nodes"] // 2


def test_neighbour_recall_looks_at_the_other_side(client, tmp_path):
    """Against all cosines; every node is in the sample."""
    nights = Nights(tmp_path, client, embed=PAPER, ingest={"kind": "bipartite", "block_rows": 32})
    edges = random_edges(3, 60, weighted=False)
    nights.write(1, edges)
    measured = nights.run()["measures"]["neighbour_recall"]
    run = open_store(nights.store).embedding()
    graph = DenseGraph.with_sides(edges, "bipartite")
    assert len(graph.ids) <= 128
    units = unit_rows(np.asarray(run.vectors, np.float64))
    is_source = np.arange(len(graph.ids)) < graph.target_start
    shares = []
    for row, weights in enumerate(graph.weights):
        cosines = np.where(is_source == is_source[row], -np.inf, units @ units[row])
        found = np.isin(np.flatnonzero(weights), np.argsort(-cosines)[: NEAREST + 1])
        shares.append(found.sum() / min(found.size, NEAREST))
    assert measured == pytest.approx(np.mean(shares), abs=1e-6)
    assert 0.8 < measured < 1


def test_another_kind_than_the_published_one_is_refused(client, tmp_path):
    nights = Nights(tmp_path, client, embed=PAPER)
    nights.write(1, random_edges(1, 60, weighted=False))
    nights.run()
    message = r"ingest\.kind is directed, but the graph of the published run \w+ is undirected"
    with pytest.raises(ConfigError, match=message):
        nights.run(ingest={"kind": "directed"})


def test_the_configuration_has_the_options_of_ingest(client, tmp_path):
    example = yaml.safe_load(example_config())["ingest"]
    assert example["kind"] == "undirected"
    assert {"time", "half_life", "as_of"} <= set(example)
    nights = Nights(tmp_path, client, embed=PAPER)
    edges = random_edges(1, 60, weighted=False)
    nights.write(1, edges, at=list(range(len(edges))))
    report = nights.run(ingest={"time": "at", "half_life": 50, "as_of": 1000})
    graph = read_json(nights.store / "graph" / report["graph"] / "manifest.json")["graph"]
    assert (graph["weighted"], graph["as_of"]) == (True, 1000.0)
