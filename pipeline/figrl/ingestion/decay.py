"""Decay of weights: an edge counts half as much for each half-life of its age.

    weight * 2^-(age / half-life)      age: from the time of the edge to the latest, or to --as-of

Times are numbers. Where the half-life has a unit they are seconds since 1970, and dates and
timestamps are converted to them, in UTC unless they name another zone. Where it is a plain number
they are whatever the column counts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from figrl.ingestion.texts import is_number, parse_numbers

Times = npt.NDArray[np.float64]

LARGEST_WEIGHT = 1e30
"""Products are in float32, which ends at 3e38; a node may have many edges."""

_UNIT_SECONDS = {
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 7 * 86_400.0,
    "y": 365.25 * 86_400.0,
}
_LARGEST_SECONDS = 1e11
"""The year 5138; what lies beyond counts milliseconds or less."""


@dataclass(frozen=True)
class HalfLife:
    """Time in which a weight halves: seconds if it was given with a unit."""

    length: float
    has_unit: bool

    @classmethod
    def parse(cls, text: str) -> HalfLife:
        """Read a half-life such as ``30d``; a ValueError where it is none."""
        found = re.fullmatch(r"(?P<number>.*?)\s*(?P<unit>s|min|h|d|w|y|)", text.strip())
        number = found["number"] if found else ""
        length = float(number) if is_number(number) else math.nan
        if found is None or not 0 < length < math.inf:
            raise ValueError(
                "write a positive number and s, min, h, d, w or y, such as 30d; or a number alone, "
                "in the units of a time column of integers"
            )
        unit = found["unit"]
        return cls(length * _UNIT_SECONDS.get(unit, 1.0), has_unit=bool(unit))

    def parse_time(self, text: str) -> float:
        """Read a time; a ValueError where it is none."""
        if is_number(text):
            return float(text)
        if not self.has_unit:
            raise ValueError("with a half-life without a unit, times are numbers")
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def reads(self, column: pa.DataType) -> bool:
        """Whether a column of this type can be read as times."""
        is_moment = pa.types.is_timestamp(column) or pa.types.is_date(column)
        numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        is_text = column in (pa.string(), pa.large_string(), pa.string_view())
        return is_text or any(test(column) for test in numeric) or (is_moment and self.has_unit)

    def times_of(self, column: pa.Array) -> pa.Array:
        """Times of a column as float64; null where one is missing or cannot be read."""
        if pa.types.is_large_string(column.type):
            numbers = parse_numbers(column)
            left = pc.if_else(numbers.is_null(), column, pa.scalar(None, column.type))
            return pc.coalesce(numbers, self._parsed(left))
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_timestamp(column.type):
            ticks = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
            return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), ticks)
        return column.cast(pa.float64(), safe=False)

    def _parsed(self, texts: pa.Array) -> pa.Array:
        """Times that are not written as numbers; each text is parsed once."""
        encoded = texts.dictionary_encode()
        times = pa.array([self._time_or_none(t) for t in encoded.dictionary.to_pylist()], "float64")
        return times.take(encoded.indices)

    def _time_or_none(self, text: str) -> float | None:
        try:
            return self.parse_time(text)
        except (ValueError, OverflowError):
            return None

    def is_out_of_range(self, times: Times) -> npt.NDArray[np.bool_]:
        """Where times can hardly be seconds, if the half-life is in seconds."""
        beyond: npt.NDArray[np.bool_] = np.abs(times) > _LARGEST_SECONDS
        return beyond & self.has_unit


@dataclass(frozen=True)
class Decay:
    """Decay of weights; ages are counted up to `now`."""

    half_life: HalfLife
    now: float

    def apply(self, times: Times, weights: Times | None) -> Times:
        """Weights of edges by their times; without weights, each edge has weight 1.

        An edge after `now` has age 0. No weight falls below the smallest that ingest accepts, so
        that the oldest edges stay in the graph.
        """
        decayed = np.exp2(-np.maximum(self.now - times, 0.0) / self.half_life.length)
        if weights is not None:
            decayed *= weights
        return np.maximum(decayed, 1 / LARGEST_WEIGHT)
