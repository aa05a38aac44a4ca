"""What exactly is learnt from a graph: the options, with all that a preset or the graph decides."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from figrl.config import Options
from figrl.errors import ConfigError

MAX_SKETCH_SIZE = 32_768
"""More columns than this need a d x d factor of over 8 GB."""

DEFAULT_EPSILON = 0.3
"""The paper draws its pictures at 0.3 and 0.1; 0.1 needs nine times the columns."""

Representation = Literal["unit", "product", "degree"]

_WIDTH_STEP = 16
"""Widths are multiples of a cache line, so that slices of them can be."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "width": None,
        "depth": 1,
        "regularization": 0.0,
        "representation": "degree",
        "smoothing": 0,
        "prominence": 0.0,
    },
    "fast": {
        "width": 0.375,
        "depth": 3,
        "regularization": "auto",
        "representation": "unit",
        "smoothing": 5,
        "prominence": "auto",
    },
    "accurate": {
        "width": 0.5,
        "depth": 8,
        "regularization": "auto",
        "representation": "unit",
        "smoothing": "auto",
        "prominence": "auto",
    },
}
"""Widths are for each dimension. docs/quality.md has the table from which the values were taken."""

SMOOTHING_STEPS = 8
"""Steps of smoothing by default."""

_PROMINENCE, _LEAST_DIM = 0.75, 8
"""Weight of the dimension of prominence by default, from this many dimensions on: of fewer, none
can be spared."""

MAX_PROMINENCE = 10.0
"""A dimension with more weight than this leaves the others nothing."""

MAX_STEPS = 100
"""Most steps of smoothing that may be asked for."""


MAX_REGULARIZATION = 1000
"""In mean degrees. Eigenvalues shrink with it; beyond, their products are lost in float32."""


