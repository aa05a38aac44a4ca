"""Lines of a benchmark: ours beside an alternative, or a figure beside its limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipeline.study.bench.process import Measured


@dataclass(frozen=True)
class Line:
    """One comparison.

    Attributes
    ----------
    what : str
        What was done.
    other : str
        What it was compared with.
    seconds, other_seconds : float
    peak_bytes, other_peak_bytes : int
        0 where memory is not compared.
    wanted : float
        The ratio of times, other to ours, that is the goal.
    wanted_memory : float or None
        The ratio of memory, other to ours, that is the goal.
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
        ours: Measured,
        theirs: Measured,
        *,
        wanted: float,
        wanted_memory: float | None = None,
    ) -> Line:
        """Compare two processes."""
        return cls(
            what,
            other,
            ours.seconds,
            theirs.seconds,
            wanted,
            ours.peak_bytes,
            theirs.peak_bytes,
            wanted_memory,
        )

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
        """Whether the goal is met."""
        memory = self.memory_ratio
        enough = self.wanted_memory is None or (memory is not None and memory >= self.wanted_memory)
        return self.speedup >= self.wanted and enough

    def describe(self) -> dict[str, Any]:
        """Give the line as JSON can write it."""
        return {
            **asdict(self),
            "speedup": self.speedup,
            "memory_ratio": self.memory_ratio,
            "reached": self.reached,
        }


@dataclass(frozen=True)
class Figure:
    """One figure, and the limit that it should keep.

    Attributes
    ----------
    what : str
        What was measured.
    value, limit : float
    unit : str
    at_least : bool
        Whether the value should be at least the limit; else at most.
    detail : str
        The numbers behind it.
    """

    what: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def describe(self) -> dict[str, Any]:
        """Give the figure as JSON can write it."""
        return {**asdict(self), "reached": self.reached}


@dataclass(frozen=True)
class Score:
    """What one method reached on one graph.

    Attributes
    ----------
    graph, method : str
    seconds : float
    peak_bytes : int
    modularity : float or None
        Of the clusters that k-means makes of the vectors.
    nmi : float or None
        Their agreement with labels, where there are any.
    skipped : str or None
        Why there is nothing to tell.
    """

    graph: str
    method: str
    seconds: float = 0.0
    peak_bytes: int = 0
    modularity: float | None = None
    nmi: float | None = None
    skipped: str | None = None

    def describe(self) -> dict[str, Any]:
        """Give the score as JSON can write it."""
        return asdict(self)
