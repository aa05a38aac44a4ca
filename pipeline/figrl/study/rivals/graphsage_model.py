"""Two layers of GraphSAGE with the mean aggregator: vectors, loss, and its gradient.

With features ``X``, a layer maps ``h_v`` and the mean over sampled neighbours to
``[h_v, mean h_u] W``. The first layer is followed by ``max(0, x)``; the second one by nothing but
normalisation to length 1, as in the authors' program. A sampled mean is a sparse matrix whose rows
sum to 1, so its gradient is a product with the transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
Nodes = npt.NDArray[np.int64]


class Parameters(NamedTuple):
    """All that is learnt, or a gradient of the same shapes.

    `features`: (nodes, f). `first`: (2 f, h). `second`: (2 h, k).
    """

    features: Floats
    first: Floats
    second: Floats


@dataclass(frozen=True)
class Batch:
    """Nodes that one step of learning needs, with the means over their sampled neighbours.

    `inner`: nodes whose first layer is needed. `inner_means`: (inner, nodes), of features. `roots`:
    places in `inner` of the nodes whose vectors are needed. `root_means`: (roots, inner), of first
    layers. `pairs`: places in `roots`, two columns. `negatives`: places in `roots`, shared by all
    pairs.
    """

    inner: Nodes
    inner_means: Any
    roots: Nodes
    root_means: Any
    pairs: Nodes
    negatives: Nodes


def layer(own: Floats, means: Floats, weights: Floats) -> Floats:
    """Layer before its non-linearity: ``[own, means] W``."""
    return np.asarray(np.hstack([own, means]) @ weights)


def rectified(values: Floats) -> Floats:
    """``max(0, x)``."""
    return np.maximum(values, 0)


def unit_rows(values: Floats) -> tuple[Floats, Floats]:
    """Rows divided by their lengths, and the lengths; a row of zeros stays, with length 1."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return values / lengths, lengths


def loss_and_gradient(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Mean loss of the pairs, and its gradient.

    The loss of a pair ``(u, v)`` is ``-log s(z_u . z_v) - sum_n log s(-z_u . z_n)`` over the
    negatives ``n``, with ``s(x) = 1 / (1 + exp(-x))``.
    """
    features, first, second = parameters
    own = np.hstack([features[batch.inner], batch.inner_means @ features])
    hidden = rectified(own @ first)
    joined = np.hstack([hidden[batch.roots], batch.root_means @ hidden])
    vectors, lengths = unit_rows(joined @ second)
    loss, slope = pair_loss(vectors, batch.pairs, batch.negatives)

    # Of the normalisation: only what is orthogonal to the vector is left.
    slope = (slope - vectors * (vectors * slope).sum(axis=1, keepdims=True)) / lengths
    second_slope = joined.T @ slope
    joined_slope = slope @ second.T
    width = hidden.shape[1]
    hidden_slope = batch.root_means.T @ joined_slope[:, width:]
    # Roots are distinct, so that each row is added to once; likewise inner nodes.
    hidden_slope[batch.roots] += joined_slope[:, :width]
    hidden_slope *= hidden > 0
    first_slope = own.T @ hidden_slope
    own_slope = hidden_slope @ first.T
    width = features.shape[1]
    feature_slope = batch.inner_means.T @ own_slope[:, width:]
    feature_slope[batch.inner] += own_slope[:, :width]
    return loss, Parameters(feature_slope, first_slope, second_slope)


def pair_loss(vectors: Floats, pairs: Nodes, negatives: Nodes) -> tuple[float, Floats]:
    """Mean loss over pairs of vectors, and its gradient by the vectors."""
    one, other = vectors[pairs[:, 0]], vectors[pairs[:, 1]]
    against = vectors[negatives]
    near, far = (one * other).sum(axis=1, keepdims=True), one @ against.T
    loss = np.logaddexp(0, -near).sum() + np.logaddexp(0, far).sum()
    pull, push = _logistic(near) - 1, _logistic(far)
    slope = np.zeros_like(vectors)
    np.add.at(slope, pairs[:, 0], pull * other + push @ against)
    np.add.at(slope, pairs[:, 1], pull * one)
    np.add.at(slope, negatives, push.T @ one)
    return float(loss) / len(pairs), slope / len(pairs)


def _logistic(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-values))


class Adam:
    """Adam (Kingma and Ba 2015) with its usual constants; parameters are changed in place."""

    def __init__(self, parameters: Parameters, rate: float) -> None:
        self.parameters, self.rate, self.steps = parameters, rate, 0
        self._means = [np.zeros_like(one) for one in parameters]
        self._squares = [np.zeros_like(one) for one in parameters]

    def step(self, gradient: Parameters) -> None:
        """Move against the gradient."""
        self.steps += 1
        scale = self.rate * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        moments = zip(self.parameters, gradient, self._means, self._squares, strict=True)
        for values, slope, mean, square in moments:
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope * slope - square)
            values -= scale * mean / (np.sqrt(square) + 1e-8)
