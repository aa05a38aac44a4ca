"""What exactly is learnt from a graph: the options, with all that a preset or the graph decides."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from figrl.config import Options
from figrl.errors import ConfigError

MAX_SKETCH_SIZE = 32_768
"""More columns than this need a d x d factor of over 8 GB."""

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


class EmbedOptions(Options):
    """What is learnt. What is left out is as the preset has it."""

    preset: Literal["accurate", "paper"] = Field(
        "accurate",
        description="accurate: good vectors from a small sketch; paper: the paper's own method.",
    )
    dim: int = Field(128, ge=1, description="Length k of each vector.")
    sketch_size: int | None = Field(
        None,
        ge=1,
        le=MAX_SKETCH_SIZE,
        description=(
            "Columns d of the sketch; more cost time and disk and give better vectors. Default: "
            "1.5 k; with the preset paper, its rule."
        ),
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Accuracy from which the paper's rule finds d: max(4 ln n, k) / epsilon^2.",
    )
    power_iterations: int | None = Field(
        None,
        ge=0,
        le=100,
        description=(
            "Times q that the sketch goes through the graph and back: 2q + 1 products instead of "
            "one, and each costs as much as the first; the largest gain in quality."
        ),
    )
    regularization: str | float | None = Field(
        None,
        description=(
            "Added to every degree: auto (the mean degree), or a number. Keeps small separate "
            "pieces of a graph from filling the dimensions; costs nothing."
        ),
    )
    representation: Literal["degree", "unit"] | None = Field(
        None,
        description=(
            "degree: the paper's D^-1/2 U; unit: rows of U |lambda|^p of length 1, better for "
            "clustering and for cosines."
        ),
    )
    exponent: float | None = Field(
        None,
        ge=0,
        le=10,
        description="p of the unit representation: more weight for what the graph says clearest.",
    )
    smoothing: int | None = Field(
        None,
        ge=0,
        le=100,
        description=(
            "Steps in which each vector moves to the mean of its neighbours', for the unit "
            "representation; a product with k columns each. Default: more for larger graphs."
        ),
    )
    projection: Literal["gaussian", "sparse-sign"] | None = Field(
        None,
        description=(
            "Random matrix: gaussian, or sparse-sign with a few entries a row, which makes the "
            "first product cheaper."
        ),
    )
    certificate: Literal["yes", "no"] | None = Field(
        None,
        description=(
            "Whether vectors are rotated to eigenvectors and their accuracy is measured: one more "
            "product with k columns. The unit representation needs it."
        ),
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of the random projection.")

    @field_validator("regularization")
    @classmethod
    def _auto_or_number(cls, value: str | float | None) -> str | float | None:
        if value is None or value == "auto":
            return value
        with suppress(ValueError):
            if 0 <= (number := float(value)) < math.inf:
                return number
        raise ValueError("has to be auto, or a number from 0 on")


@dataclass(frozen=True)
class EmbedSpec:
    """All that the vectors of a graph depend on, besides the graph.

    The fields are those of `EmbedOptions`, with everything resolved that the preset or the graph
    decides; the sketch is ``L^(2q+1) R`` with q power iterations.
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


def make_spec(config: EmbedOptions, *, nodes: int, mean_degree: float) -> EmbedSpec:
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
        # The larger a graph is, the further its clusters reach.
        steps = min(max(round(12 * math.pow(nodes / 20_000, 0.4)), 1), 64)
        chosen["smoothing"] = steps if chosen["representation"] == "unit" else 0
    if chosen["representation"] == "degree" and chosen["smoothing"]:
        raise ConfigError(
            "--smoothing is for the unit representation: leave it out, or take "
            "--representation unit."
        )
    if chosen["regularization"] == "auto":
        chosen["regularization"] = mean_degree
    size = resolve_sketch_size(config, nodes)
    return EmbedSpec(
        dim=config.dim, sketch_size=size, certified=certified, seed=config.seed, **chosen
    )


def resolve_sketch_size(config: EmbedOptions, nodes: int) -> int:
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
