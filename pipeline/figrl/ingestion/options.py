"""How edges are read: the options of ingest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from figrl.config import Options


class IngestOptions(Options):
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