class EmbedOptions(Options):
    """What is learnt. What is left out is as the preset has it."""

    section: ClassVar[str] = "embed"
    replaces: ClassVar[dict[str, frozenset[str]]] = {
        "preset": frozenset({*PRESETS["accurate"], "sketch_size", "epsilon"}),
        "width": frozenset({"sketch_size", "epsilon"}),
        "sketch_size": frozenset({"width", "epsilon"}),
        "epsilon": frozenset({"width", "sketch_size"}),
    }

    preset: Literal["accurate", "fast", "paper"] = Field(
        "accurate",
        description=(
            "accurate: good vectors from a deep sketch; fast: a shallower one; paper: the paper's "
            "own method, a single product."
        ),
    )
    dim: int = Field(128, ge=1, description="Length k of each vector.")
    width: int | None = Field(
        None,
        ge=1,
        le=MAX_SKETCH_SIZE,
        description="Columns b that are multiplied with the graph at once. Default: k / 2.",
    )
    depth: int | None = Field(
        None,
        ge=1,
        le=100,
        description=(
            "Products s of each column that the sketch keeps, so that it has b s columns. A deeper "
            "sketch is the cheapest way to better vectors; 1 is the paper's single pass."
        ),
    )
    sketch_size: int | None = Field(
        None,
        ge=1,
        le=MAX_SKETCH_SIZE,
        description="Columns d of the sketch in all, in place of the width: b = d / s, rounded up.",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Accuracy from which the paper's rule finds d: max(4 ln n, k) / epsilon^2.",
    )
    regularization: str | float | None = Field(
        None,
        description=(
            "Added to every degree: auto (the mean degree; a tenth of it for the product "
            "representation), or a number. Keeps small components from filling the dimensions; "
            "costs nothing."
        ),
    )
    representation: Representation | None = Field(
        None,
        description=(
            "unit: vectors of length 1 whose cosine means closeness, for clusters, neighbours and "
            "classifiers; product: vectors whose dot product approximates the weight of an edge, "
            "for recommending and link prediction; degree: the paper's D^-1/2 U."
        ),
    )
    smoothing: str | int | None = Field(
        None,
        description=(
            "Products of the low-pass filter that moves each vector of the unit representation to "
            f"those of its neighbours: auto ({SMOOTHING_STEPS}), a number, or 0 for none. How much "
            "it moves them is measured on the graph."
        ),
    )
    prominence: str | float | None = Field(
        None,
        description=(
            "Weight of the last dimension of the unit representation, which says how well linked a "
            "node is: of two nodes that are equally close, the better linked one is nearer. auto "
            f"({_PROMINENCE}, from {_LEAST_DIM} dimensions on), a number, or 0 for none."
        ),
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of the random projection.")
    keep_sketch: bool = Field(
        False,
        description="Keep the sketch in the store after the run, several times as large as the "
        "vectors; nothing needs it then.",
    )

    def significant(self) -> dict[str, Any]:
        """Options that change the vectors; whether the sketch is kept does not."""
        return {
            name: value for name, value in super().significant().items() if name != "keep_sketch"
        }

    @field_validator("regularization")
    @classmethod
    def _auto_or_number(cls, value: str | float | None) -> str | float | None:
        if value is None or value == "auto":
            return value
        with suppress(ValueError):
            if 0 <= (number := float(value)) < math.inf:
                return number
        raise ValueError("has to be auto, or a number from 0 on")

    @field_validator("prominence")
    @classmethod
    def _auto_or_weight(cls, value: str | float | None) -> str | float | None:
        if value is None or value == "auto":
            return value
        with suppress(ValueError):
            if 0 <= (weight := float(value)) <= MAX_PROMINENCE:
                return weight
        raise ValueError(f"has to be auto, or a weight from 0 to {MAX_PROMINENCE:g}")

    @field_validator("smoothing")
    @classmethod
    def _auto_or_steps(cls, value: str | int | None) -> str | int | None:
        if value is None or value == "auto":
            return value
        with suppress(ValueError):
            if 0 <= (steps := int(value)) <= MAX_STEPS:
                return steps
        raise ValueError(f"has to be auto, or a number of steps from 0 to {MAX_STEPS}")


@dataclass(frozen=True)
class EmbedSpec:
    """All that the vectors of a graph depend on, besides the graph.

    The fields are those of `EmbedOptions`, with everything resolved that the preset or the graph
    decides.
    """

    dim: int
    width: int
    depth: int
    regularization: float
    representation: Representation
    smoothing: int
    seed: int
    prominence: float = 0.0

    @property
    def sketch_size(self) -> int:
        """Columns d of the sketch."""
        return self.width * self.depth

    @property
    def directions(self) -> int:
        """Dimensions that are eigenvectors; the one of prominence is not."""
        return self.dim - (self.prominence > 0)

    @property
    def is_paper(self) -> bool:
        """Whether U comes from the SVD of a single product, as in the paper.

        All else needs the eigenvalues of L, and one more product for them.
        """
        return self.depth == 1 and self.representation == "degree"

    @property
    def products(self) -> int:
        """Products of each column with the graph."""
        return 1 if self.is_paper else self.depth + 1


def make_spec(config: EmbedOptions, *, nodes: int, mean_degree: float) -> EmbedSpec:
    """Fill in what the preset and the graph decide, and refuse what does not go together."""
    chosen = dict(PRESETS[config.preset])
    chosen |= {name: value for name in chosen if (value := getattr(config, name)) is not None}
    representation = chosen["representation"]
    if representation != "unit":
        for name in ("smoothing", "prominence"):
            if getattr(config, name) not in (None, 0, "auto"):
                raise ConfigError(
                    f"--{name} is for the unit representation: leave it out, or take "
                    "--representation unit."
                )
            chosen[name] = 0
    steps, prominence = chosen["smoothing"], chosen["prominence"]
    if prominence == "auto":
        prominence = _PROMINENCE if config.dim >= _LEAST_DIM else 0.0
    if prominence and config.dim == 1:
        raise ConfigError("--prominence takes one dimension: give a --dim of at least 2, or 0.")
    tau = chosen["regularization"]
    if tau == "auto":
        tau = mean_degree / 10 if representation == "product" else mean_degree
    if tau > MAX_REGULARIZATION * mean_degree:
        raise ConfigError(
            f"--regularization is {tau:g}, and the mean degree is {mean_degree:g}. It may be "
            f"{MAX_REGULARIZATION} times that at most, for beyond it little is left of the graph: "
            "give auto, or a smaller number."
        )
    return EmbedSpec(
        dim=config.dim,
        width=_width(config, nodes, chosen["width"], chosen["depth"]),
        depth=chosen["depth"],
        regularization=tau,
        representation=representation,
        smoothing=SMOOTHING_STEPS if steps == "auto" else steps,
        seed=config.seed,
        prominence=float(prominence),
    )


def _width(config: EmbedOptions, nodes: int, preset: float | None, depth: int) -> int:
    """Columns that are multiplied at once, so that the sketch has room for all dimensions."""
    asked = [n for n in ("width", "sketch_size", "epsilon") if getattr(config, n) is not None]
    if len(asked) > 1:
        first, second = ("--" + name.replace("_", "-") for name in asked[:2])
        raise ConfigError(f"Give {first} or {second}, not both: one follows from the other.")
    if config.dim >= nodes:
        raise ConfigError(_too_many_dimensions(config, nodes))
    if config.width is not None:
        width = config.width
    elif config.sketch_size is not None:
        width = math.ceil(config.sketch_size / depth)
    elif config.epsilon is not None or preset is None:
        epsilon = config.epsilon or DEFAULT_EPSILON
        width = math.ceil(paper_sketch_size(nodes, dim=config.dim, epsilon=epsilon) / depth)
    else:
        wanted = max(preset, 1 / depth) * config.dim
        width = math.ceil(wanted / _WIDTH_STEP) * _WIDTH_STEP
    _check_size(config, nodes, width, depth)
    return width


def _too_many_dimensions(config: EmbedOptions, nodes: int) -> str:
    if nodes < 2:
        return "The graph has one node only, and --dim has to be below the number of nodes."
    default = "" if "dim" in config.model_fields_set else " by default"
    given = f"--dim is {config.dim}{default}, but the graph has {nodes} nodes"
    return f"{given}: give at most {nodes - 1}."


def _check_size(config: EmbedOptions, nodes: int, width: int, depth: int) -> None:
    if (size := width * depth) > MAX_SKETCH_SIZE:
        least = math.sqrt(max(4 * math.log(nodes), config.dim) / MAX_SKETCH_SIZE)
        raise ConfigError(
            f"The sketch would have {size} columns. Allowed are {config.dim} to "
            f"{MAX_SKETCH_SIZE}: give a smaller --width, --depth or --sketch-size, or an --epsilon "
            f"of at least {math.ceil(least * 1000) / 1000}."
        )
    if config.dim > size:
        remedy = f"a --sketch-size from {config.dim} to {MAX_SKETCH_SIZE}"
        if config.width is not None:
            remedy = f"a --width of at least {math.ceil(config.dim / depth)}"
        raise ConfigError(
            f"--dim is {config.dim}, but the sketch has only {size} columns (width {width} x depth "
            f"{depth}). Give {remedy}, or a smaller --dim."
        )


def paper_sketch_size(nodes: int, *, dim: int, epsilon: float) -> int:
    """Columns that the paper's rule asks for: ``max(4 ln n / eps^2, k / eps^2)``.

    Examples
    --------
    >>> paper_sketch_size(9875, dim=200, epsilon=0.1)
    20000
    """
    return math.ceil(round(max(4 * math.log(max(nodes, 2)), dim) / epsilon**2, 6))
