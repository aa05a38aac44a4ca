"""Nodes held back from learning and folded in: what is left of the quality of the whole graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from figrl.bench.harness import local_session, scratch
from figrl.bench.methods import OWN, Method, stored
from figrl.bench.problems import CASES, DESCRIPTIVE, MEASURES, Case, Problem
from figrl.bench.quality import score_method
from figrl.bench.results import HeldBack, Score
from figrl.bench.selection import Selection
from figrl.bench.tasks import Floats
from figrl.engine.session import Session
from figrl.learn.spec import EmbedOptions
from figrl.study.parts.unseen import draw_held_out, learn_without

SHARES = (0.1, 0.2, 0.3)
DRAWS = 5


def bench_held_back(
    selection: Selection,
    *,
    cases: Sequence[Case] = CASES,
    methods: Sequence[Method] = OWN,
    draws: int = DRAWS,
) -> list[HeldBack | Score]:
    """Compare each measure with that of the graph learnt whole, means over draws of the nodes.

    What cannot be measured is a score that says why.
    """
    compared = tuple(name for name in MEASURES if name not in DESCRIPTIVE)
    selection = replace(selection, measures=selection.measures or compared)
    found: list[HeldBack | Score] = []
    for problem in selection.problems(cases):
        for method in selection.choose(methods):
            with stored(problem) as ready:
                whole = score_method(ready, method, selection)
            if whole.skipped is not None:
                found.append(whole)
                continue
            for share, folded in score_folded(problem, method, draws).items():
                found += [
                    HeldBack(problem.graph, method.name, name, share, value, folded[name])
                    for name, value in whole.measures.items()
                ]
    return found


def score_folded(problem: Problem, method: Method, draws: int) -> dict[float, dict[str, float]]:
    """Measures by the share of the nodes that was folded in: means over the draws."""
    config = EmbedOptions(dim=problem.dim, **method.options)
    means = {}
    with local_session() as session:
        for share in SHARES:
            scores = [
                problem.score(vectors, method.metric)
                for vectors in fold_in_draws(problem, config, session, share, draws)
            ]
            means[share] = {
                name: float(np.mean([score[name] for score in scores])) for name in scores[0]
            }
    return means


def fold_in_draws(
    problem: Problem, config: EmbedOptions, session: Session, share: float, draws: int
) -> Iterator[Floats]:
    """Vectors of all nodes, a share of which was drawn, held back and folded in."""
    nodes = np.arange(problem.nodes)
    for seed in range(draws):
        held = draw_held_out(nodes, share, seed)
        with scratch() as folder:
            found = learn_without(Path(folder), problem.pairs, held, config, session)
        vectors = np.concatenate([found.vectors, found.new_vectors])
        places = found.positions(nodes)
        # A node that no path links to a learnt one has no vector.
        yield np.where(places[:, None] >= 0, vectors[places], np.float32(0))
