"""What exactly is learnt from a graph: the options, with all that a preset or the graph decides."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.config import MAX_SKETCH_SIZE, EmbedConfig
from pipeline.errors import ConfigError

DEFAULT_EPSILON = 0.3
"""The paper draws its pictures at 0.3 and 0.1; 0.1 needs nine times the columns."""

_OVERSAMPLING = 1.5
"""Columns of the sketch for each dimension; twice as many did no better."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "power_iterations": 0,
        "regularization": 0.0,
        "representation": "degree",
        "exponent": 1.0,
        "smoothing": 0,
        "projection": "gaussian",
        "certificate": "no",
    },
    "accurate": {
        "power_iterations": 5,
        "regularization": "auto",
        "representation": "unit",
        "exponent": 1.0,
        "smoothing": None,
        "projection": "gaussian",
        "certificate": "yes",
    },
}
"""docs/quality.md has the table from which the values of ``accurate`` were taken."""


@dataclass(frozen=True)
class Recipe:
    """All that the vectors of a graph depend on, besides the graph.

    Attributes
    ----------
    dim, sketch_size : int
        Length k of a vector, and columns d of the sketch.
    power_iterations : int
        q: the sketch is ``L^(2q+1) R``.
    regularization : float
        tau: what is added to every degree.
    representation : str
        ``degree`` or ``unit``.
    exponent : float
        p of ``U |lambda|^p``.
    smoothing : int
        Steps in which a vector moves to the mean of its neighbours'.
    projection : str
        ``gaussian`` or ``sparse-sign``.
    certified : bool
        Whether there is a Ritz step, and with it a certificate.
    seed : int
    """

    dim: int
    sketch_size: int
    power_iterations: int
    regularization: float
    representation: Literal["degree", "unit"]
    exponent: float
    smoothing: int
    projection: Literal["gaussian", "sparse-sign"]
    certified: bool
    seed: int

    @property
    def products(self) -> int:
        """Products with the graph that make the sketch."""
        return 2 * self.power_iterations + 1

    def describe(self) -> dict[str, Any]:
        """Give it as JSON can write it."""
        return asdict(self)


def make_recipe(config: EmbedConfig, *, nodes: int, mean_degree: float) -> Recipe:
    """Fill in what the preset and the graph decide, and refuse what does not go together."""
    chosen = dict(PRESETS[config.preset])
    chosen |= {name: value for name in chosen if (value := getattr(config, name)) is not None}
    certified = chosen.pop("certificate") == "yes"
    if chosen["representation"] == "unit" and not certified:
        raise ConfigError(
            "The unit representation weighs vectors by eigenvalues, which the certificate finds: "
            "leave out '--certificate no', or take --representation degree."
        )
    if chosen["smoothing"] is None:
        chosen["smoothing"] = usual_smoothing(nodes) if chosen["representation"] == "unit" else 0
    if chosen["representation"] == "degree" and chosen["smoothing"]:
        raise ConfigError(
            "--smoothing is for the unit representation: leave it out, or take "
            "--representation unit."
        )
    if chosen["regularization"] == "auto":
        chosen["regularization"] = mean_degree
    size = resolve_sketch_size(config, nodes)
    return Recipe(dim=config.dim, sketch_size=size, certified=certified, seed=config.seed, **chosen)


def usual_smoothing(nodes: int) -> int:
    """Steps of smoothing for a graph of this size: the larger it is, the further clusters reach."""
    return min(max(round(12 * math.pow(nodes / 20_000, 0.4)), 1), 64)


def resolve_sketch_size(config: EmbedConfig, nodes: int) -> int:
    """Sketch size d for a graph of `nodes` nodes, checked against k and n."""
    if config.sketch_size is not None and config.epsilon is not None:
        raise ConfigError("Give --sketch-size or --epsilon, not both: one follows the other.")
    if config.dim >= nodes:
        raise ConfigError(
            f"--dim is {config.dim}, but the graph has {nodes} nodes. It has to be below the "
            f"number of nodes: at most {nodes - 1}."
        )
    size = config.sketch_size
    if size is None and config.epsilon is None and config.preset == "accurate":
        size = math.ceil(_OVERSAMPLING * config.dim / 4) * 4
    if size is None:
        size = paper_sketch_size(nodes, dim=config.dim, epsilon=config.epsilon or DEFAULT_EPSILON)
    if size > MAX_SKETCH_SIZE:
        least = math.sqrt(max(4 * math.log(nodes), config.dim) / MAX_SKETCH_SIZE)
        raise ConfigError(
            f"The sketch would have {size} columns. Allowed are {config.dim} to "
            f"{MAX_SKETCH_SIZE}: give --sketch-size, or an --epsilon of at least "
            f"{math.ceil(least * 1000) / 1000}."
        )
    if config.dim > size:
        raise ConfigError(
            f"--dim is {config.dim}, but the sketch has only {size} columns. Give a "
            f"--sketch-size from {config.dim} to {MAX_SKETCH_SIZE}, or a smaller --dim."
        )
    return size


def paper_sketch_size(nodes: int, *, dim: int, epsilon: float) -> int:
    """Columns that the paper's rule asks for: ``max(4 ln n / eps^2, k / eps^2)``.

    Examples
    --------
    >>> paper_sketch_size(9875, dim=200, epsilon=0.1)
    20000
    """
    return math.ceil(round(max(4 * math.log(max(nodes, 2)), dim) / epsilon**2, 6))
