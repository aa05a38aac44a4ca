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
            "one, each as dear as the first; the largest gain in quality."
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
        try:
            number = float(value)
        except ValueError:
            raise ValueError("has to be auto, or a number from 0 on") from None
        if not 0 <= number < math.inf:
            raise ValueError("has to be auto, or a number from 0 on")
        return number


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
    rounds: int = Field(
        3,
        ge=1,
        le=100,
        description="With smoothing: times that new nodes which are linked to each other pass "
        "their vectors on; 1: such edges give no direction.",
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
