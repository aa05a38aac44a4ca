"""Quality gates: limits that a run has to keep before it is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from figrl.config import Options
from figrl.errors import GateError


class Gates(Options):
    """Limits beyond which a run is not published; null turns a gate off."""

    nodes_change: float | None = Field(
        0.2, ge=0, description="Largest relative change of the number of nodes."
    )
    edges_change: float | None = Field(
        0.2, ge=0, description="Largest relative change of the number of edges."
    )
    rejected_rows: float | None = Field(
        0.001, ge=0, le=1, description="Largest share of input rows rejected as bad."
    )
    largest_residual: float | None = Field(
        None, ge=0, description="Largest error of an eigenvalue, by the certificate."
    )
    mean_cosine: float | None = Field(
        0.5,
        ge=-1,
        le=1,
        description="Least mean cosine between the vectors of a node in the last run and this one.",
    )
    non_finite_vectors: float | None = Field(
        0.0, ge=0, le=1, description="Largest share of vectors with NaN or infinity."
    )
    zero_vectors: float | None = Field(
        0.01, ge=0, le=1, description="Largest share of vectors that are all zero."
    )
    neighbour_recall_loss: float | None = Field(
        0.2,
        ge=0,
        le=1,
        description=(
            "Largest relative loss, against the last run, of neighbour recall: the share of a "
            "node's neighbours in the graph that are among its nearest vectors."
        ),
    )


@dataclass(frozen=True)
class Verdict:
    """Result of one gate; `value` is None where there is nothing to compare with."""

    gate: str
    value: float | None
    limit: float | None
    passed: bool
    meaning: str

    @property
    def side(self) -> str:
        """On which side of the limit the value has to be."""
        return "at least" if self.gate == "mean_cosine" else "at most"

    @property
    def reason(self) -> str:
        """Value, limit and meaning, for people."""
        value = "unknown" if self.value is None else f"{self.value:.4g}"
        limit = "" if self.limit is None else f", {self.side} {self.limit:.4g} is allowed"
        return f"{self.gate} is {value}{limit} ({self.meaning})"


def judge(gates: Gates, now: dict[str, Any], before: dict[str, Any] | None) -> tuple[Verdict, ...]:
    """Compare measures of a run, and of the published one, with the limits.

    They are those of `measure_run`; ``compared_nodes`` is None where nothing was aligned.
    """
    last = before or {}
    nodes = max(now["nodes"], 1)
    recall, recalled = now["neighbour_recall"], last.get("neighbour_recall")
    measured: dict[str, tuple[float | None, str]] = {
        "nodes_change": _change("nodes", now, last),
        "edges_change": _change("edges", now, last),
        "rejected_rows": (
            now["rows_rejected"] / max(now["rows_read"], 1),
            f"{now['rows_rejected']:,} of {now['rows_read']:,} input rows were rejected",
        ),
        "largest_residual": (
            now["largest_residual"],
            "by which an eigenvalue may be wrong, by the certificate",
        ),
        "mean_cosine": (now["mean_cosine"], "of the vectors of a node in the last run and now"),
        "non_finite_vectors": (
            now["non_finite_vectors"] / nodes,
            f"{now['non_finite_vectors']:,} vectors have NaN or infinity",
        ),
        "zero_vectors": (
            now["zero_vectors"] / nodes,
            f"{now['zero_vectors']:,} vectors are all zero",
        ),
        "neighbour_recall_loss": (
            max(1 - recall / recalled, 0.0) if recall is not None and recalled else None,
            "of the neighbours in the graph that are among the nearest vectors",
        ),
    }
    # A run without a certificate is not known to be good; nor is a graph that shares no node with
    # the published one.
    required = {"largest_residual"} | ({"mean_cosine"} if now["compared_nodes"] == 0 else set())
    verdicts = []
    for gate, (value, meaning) in measured.items():
        limit = getattr(gates, gate)
        if limit is None:
            passed = True
        elif value is None:
            passed = gate not in required
        else:
            passed = value >= limit if gate == "mean_cosine" else value <= limit
        verdicts.append(Verdict(gate, value, limit, passed, meaning))
    return tuple(verdicts)


def _change(what: str, now: dict[str, Any], last: dict[str, Any]) -> tuple[float | None, str]:
    """Relative change of a number, and its meaning."""
    if not last:
        return None, f"{now[what]:,} {what}; nothing is published to compare with"
    change = abs(now[what] / last[what] - 1) if last[what] else None
    return change, f"{now[what]:,} {what}, {last[what]:,} in the last run"


def refusal(run: str, verdicts: Sequence[Verdict], remedy: str) -> GateError:
    """The error of a run that is refused; it names every gate that did not pass."""
    reasons = [verdict.reason for verdict in verdicts if not verdict.passed]
    return GateError(
        f"Run {run} is not published: {'; '.join(reasons)}. It is kept for inspection, and the "
        f"published run stays as it was. {remedy}"
    )
