"""GraphSAGE (Hamilton, Ying and Leskovec, NIPS 2017), learnt without classes.

Mean aggregator, two layers, 25 and 10 sampled neighbours, pairs from random walks of five steps,
batches of 512 pairs and Adam are the authors'. The graphs of the paper have no features, so each
node has learnt ones, the authors' ``identity_dim``. A new node has none, and takes the mean of its
neighbours' features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from figrl.analyze.adjacency import Adjacency
from figrl.errors import BadInputError
from figrl.study.rivals.graphsage_model import (
    Adam,
    Batch,
    Floats,
    Nodes,
    Parameters,
    layer,
    loss_and_gradient,
    rectified,
    unit_rows,
)
from figrl.study.rivals.sampling import (
    AliasTable,
    draw_many,
    draw_neighbours,
    draw_walk_pairs,
    negative_table,
    seed_key,
)

_PURPOSES = 4
"""Draws of a step that need keys of their own: pairs, negatives, and neighbours of two layers."""


@dataclass(frozen=True)
class SageOptions:
    """Settings of GraphSAGE.

    `dim`: vector length. `features`: length of the learnt features; also that of the first layer.
    `walks`: pairs learnt from, on average, for each node. `fewest_steps`: for small graphs.
    `negatives`: as many as LINE and node2vec have; the authors' 20 push most nodes of a community
    apart in a small graph, where chance alone draws many of them as negatives.
    """

    dim: int = 100
    features: int = 50
    neighbours: tuple[int, int] = (25, 10)
    walk_steps: int = 5
    walks: int = 50
    fewest_steps: int = 500
    negatives: int = 5
    batch: int = 512
    rate: float = 0.01
    seed: int = 0

    def steps(self, nodes: int) -> int:
        """Batches that are learnt from."""
        return max(self.fewest_steps, -(-self.walks * nodes // self.batch))


@dataclass(frozen=True)
class SageModel:
    """A learnt model: what is needed for the vectors of old and new nodes."""

    parameters: Parameters
    means: sp.csr_array[Any]
    losses: tuple[float, ...] = ()

    def vectors(self) -> npt.NDArray[np.float32]:
        """Vectors of the nodes learnt from; the means are over all neighbours, not sampled."""
        hidden = self._first_layer(self.parameters.features, self.means)
        return self._second_layer(hidden, hidden, self.means)

    def fold_in(self, edges: Any) -> npt.NDArray[np.float32]:
        """Vectors of new nodes from their edges: a sparse matrix, (new nodes, nodes)."""
        nodes = self.parameters.features.shape[0]
        if edges.shape[1] != nodes:
            raise BadInputError(
                f"Edges of new nodes lead to {edges.shape[1]:,} nodes; the model was learnt from "
                f"{nodes:,}. Give a matrix with a column for each of those."
            )
        means = mean_matrix(sp.csr_array(edges), self.parameters.features.dtype)
        known = self._first_layer(self.parameters.features, self.means)
        hidden = self._first_layer(means @ self.parameters.features, means)
        return self._second_layer(hidden, known, means)

    def _first_layer(self, own: Floats, means: Any) -> Floats:
        near = means @ self.parameters.features
        return rectified(layer(own, near, self.parameters.first))

    def _second_layer(self, own: Floats, known: Floats, means: Any) -> npt.NDArray[np.float32]:
        found, _ = unit_rows(layer(own, means @ known, self.parameters.second))
        return np.asarray(found, np.float32)


def learn_sage(graph: Adjacency, options: SageOptions) -> SageModel:
    """Learn a model of a graph; weights of edges are not used, as by the authors."""
    parameters = initial_parameters(graph.nodes, options)
    adam = Adam(parameters, options.rate)
    negatives = negative_table(np.diff(graph.starts).astype(np.float64))
    losses = []
    # The products are small: threads of BLAS cost more than they bring.
    with threadpool_limits(limits=1, user_api="blas"):
        for step in range(options.steps(graph.nodes)):
            batch = draw_batch(graph, negatives, options, step)
            loss, gradient = loss_and_gradient(parameters, batch)
            adam.step(gradient)
            losses.append(loss)
    matrix = sp.csr_array(graph.matrix())
    return SageModel(parameters, mean_matrix(matrix, parameters.features.dtype), tuple(losses))


def initial_parameters(nodes: int, options: SageOptions, dtype: Any = np.float32) -> Parameters:
    """Glorot's uniform initial values, as in the authors' program."""
    rng = np.random.default_rng(options.seed)
    width = options.features
    shapes = ((nodes, width), (2 * width, width), (2 * width, options.dim))
    # The features are the weights of a layer whose input has a single 1.
    fans = (width, 3 * width, 2 * width + options.dim)
    limits = (float(np.sqrt(6 / fan)) for fan in fans)
    return Parameters(
        *(
            rng.uniform(-limit, limit, shape).astype(dtype)
            for limit, shape in zip(limits, shapes, strict=True)
        )
    )


def draw_batch(
    graph: Adjacency, negatives: AliasTable, options: SageOptions, step: int, dtype: Any = "f4"
) -> Batch:
    """Draw pairs and negatives, then sampled neighbours, once for each distinct node of a layer."""
    keys = [seed_key(options.seed, _PURPOSES * step + purpose) for purpose in range(_PURPOSES)]
    lists = graph.starts, graph.neighbours
    pairs = draw_walk_pairs(*lists, options.batch, options.walk_steps, keys[0])
    against = draw_many(negatives, options.negatives, keys[1])
    roots, places = np.unique(np.concatenate([pairs.ravel(), against]), return_inverse=True)
    near_roots = draw_neighbours(*lists, roots, options.neighbours[0], keys[2])
    inner = np.unique(np.concatenate([roots, near_roots.ravel()]))
    near_inner = draw_neighbours(*lists, inner, options.neighbours[1], keys[3])
    return Batch(
        inner,
        _sampled_means(near_inner, graph.nodes, dtype),
        np.searchsorted(inner, roots),
        _sampled_means(np.searchsorted(inner, near_roots), inner.size, dtype),
        places[: pairs.size].reshape(pairs.shape),
        places[pairs.size :],
    )


def _sampled_means(samples: Nodes, columns: int, dtype: Any) -> sp.csr_array[Any]:
    """Matrix that takes means over rows of samples; a place drawn twice counts twice."""
    rows, count = samples.shape
    values = np.full(samples.size, 1 / count, dtype)
    bounds = np.arange(0, samples.size + 1, count)
    return sp.csr_array((values, samples.ravel(), bounds), shape=(rows, columns))


def mean_matrix(edges: sp.csr_array[Any], dtype: Any) -> sp.csr_array[Any]:
    """Matrix that takes means over all neighbours; zeros for a node without any."""
    counts = np.diff(edges.indptr)
    values = np.repeat(1 / np.maximum(counts, 1), counts).astype(dtype)
    return sp.csr_array((values, edges.indices, edges.indptr), shape=edges.shape)
