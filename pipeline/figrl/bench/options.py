"""Quality against seconds of figrl's own options, one changed at a time: presets come from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from figrl.bench.methods import Method
from figrl.bench.problems import CASES, Case
from figrl.bench.quality import bench_quality
from figrl.bench.results import Score
from figrl.bench.selection import Selection

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "fast"},
    {"preset": "paper"},
    {"width": 32},
    {"width": 96},
    {"depth": 4},
    {"depth": 12},
    {"regularization": 0},
    {"smoothing": 0},
    {"smoothing": 2},
    {"smoothing": 6},
    {"smoothing": 20},
    {"representation": "product"},
    {"representation": "degree"},
)
"""Options of ``figrl embed`` that are changed; one that it does not have is named as skipped."""

MEASURES = ("modularity", "micro-F1", "AUC", "recall@20", "arc AUC")
"""One measure of each use of the vectors."""

_DOT_REPRESENTATIONS = ("product",)


def bench_options(
    selection: Selection,
    *,
    cases: Sequence[Case] = CASES,
    options: Sequence[dict[str, Any]] = OPTIONS,
) -> list[Score]:
    """Score figrl by its options on the graphs of a selection."""
    chosen = replace(selection, methods=(), measures=selection.measures or MEASURES)
    methods = [as_method(one) for one in options]
    return bench_quality(chosen, cases=cases, methods=methods)


def as_method(chosen: dict[str, Any]) -> Method:
    """A method of the default options but those chosen, under the name that a command has."""
    words = [f"--{key.replace('_', '-')} {value}" for key, value in chosen.items()]
    dot = chosen.get("representation") in _DOT_REPRESENTATIONS
    return Method(" ".join(words) or "the preset", chosen, "dot" if dot else "cosine")
