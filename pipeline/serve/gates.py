"""Gates: what has to hold before a run is published."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipeline.errors import GateError
from pipeline.nightly_config import Gates


@dataclass(frozen=True)
class Verdict:
    """What one gate says.

    Attributes
    ----------
    gate : str
        Its key in the configuration.
    value, limit : float or None
        What was measured, None where there is nothing to compare with; and what is allowed.
    passed : bool
    meaning : str
        A sentence for a person.
    """

    gate: str
    value: float | None
    limit: float | None
    passed: bool
    meaning: str

    def describe(self) -> dict[str, Any]:
        """Give it as JSON can write it."""
        return asdict(self)


def judge(gates: Gates, now: dict[str, Any], before: dict[str, Any] | None) -> tuple[Verdict, ...]:
    """Hold what was measured against the limits.

    Parameters
    ----------
    gates : Gates
    now, before : dict
        Measures of this run, and of the published one: ``nodes``, ``edges``, ``rows_read``,
        ``rows_rejected``, ``cost_bound``, ``mean_cosine``, ``compared_nodes`` (None where
        nothing was aligned), ``non_finite_vectors``, ``zero_vectors``, ``neighbour_recall``.
    """
    recall = _loss(now["neighbour_recall"], (before or {}).get("neighbour_recall"))
    values = {
        "nodes_change": _change(now["nodes"], (before or {}).get("nodes")),
        "edges_change": _change(now["edges"], (before or {}).get("edges")),
        "rejected_rows": now["rows_rejected"] / max(now["rows_read"], 1),
        "cost_bound": now["cost_bound"],
        "mean_cosine": now["mean_cosine"],
        "non_finite_vectors": now["non_finite_vectors"] / max(now["nodes"], 1),
        "zero_vectors": now["zero_vectors"] / max(now["nodes"], 1),
        "neighbour_recall_loss": recall,
    }
    words = {
        "nodes_change": _counted("nodes", now, before),
        "edges_change": _counted("edges", now, before),
        "rejected_rows": f"{now['rows_rejected']:,} of {now['rows_read']:,} rows were set aside",
        "cost_bound": "what the certificate allows the vectors to leave beyond the best",
        "mean_cosine": "mean cosine between a node's vectors of last time and of now",
        "non_finite_vectors": f"{now['non_finite_vectors']:,} vectors are not all numbers",
        "zero_vectors": f"{now['zero_vectors']:,} vectors are all zero",
        "neighbour_recall_loss": "neighbours in the graph no longer among the nearest vectors",
    }
    # A certificate that says nothing is no reason to trust; nor is a graph with none of the nodes
    # that the published one has.
    must_be_known = {"cost_bound"} | ({"mean_cosine"} if now["compared_nodes"] == 0 else set())
    return tuple(
        _verdict(
            name, value, getattr(gates, name), words[name], must_be_known=name in must_be_known
        )
        for name, value in values.items()
    )


def _verdict(
    name: str, value: float | None, limit: float | None, meaning: str, *, must_be_known: bool
) -> Verdict:
    at_least = name == "mean_cosine"
    if limit is None or (value is None and not must_be_known):
        return Verdict(name, value, limit, True, meaning)
    passed = value is not None and (value >= limit if at_least else value <= limit)
    return Verdict(name, value, limit, passed, meaning)


def _change(now: int, before: int | None) -> float | None:
    return abs(now / before - 1) if before else None


def _loss(now: float | None, before: float | None) -> float | None:
    if now is None or not before:
        return None
    return max(1 - now / before, 0.0)


def _counted(what: str, now: dict[str, Any], before: dict[str, Any] | None) -> str:
    if before is None:
        return f"{now[what]:,} {what}; nothing is published to compare with"
    return f"{now[what]:,} {what}, {before[what]:,} last time"


def refusal(run: str, verdicts: tuple[Verdict, ...]) -> GateError:
    """The error that names every gate which did not let a run through."""
    reasons = []
    for verdict in verdicts:
        if not verdict.passed:
            side = "at least" if verdict.gate == "mean_cosine" else "at most"
            value = "unknown" if verdict.value is None else f"{verdict.value:.4g}"
            reasons.append(
                f"{verdict.gate} is {value}, {side} {verdict.limit:.4g} is allowed "
                f"({verdict.meaning})"
            )
    return GateError(
        f"Run {run} is not published: {'; '.join(reasons)}. It is kept for inspection, and the "
        "published run stays as it was. Publish it with --publish-anyway, or change the limit "
        "under 'gates' and run the same command again."
    )
