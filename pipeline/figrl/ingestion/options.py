"""How edges are read: the options of ingest."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from figrl.config import Options
from figrl.ingestion.decay import HalfLife
from figrl.store.sides import GraphKind


class ReadOptions(Options):
    """How files of edges are read, whatever is made of them."""

    null_is_unclear: ClassVar[frozenset[str]] = frozenset({"weight"})

    source: str | None = Field(
        None,
        description="Column of one end, or its number in a file without names; default: source, "
        "src, from or u, else the first column that may hold ids.",
    )
    target: str | None = Field(
        None,
        description="Column of the other end; default: target, dst, to or v, else the second.",
    )
    weight: str | None = Field(
        None,
        description="Column of weights, or none; default: the column with the name of one "
        "(weight, w, value, count, ...).",
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

    @field_validator("csv_header", mode="before")
    @classmethod
    def _as_word(cls, value: Any) -> Any:
        """Accept the true and false that YAML makes of yes and no."""
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value

    @field_validator("source", "target", "weight", mode="before")
    @classmethod
    def _as_name(cls, value: Any) -> Any:
        """Accept numbers of columns, as YAML reads them."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def weight_column(self) -> str | None:
        """Column of weights that was given; None if none was, or there shall be none."""
        return None if self.weight is None or self.weight.lower() == "none" else self.weight


class IngestOptions(ReadOptions):
    """How edges become a stored graph."""

    section: ClassVar[str] = "ingest"
    added_later: ClassVar[frozenset[str]] = frozenset({"kind", "time", "half_life", "as_of"})

    kind: GraphKind = Field(
        "undirected",
        description="undirected: both columns hold nodes of one kind; bipartite: two kinds, each "
        "with ids of its own; directed: each node has a vector as source and one as target.",
    )
    time: str | None = Field(
        None,
        description="Column of times, for --half-life: timestamps, dates, or seconds since 1970.",
    )
    half_life: str | None = Field(
        None,
        description="Weights halve with each such age of an edge: 30d (s, min, h, d, w, y), or a "
        "plain number in the units of an integer time column.",
    )
    as_of: str | None = Field(
        None,
        description="Time up to which ages are counted; default: the latest time in the input.",
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

    @field_validator("half_life", "as_of", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Accept the numbers and dates that YAML makes of plain values."""
        return value if value is None else str(value)

    @field_validator("half_life")
    @classmethod
    def _is_half_life(cls, value: str | None) -> str | None:
        if value is not None:
            HalfLife.parse(value)
        return value

    @model_validator(mode="after")
    def _times_are_complete(self) -> Self:
        if (self.time is None) != (self.half_life is None):
            raise ValueError(
                "--time and --half-life belong together: the column of times, and the age at which "
                "a weight has halved. Give both or none"
            )
        if self.as_of is not None:
            if self.decay is None:
                raise ValueError(
                    "--as-of is the time up to which ages are counted: give --time "
                    "and --half-life too"
                )
            try:
                self.decay.parse_time(self.as_of)
            except (ValueError, OverflowError) as error:
                raise ValueError(
                    f"--as-of is {self.as_of!r}: {error}. Write a date, a timestamp, "
                    "or a number, as in the time column"
                ) from error
        return self

    @property
    def decay(self) -> HalfLife | None:
        """The half-life of weights; None if they do not decay."""
        return None if self.half_life is None else HalfLife.parse(self.half_life)
