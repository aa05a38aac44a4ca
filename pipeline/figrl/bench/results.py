"""Results of a benchmark: comparisons with an alternative, metrics with a limit, scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from figrl.study.process import Measured


@dataclass(frozen=True)
class Comparison:
    """Time and memory of figrl and of an alternative.

    Goals (`wanted`, `wanted_memory`) are ratios of theirs to ours. Peaks are 0 where memory is not
    compared.
    """

    what: str
    other: str
    seconds: float
    other_seconds: float
    wanted: float
    peak_bytes: int = 0
    other_peak_bytes: int = 0
    wanted_memory: float | None = None

    @classmethod
    def of(
        cls,
        what: str,
        other: str,
        measured: tuple[Measured, Measured],
        *,
        wanted: float,
        wanted_memory: float | None = None,
        memory: bool = True,
    ) -> Comparison:
        """Compare two processes, ours first: their time, and their memory if asked for."""
        ours, theirs = measured
        peaks = (ours.peak_bytes, theirs.peak_bytes) if memory else (0, 0)
        return cls(what, other, ours.seconds, theirs.seconds, wanted, *peaks, wanted_memory)

    @property
    def speedup(self) -> float:
        """How many times faster ours is."""
        return self.other_seconds / self.seconds

    @property
    def memory_ratio(self) -> float | None:
        """How many times less memory ours takes."""
        return self.other_peak_bytes / self.peak_bytes if self.peak_bytes else None

    @property
    def reached(self) -> bool:
        """Whether the goals are met."""
        enough = self.wanted_memory is None or (self.memory_ratio or 0) >= self.wanted_memory
        return self.speedup >= self.wanted and enough

    def describe(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        ratios = {"speedup": self.speedup, "memory_ratio": self.memory_ratio}
        return {**asdict(self), **ratios, "reached": self.reached}


@dataclass(frozen=True)
class Metric:
    """A measured value, and its upper limit, or lower one with `at_least`."""

    what: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the value is within its limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def describe(self) -> dict[str, Any]:
        """Return the metric as JSON."""
        return {**asdict(self), "reached": self.reached}


@dataclass(frozen=True)
class Score:
    """Quality, time and memory of one method on one graph, or why it was skipped.

    `learnt` says which part of the graph the vectors were learnt from. `measures` has the values
    of the measures by name.
    """

    graph: str
    method: str
    learnt: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    measures: Mapping[str, float] = field(default_factory=dict)
    skipped: str | None = None

    def describe(self) -> dict[str, Any]:
        """Return the score as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class HeldBack:
    """A measure with a share of the nodes folded in, and with the graph learnt whole."""

    graph: str
    method: str
    measure: str
    share: float
    whole: float
    folded: float

    def describe(self) -> dict[str, Any]:
        """Return the comparison as JSON, with its ratio."""
        return {**asdict(self), "ratio": self.folded / self.whole}
