"""GraphSAGE: gradients against finite differences, and vectors of old and new nodes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from figrl.errors import BadInputError
from figrl.study.rivals.graphsage import (
    SageOptions,
    draw_batch,
    initial_parameters,
    learn_sage,
)
from figrl.study.rivals.graphsage_model import Adam, Parameters, loss_and_gradient
from figrl.study.rivals.sampling import negative_table
from tests.study.rivals.planted import PLANTED, TRUTH, matrix_of, planted_lists, separation

TINY = SageOptions(dim=3, features=4, neighbours=(3, 2), batch=6, negatives=5, seed=1)
SMALL = SageOptions(dim=16, features=12, neighbours=(8, 5), walks=0, fewest_steps=150, batch=128)


@pytest.fixture(scope="module")
def graph():
    return planted_lists()


@pytest.fixture(scope="module")
def model(graph):
    return learn_sage(graph, SMALL)


def tiny_batch(graph):
    return draw_batch(graph, negative_table(graph.degrees), TINY, step=3, dtype=np.float64)


@pytest.mark.parametrize("part", range(3))
def test_gradients_are_those_of_finite_differences(graph, part):
    parameters = initial_parameters(graph.nodes, TINY, np.float64)
    batch = tiny_batch(graph)
    _, gradient = loss_and_gradient(parameters, batch)
    values, slopes = parameters[part], gradient[part]
    places = np.argwhere(slopes != 0)
    assert len(places) >= min(20, slopes.size // 2)
    for place in map(tuple, places[:: max(1, len(places) // 40)]):
        before, ends = values[place], []
        for by in (1e-6, -1e-6):
            values[place] = before + by
            ends.append(loss_and_gradient(parameters, batch)[0])
        values[place] = before
        assert slopes[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-9)


def test_a_batch_holds_all_that_its_vectors_need(graph):
    batch = tiny_batch(graph)
    linked = graph.matrix().toarray() > 0
    nodes = batch.inner[batch.roots]
    assert np.unique(batch.inner).size == batch.inner.size
    assert (nodes[batch.pairs[:, 0]] != nodes[batch.pairs[:, 1]]).all()
    for means in (batch.inner_means, batch.root_means):
        np.testing.assert_allclose(means.sum(axis=1), 1)
    # Means are over neighbours only.
    assert linked[batch.inner][batch.inner_means.toarray() > 0].all()
    assert linked[nodes][:, batch.inner][batch.root_means.toarray() > 0].all()


def test_adam_takes_the_steps_of_its_definition():
    values = [np.array([1.0, -2.0]), np.array([0.5]), np.array([3.0])]
    adam = Adam(Parameters(*(one.copy() for one in values)), rate=0.1)
    slopes = [Parameters(*(one * factor for one in values)) for factor in (1.0, -0.5, 2.0)]
    expected = [one.copy() for one in values]
    for part in range(3):
        mean = square = 0.0
        for number, slope in enumerate(slopes, start=1):
            mean = 0.9 * mean + 0.1 * slope[part]
            square = 0.999 * square + 0.001 * slope[part] ** 2
            hat, spread = mean / (1 - 0.9**number), square / (1 - 0.999**number)
            expected[part] = expected[part] - 0.1 * hat / (np.sqrt(spread) + 1e-8)
    for slope in slopes:
        adam.step(slope)
    for found, right in zip(adam.parameters, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)


def test_planted_communities_are_separated(model):
    vectors = model.vectors()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert separation(vectors) > 0.9
    assert np.mean(model.losses[-20:]) < np.mean(model.losses[:5]) - 1


def test_new_nodes_are_placed_with_their_communities(model):
    stop = PLANTED.nodes + PLANTED.new_nodes
    new = model.fold_in(matrix_of(PLANTED.nodes, stop))
    vectors = np.concatenate([model.vectors(), new])
    truth = np.concatenate([TRUTH, PLANTED.community(np.arange(PLANTED.nodes, stop))])
    centres = np.stack([vectors[: TRUTH.size][one == TRUTH].mean(axis=0) for one in range(4)])
    nearest = (new @ centres.T).argmax(axis=1)
    assert (nearest == truth[TRUTH.size :]).mean() >= 0.9
    assert separation(vectors, truth) > 0.85
    with pytest.raises(BadInputError, match="lead to 7 nodes; the model was learnt from 120"):
        model.fold_in(sp.csr_array((2, 7)))


def test_a_known_node_keeps_its_vector_but_for_its_own_features(graph, model):
    """Folding in a node whose features are the mean of its neighbours' changes nothing."""
    features = model.parameters.features.copy()
    node = 5
    features[node] = (model.means @ features)[node]
    changed = type(model)(model.parameters._replace(features=features), model.means)
    row = sp.csr_array(graph.matrix())[[node]]
    np.testing.assert_allclose(changed.fold_in(row)[0], changed.vectors()[node], atol=1e-5)


def test_the_same_seed_gives_the_same_bits(graph):
    options = SageOptions(dim=6, features=5, neighbours=(4, 3), walks=0, fewest_steps=5, batch=32)
    first = learn_sage(graph, options).vectors()
    np.testing.assert_array_equal(first, learn_sage(graph, options).vectors())
