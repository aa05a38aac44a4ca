"""What can be asked for: the options of each job, with their meaning and their limits."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.errors import ConfigError

MAX_SKETCH_SIZE = 32_768
"""More columns than this need a d x d factor of over 8 GB."""

Model = TypeVar("Model", bound="_Options")


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def significant(self) -> dict[str, Any]:
        """Options that change the result, as JSON can write them."""
        return self.model_dump(mode="json")


class IngestConfig(_Options):
    """How edges are read."""

    source: str | None = Field(None, description="Column of one end; default: the first column.")
    target: str | None = Field(None, description="Column of the other end; default: the second.")
    weight: str | None = Field(
        None, description="Column of weights; default: the third column, if it is numeric."
    )
    ids: Literal["auto", "int", "string"] = Field(
        "auto", description="How to read ids in text: auto takes integers if all of them are."
    )
    csv_header: Literal["auto", "yes", "no"] = Field(
        "auto", description="Whether CSV begins with names; auto: unless it begins with numbers."
    )
    on_bad_edges: Literal["fail", "quarantine"] = Field(
        "fail", description="Stop at the first bad row, or set bad rows aside and go on."
    )
    block_rows: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="Nodes in a row block, a power of two; default: from the size of the graph.",
    )

    @field_validator("block_rows")
    @classmethod
    def _power_of_two(cls, value: int | None) -> int | None:
        if value is not None and value & (value - 1):
            raise ValueError(f"has to be a power of two, such as {1 << value.bit_length()}")
        return value


class EmbedConfig(_Options):
    """What is learnt, by the paper: one pass, a Gaussian sketch, ``Y = D^-1/2 U``."""

    preset: Literal["paper"] = Field("paper", description="The paper's own method.")
    dim: int = Field(128, ge=1, description="Length k of each vector.")
    sketch_size: int | None = Field(
        None,
        ge=1,
        le=MAX_SKETCH_SIZE,
        description="Columns d of the sketch; more cost time and disk and give better vectors.",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Accuracy from which the paper's rule finds d: max(4 ln n, k) / epsilon^2.",
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of the random projection.")

    def resolve_sketch_size(self, nodes: int) -> int:
        """Sketch size d for a graph of `nodes` nodes, checked against k and n."""
        if self.sketch_size is not None and self.epsilon is not None:
            raise ConfigError("Give --sketch-size or --epsilon, not both: one follows the other.")
        if self.dim >= nodes:
            raise ConfigError(
                f"--dim is {self.dim}, but the graph has {nodes} nodes. It has to be below the "
                f"number of nodes: at most {nodes - 1}."
            )
        size = self.sketch_size
        if size is None:
            size = paper_sketch_size(nodes, dim=self.dim, epsilon=self.epsilon or DEFAULT_EPSILON)
        if size > MAX_SKETCH_SIZE:
            least = math.sqrt(max(4 * math.log(nodes), self.dim) / MAX_SKETCH_SIZE)
            raise ConfigError(
                f"The sketch would have {size} columns. Allowed are {self.dim} to "
                f"{MAX_SKETCH_SIZE}: give --sketch-size, or an --epsilon of at least "
                f"{math.ceil(least * 1000) / 1000}."
            )
        if self.dim > size:
            raise ConfigError(
                f"--dim is {self.dim}, but the sketch has only {size} columns. Give a "
                f"--sketch-size from {self.dim} to {MAX_SKETCH_SIZE}, or a smaller --dim."
            )
        return size


DEFAULT_EPSILON = 0.3
"""The paper draws its pictures at 0.3 and 0.1; 0.1 needs nine times the columns."""


def paper_sketch_size(nodes: int, *, dim: int, epsilon: float) -> int:
    """Columns that the paper's rule asks for: ``max(4 ln n / eps^2, k / eps^2)``.

    Examples
    --------
    >>> paper_sketch_size(9875, dim=200, epsilon=0.1)
    20000
    """
    return math.ceil(round(max(4 * math.log(max(nodes, 2)), dim) / epsilon**2, 6))


class FoldInConfig(_Options):
    """How new nodes are given vectors."""

    source: str | None = Field(None, description="Column of new nodes; default: the first.")
    target: str | None = Field(None, description="Column of known nodes; default: the second.")
    weight: str | None = Field(
        None, description="Column of weights; default: the third, if numeric."
    )
    on_bad_edges: Literal["fail", "quarantine"] = Field(
        "fail", description="Stop at the first bad row, or set bad rows aside and go on."
    )
    degrees: Literal["extended", "stored"] = Field(
        "extended",
        description="Degrees of known nodes: with the new edges (the paper), or as stored.",
    )
    known: Literal["skip", "recompute"] = Field(
        "skip",
        description="A 'new' node that the graph has already: leave it, or compute it anew.",
    )


def make_config(kind: type[Model], options: dict[str, Any]) -> Model:
    """Build a configuration; what is wrong with it becomes one readable error."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return kind(**given)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            option = "--" + name.replace("_", "-")
            if problem["type"] == "extra_forbidden":
                known = ", ".join(sorted(kind.model_fields))
                lines.append(f"there is no option '{name}'; known: {known}")
            else:
                reason = problem["msg"].removeprefix("Value error, ")
                lines.append(f"{option} is {problem['input']!r}: {reason}")
        raise ConfigError("; ".join(lines) + ".") from error
