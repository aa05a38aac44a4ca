"""Graphs on which vectors are measured: what is learnt of each, and the measures of the vectors."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse

from figrl.analyze.metrics import agreement
from figrl.bench import split, tasks
from figrl.bench.tasks import Booleans, Floats, Integers, Metric
from figrl.study.graphs import read_pairs

Task = Literal["clusters", "labels", "links", "items", "arcs"]


@dataclass(frozen=True)
class Case:
    """A graph of the data folder, what its vectors are used for, and their length."""

    graph: str
    tasks: tuple[Task, ...]
    dim: int = 128


CASES = (
    Case("us-football", ("clusters", "labels"), dim=16),
    Case("polblogs", ("clusters", "labels"), dim=16),
    Case("PPI", ("clusters", "labels", "links")),
    Case("pubmed", ("clusters", "labels", "links")),
    Case("ca-HepTh", ("clusters", "links")),
    Case("ca-CondMat", ("clusters", "links")),
    Case("email-Enron", ("clusters", "links")),
    Case("com-dblp", ("clusters", "links")),
    Case("lastfm-artists", ("items",)),
    Case("soc-Epinions1", ("arcs",)),
)
"""Small graphs first; the two smallest have too few nodes for long vectors."""

MEASURES: dict[str, str] = {
    "modularity": "Modularity of k-means clusters",
    "NMI": "NMI of k-means clusters with the classes",
    "micro-F1": "Micro-F1 of logistic regression on half of the labels",
    "macro-F1": "Macro-F1 of logistic regression on half of the labels",
    "AUC": "AUC of held-out edges against random pairs",
    "hits@10": "Hits at 10 of held-out edges among 500 candidates",
    "recall@20": "Recall of 20 recommendations",
    "NDCG@20": "NDCG of 20 recommendations",
    "arc AUC": "AUC of held-out arcs against random pairs",
    "reversed AUC": "AUC of held-out arcs against the same arcs reversed",
    "mean length": "Length of the mean of the unit vectors",
    "linked cosine": "Mean cosine of linked pairs",
    "random cosine": "Mean cosine of random pairs",
}
"""Names of the measures, and what they are. Of all but the last three, more is better."""

DESCRIPTIVE = ("mean length", "linked cosine", "random cosine")
"""Measures that say what vectors look like, not how good they are."""

_CLUSTERS = 100
_CLASS_STARTS = 10
"""Starts of k-means on graphs with classes, where one start varies too much."""

_SPLITS = 5
_SHARE = 0.2
_TOP, _CANDIDATES = 10, 500
_MOST_RANKED = 10_000
"""Held-out edges that are ranked among candidates; the others only count for the AUC."""

_RANDOM_PAIRS = 100_000


@dataclass(frozen=True)
class Measure:
    """Measures that are computed together, from vectors and the metric of their method."""

    names: tuple[str, ...]
    compute: Callable[[Floats, Metric], Sequence[float]]


@dataclass(frozen=True)
class Problem:
    """Edges to learn vectors from, and measures of the vectors.

    Nodes are numbered from 0 on, and each has an edge. With `sources`, the graph is bipartite:
    the numbers below it are one kind of nodes, the others are the other kind.
    """

    graph: str
    learnt: str
    pairs: Integers
    dim: int
    measures: tuple[Measure, ...]
    sources: int | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.pairs.max()) + 1

    def score(self, vectors: Floats, metric: Metric) -> dict[str, float]:
        """Compute all measures of vectors, one a node."""
        return {
            name: float(value)
            for measure in self.measures
            for name, value in zip(measure.names, measure.compute(vectors, metric), strict=True)
        }


def make_problems(data: Path, case: Case, wanted: Collection[str] = MEASURES) -> Iterator[Problem]:
    """Read a graph and make its problems, each with the measures that are wanted."""
    makers: list[tuple[set[Task], Callable[[Path, Case], Problem]]] = [
        ({"clusters", "labels"}, _whole),
        ({"links"}, _links),
        ({"items"}, _items),
        ({"arcs"}, _arcs),
    ]
    for served, make in makers:
        if served & set(case.tasks):
            problem = make(data, case)
            measures = [one for one in problem.measures if set(one.names) & set(wanted)]
            if measures:
                yield Problem(**{**vars(problem), "measures": tuple(measures)})


def _whole(data: Path, case: Case) -> Problem:
    """The graph as it is: clusters, classes, and what the vectors look like."""
    pairs, ids = split.numbered(split.undirected(read_pairs(data / f"{case.graph}.txt.gz")))
    classes = read_labels(data / f"{case.graph}.labels.tsv.gz", ids)
    measures = []
    if "clusters" in case.tasks:
        single = classes is not None and int(classes.sum(axis=1).max()) == 1
        names = ("modularity", "NMI") if single else ("modularity",)
        measures.append(Measure(names, partial(_clusters, pairs=pairs, classes=classes)))
    if "labels" in case.tasks and classes is not None:
        measures.append(Measure(("micro-F1", "macro-F1"), partial(_labels, classes=classes)))
    measures.append(Measure(DESCRIPTIVE, partial(_geometry, pairs=pairs)))
    return Problem(case.graph, "the whole graph", pairs, case.dim, tuple(measures))


def read_labels(path: Path, ids: Integers) -> Booleans | None:
    """Classes of each node, a column a class, from a file of node and class; None without it."""
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines if not line.startswith("#"))
        nodes, labels = zip(*rows, strict=True)
    names, columns = np.unique(labels, return_inverse=True)
    known = np.array(nodes, np.int64)
    places = np.searchsorted(ids, known).clip(max=ids.size - 1)
    found = ids[places] == known
    classes = np.zeros((ids.size, names.size), bool)
    classes[places[found], columns[found]] = True
    # The file may have classes of which no node has an edge.
    return np.asarray(classes[:, classes.any(axis=0)])


def _clusters(
    vectors: Floats, metric: Metric, pairs: Integers, classes: Booleans | None
) -> Sequence[float]:
    if classes is None:
        return [tasks.edge_modularity(pairs, tasks.cluster_labels(vectors, _CLUSTERS, 1))]
    labels = tasks.cluster_labels(vectors, classes.shape[1], _CLASS_STARTS)
    modularity = tasks.edge_modularity(pairs, labels)
    counts = classes.sum(axis=1)
    if counts.max() > 1:
        return [modularity]
    known = counts > 0
    return [modularity, agreement(labels[known], classes[known].argmax(axis=1))]


def _labels(vectors: Floats, metric: Metric, classes: Booleans) -> Sequence[float]:
    known = classes.any(axis=1)
    splits = [tasks.classify(vectors[known], classes[known], seed=seed) for seed in range(_SPLITS)]
    return [float(mean) for mean in np.mean(splits, axis=0)]


def _geometry(vectors: Floats, metric: Metric, pairs: Integers) -> Sequence[float]:
    rows = tasks.comparable(vectors, "cosine")
    rng = np.random.default_rng(0)
    linked = pairs[rng.permutation(len(pairs))[:_RANDOM_PAIRS]]
    chance = rng.integers(0, len(vectors), (_RANDOM_PAIRS, 2))
    cosines = (float(tasks.pair_scores(rows, chosen).mean()) for chosen in (linked, chance))
    return [tasks.mean_length(vectors), *cosines]


def _links(data: Path, case: Case) -> Problem:
    """Four fifths of the edges; measured is how well the vectors find the others."""
    rng = np.random.default_rng(0)
    pairs, ids = split.numbered(split.undirected(read_pairs(data / f"{case.graph}.txt.gz")))
    learnt, held = split.hold_out(pairs, _SHARE, rng)
    # Which end is asked for the other should not depend on how the edges are written.
    asked = rng.permuted(held, axis=1)
    links, nodes = split.both_ways(pairs), np.arange(ids.size)
    sources = rng.choice(nodes, len(held))
    chance = np.stack([sources, split.draw_unlinked(sources, nodes, links, rng)], axis=1)
    ranked = asked[rng.permutation(len(asked))[:_MOST_RANKED]]
    repeated = np.repeat(ranked[:, :1], _CANDIDATES - 1, axis=1)
    others = split.draw_unlinked(repeated, nodes, links, rng)

    def links_found(vectors: Floats, metric: Metric) -> Sequence[float]:
        rows = tasks.comparable(vectors, metric)
        scores = (tasks.pair_scores(rows, chosen) for chosen in (held, chance))
        return [tasks.area_under_curve(*scores), tasks.hit_share(rows, ranked, others, top=_TOP)]

    measures = (Measure(("AUC", "hits@10"), links_found),)
    return Problem(case.graph, "four fifths of the edges", learnt, case.dim, measures)


def _items(data: Path, case: Case) -> Problem:
    """Users and items; measured is whether items that a user took later are recommended."""
    train, test = (read_pairs(data / f"{case.graph}.{part}.txt.gz") for part in ("train", "test"))
    pairs, users, items = split.bipartite_double(np.unique(train, axis=0))
    # What nobody took before has no vector.
    test = test[np.isin(test[:, 0], users) & np.isin(test[:, 1], items)]
    asked = np.stack([np.searchsorted(users, test[:, 0]), np.searchsorted(items, test[:, 1])])
    shape = (users.size, items.size)
    seen = _incidence(pairs[:, 0], pairs[:, 1] - users.size, shape)
    wanted = _incidence(asked[0], asked[1], shape)

    def recommended(vectors: Floats, metric: Metric) -> Sequence[float]:
        rows = tasks.comparable(vectors, metric)
        return tasks.recommend(rows[: users.size], rows[users.size :], seen, wanted)

    measures = (Measure(("recall@20", "NDCG@20"), recommended),)
    return Problem(case.graph, "users and items", pairs, case.dim, measures, users.size)


def _incidence(rows: Integers, columns: Integers, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(rows.size, np.int8), (rows, columns)), shape=shape)


def _arcs(data: Path, case: Case) -> Problem:
    """Four fifths of the arcs; measured is how well the others are found, and their direction."""
    rng = np.random.default_rng(0)
    arcs = np.unique(read_pairs(data / f"{case.graph}.directed.txt.gz"), axis=0)
    arcs = arcs[arcs[:, 0] != arcs[:, 1]]
    pairs, sources, targets = split.bipartite_double(arcs)
    learnt, held = split.hold_out(pairs, _SHARE, rng)
    chance = rng.choice(sources.size, len(held))
    ends = split.draw_unlinked(chance, sources.size + np.arange(targets.size), pairs, rng)
    random = np.stack([chance, ends], axis=1)
    forward, backward = _reversible(arcs, held, sources, targets)

    def arcs_found(vectors: Floats, metric: Metric) -> Sequence[float]:
        rows = tasks.comparable(vectors, metric)
        chosen = [tasks.pair_scores(rows, one) for one in (held, random, forward, backward)]
        return [tasks.area_under_curve(*chosen[:2]), tasks.area_under_curve(*chosen[2:])]

    measures = (Measure(("arc AUC", "reversed AUC"), arcs_found),)
    return Problem(case.graph, "four fifths of the arcs", learnt, case.dim, measures, sources.size)


def _reversible(
    arcs: Integers, held: Integers, sources: Integers, targets: Integers
) -> tuple[Integers, Integers]:
    """Held-out arcs that do not go both ways, and their reverse, as pairs of the double.

    Only nodes that are both a source and a target have the vectors for it.
    """
    ids = np.stack([sources[held[:, 0]], targets[held[:, 1] - sources.size]], axis=1)
    size = 1 + int(arcs.max())
    missing = ~np.isin(ids[:, 1] * size + ids[:, 0], arcs[:, 0] * size + arcs[:, 1])
    chosen = missing & np.isin(ids[:, 1], sources) & np.isin(ids[:, 0], targets)
    starts = np.searchsorted(sources, ids[chosen, 1])
    ends = sources.size + np.searchsorted(targets, ids[chosen, 0])
    return held[chosen], np.stack([starts, ends], axis=1)
