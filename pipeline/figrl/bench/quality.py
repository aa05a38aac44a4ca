"""Quality: what users do with vectors, figrl's and its peers', on real graphs.

The measures are in `tasks`, the graphs in `problems`, the methods in `methods`. Vectors are used as
they are: nothing is rescaled, and two nodes are compared by the metric of their method.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from figrl.bench.methods import METHODS, Method, StoredProblem, stored
from figrl.bench.problems import CASES, DESCRIPTIVE, MEASURES, Case
from figrl.bench.results import Score
from figrl.bench.selection import Selection
from figrl.study.peers import SkippedError

TIE = 1e-6
"""Difference, as a share, up to which two values are the same."""


def bench_quality(
    selection: Selection, *, cases: Sequence[Case] = CASES, methods: Sequence[Method] = METHODS
) -> list[Score]:
    """Score methods on graphs; the score of one that could not be measured says why."""
    scores = []
    for problem in selection.problems(cases):
        with stored(problem) as ready:
            scores += [
                score_method(ready, method, selection)
                for method in selection.choose(methods)
                if method.fits(problem)
            ]
    return scores


def score_method(ready: StoredProblem, method: Method, selection: Selection) -> Score:
    """Learn vectors with a method and measure them, or say why it is skipped."""
    problem = ready.problem
    try:
        vectors, learnt = ready.learn(method, selection.timeout_seconds)
    except SkippedError as skipped:
        return Score(problem.graph, method.name, problem.learnt, skipped=skipped.message)
    measures = selection.keep(problem.score(vectors, method.metric))
    seconds, peak = learnt.seconds, learnt.peak_bytes
    return Score(problem.graph, method.name, problem.learnt, seconds, peak, measures)


def compare_with_peers(
    scores: Sequence[Score], methods: Sequence[Method] = METHODS
) -> dict[str, Any]:
    """Ratio of each row of figrl to the best peer, by graph and measure; and how many it wins.

    No peer is better where it wins; `skipped` names those that could not be measured. Measures that
    only describe vectors are left out.
    """
    kinds = {method.name: method.kind for method in methods}
    found: dict[tuple[str, str], dict[str, Score]] = defaultdict(dict)
    for score in scores:
        for measure in set(score.measures) - set(DESCRIPTIVE):
            found[measure, score.graph][score.method] = score
    ratios = []
    for measure, graph in sorted(found, key=lambda key: list(MEASURES).index(key[0])):
        of_kind: dict[str, list[Score]] = defaultdict(list)
        for method, score in found[measure, graph].items():
            of_kind[kinds.get(method, "figrl")].append(score)
        if of_kind["peer"] and of_kind["figrl"]:
            found_ratio = _ratio(measure, of_kind["figrl"], of_kind["peer"])
            part = graph, of_kind["peer"][0].learnt
            missing = [
                one.method for one in scores if one.skipped and part == (one.graph, one.learnt)
            ]
            ratios.append({**found_ratio, "skipped": missing})
    own = list(dict.fromkeys(name for ratio in ratios for name in ratio["ratios"]))
    wins = {
        name: {
            "won": sum(ratio["ratios"].get(name, 0.0) > 1 - TIE for ratio in ratios),
            "of": sum(name in ratio["ratios"] for ratio in ratios),
        }
        for name in own
    }
    return {"ratios": ratios, "wins": wins}


def _ratio(measure: str, own: Sequence[Score], peers: Sequence[Score]) -> dict[str, Any]:
    """Compare figrl's scores with the best peer of a graph."""
    best = max(peers, key=lambda score: score.measures[measure])
    value = best.measures[measure]
    return {
        "measure": measure,
        "graph": best.graph,
        "best_peer": best.method,
        "best": value,
        "ratios": {score.method: score.measures[measure] / max(value, 1e-9) for score in own},
        "seconds_ratios": {score.method: score.seconds / best.seconds for score in own},
    }
