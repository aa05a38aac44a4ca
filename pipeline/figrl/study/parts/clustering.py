"""Clustering: modularity and permanence of k-means and Ward clusters, beside the paper's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from figrl.analyze.kmeans import agglomerative, kmeans_in_memory
from figrl.analyze.metrics import Labels, modularity
from figrl.analyze.permanence import permanence
from figrl.study import experiment, paper
from figrl.study.experiment import SMALL_NODES, Experiment, Key, Result, Results, preset_options
from figrl.study.figures import Axes, bars
from figrl.study.graphs import StudyGraph, class_agreement, read_classes
from figrl.study.page import Cell, Picture, Section, Table
from figrl.study.parts import rivals
from figrl.study.peers import RIVALS, SkippedError

PRESETS = ("paper", "paper+depth", "accurate")
METHODS = ("k-means", "agglomerative")

_GRIDS = ((2, 3, 4, 5, 6, 8, 11, 16), (2, 3, 4, 5, 6, 8, 16), (128, 200), (128,))
_GRID_NODES = (200, SMALL_NODES, 20_000)
_OTHER_CLUSTERS = range(2, 13)
_STARTS = 10
_TOLERANCE = 0.01

_SIZED, _COLUMNS = "ca-HepTh", "columns"
_SIZES = (1000, 2000, 4000, 8000)
"""Sketch sizes of the preset paper on the smallest of the large graphs, towards its rule's."""

SETTING = f"paper, epsilon {experiment.PAPER_EPSILON}"
_SETTING_DIM, _SETTING_NODES = 200, 25_000
"""The paper's own setting for large graphs, 20,000 columns: on graphs with more nodes than k, and
up to a size at which it takes minutes."""

_KARATE_REASON = (
    "No split of karate into two parts has a plain modularity above 0.3718 (all of them were "
    "tried), so 0.410 cannot be reached with two clusters. With more of them it can: see the "
    "second table."
)
_REASON = "The paper's own modularity has a penalty that it does not define; ours is Newman's."


class _Score(NamedTuple):
    """Quality of one clustering of one set of vectors."""

    graph: str
    method: str
    preset: str
    dim: int
    columns: int
    modularity: float
    permanence: float
    nmi: float | None

    def measures(self) -> Mapping[rivals.Measure, float | None]:
        """The three measures by name."""
        return {
            "modularity": self.modularity,
            "permanence": self.permanence,
            "nmi": self.nmi,
        }


class Clustering(Experiment):
    """One measurement for every graph, preset and vector length, and for every rival."""

    name = "clustering"
    title = "Clustering"
    covers = tuple(name for name, method in paper.CLUSTERING if method == METHODS[0])

    def keys(self) -> list[Key]:
        """Graph, preset or rival, k; and sketch sizes of one graph."""
        found: list[Key] = []
        for name in self.graphs:
            dims: tuple[int, ...] = _GRIDS[bisect_right(_GRID_NODES, self.study.graph(name).nodes)]
            dims = dims[1:4:2] if self.study.quick else dims
            found += [(name, preset, dim) for dim in dims for preset in PRESETS]
            nodes = self.study.graph(name).nodes
            if _SETTING_DIM < nodes <= _SETTING_NODES and not self.study.quick:
                found.append((name, SETTING, _SETTING_DIM))
            found += rivals.rival_keys(name, nodes, quick=self.study.quick)
        if _SIZED in self.graphs:
            found += [(_SIZED, _COLUMNS, size) for size in _SIZES]
        return found

    def measure(self, name: str, preset: str, number: int) -> Result:
        """Learn vectors, cluster them by both methods, and measure the clusters."""
        graph = self.study.graph(name)
        if preset in RIVALS:
            try:
                vectors = rivals.learn_rival(graph, preset, number)
            except SkippedError as skipped:
                return {"skipped": str(skipped)}
            return self._measure_clusters(graph, vectors)
        if preset == _COLUMNS:
            options = preset_options("paper", graph.nodes, _SETTING_DIM) | {"sketch_size": number}
        elif preset == SETTING:
            options = {"preset": "paper", "dim": number, "epsilon": experiment.PAPER_EPSILON}
        else:
            options = preset_options(preset, graph.nodes, number)
        vectors, report = self.study.embed(graph, **options)
        found = self._measure_clusters(graph, vectors)
        return {"sketch_size": report["sketch_size"], "nodes": graph.nodes, **found}

    def _measure_clusters(self, graph: StudyGraph, vectors: Any) -> Result:
        classes = read_classes(self.study.data / f"{graph.name}.labels.tsv.gz", graph.ids())
        result: Result = {}
        for method in METHODS:
            labels = cluster(method, vectors, paper.CLUSTERS[graph.name])
            result[method] = {
                "modularity": modularity(graph.graph, labels),
                "permanence": permanence(graph.graph, labels),
                "nmi": None if classes is None else class_agreement(labels, classes),
            }
            if graph.nodes < SMALL_NODES:
                result[method]["by_clusters"] = {
                    str(count): modularity(graph.graph, cluster(method, vectors, count))
                    for count in _OTHER_CLUSTERS
                }
        return result

    def section(self, results: Results) -> Section:
        """The best of each graph, method and preset beside the paper's, and every result."""
        own_results = {key: found for key, found in results.items() if key[1] not in RIVALS}
        scores = [score for key, result in own_results.items() for score in _scores(key, result)]
        rows: list[list[Cell]] = []
        heights = {}
        best: dict[tuple[str, str], Mapping[rivals.Measure, float | None]] = {}
        # As keys, for both methods may have the same reason.
        reasons: dict[str, None] = {}
        for name, method in product(self.graphs, METHODS):
            own = [score for score in scores if (score.graph, score.method) == (name, method)]
            row, reached = _row(own)
            rows.append(row)
            best[name, method] = _best(own).measures()
            if not reached:
                reasons[f"{name}: {_KARATE_REASON if name == 'karate' else _REASON}"] = None
            if method == "k-means":
                printed = zip(paper.METHODS, paper.CLUSTERING[name, method][0], strict=True)
                heights[name] = {"figrl": _best(own).modularity} | {
                    f"{other} (paper)": value for other, value in printed
                }
        first = Table("clustering", _CAPTION, _HEADER, rows)
        tables = [first, *rivals.rival_tables(self.graphs, METHODS, best, results)]
        tables.append(_cluster_numbers(self.graphs, own_results))
        if _SIZED in self.graphs:
            tables.append(_by_columns(results))
        tables.append(_all(scores))
        svg = bars(heights, Axes("Modularity of k-means clusters", "graph", "modularity"))
        caption = (
            "The first bar of each graph is figrl with its best preset, measured here; the others "
            "are as printed in the paper. The higher, the more edges lie inside clusters."
        )
        text = [*_TEXT, *rivals.TEXT, *reasons]
        pictures = [Picture(svg, caption), rivals.rival_picture(self.graphs, best, results)]
        return Section(self.name, self.title, text, tables, pictures)


_CAPTION = (
    "Modularity with the paper's number of clusters, as printed in the paper and with each "
    f"preset at its best k; reached is the printed one less {_TOLERANCE}. Permanence and NMI"
)
_HEADER = (
    *("graph", "clustering", "clusters", "printed"),
    *(f"preset {preset}" for preset in (*PRESETS, SETTING)),
    *("reached by", "k of each", "permanence, printed"),
    *("of the best modularity", "best of all", "NMI"),
)
_TEXT = (
    "Vectors are clustered by k-means and by Ward's agglomerative method, with the number of "
    "clusters that the paper's community detection found. k is taken from a grid: 2 to 16 on "
    "small graphs, 128 and 200 on large ones (128 alone above 20,000 nodes). paper+depth is "
    f"the preset paper with a width of 3/4 k and depth {experiment.STUDY_DEPTH}. "
    f"'{SETTING}' is the paper's own setting for large graphs: k = {_SETTING_DIM} and all columns "
    f"that its rule asks for, on graphs with more nodes than that, up to {_SETTING_NODES:,}.",
    "Modularity is Newman's: the paper adds a penalty for wrong assignments that it does not "
    "define well enough to be computed. The preset paper has the sketch size of "
    f"epsilon {experiment.PAPER_EPSILON}, and above {SMALL_NODES:,} nodes at most "
    f"{experiment.MAX_COLUMNS:,} columns, where its rule asks for 12,800 and 20,000: a single pass "
    "needs that many to find the dimensions that a deeper one finds with a fraction of them.",
    "The vectors of accurate have length 1, so that clusters have similar sizes: better for a "
    "hundred clusters (see the unseen nodes) than for thousands of a handful of nodes.",
    "Permanence is the mean over nodes, where the paper writes a sum; a node that is alone in its "
    "cluster has -1.",
)


def cluster(method: str, vectors: Any, clusters: int) -> Labels:
    """Cluster vectors; on a small graph k-means has several starts."""
    if method == "agglomerative":
        return np.asarray(agglomerative(vectors, clusters).labels, np.int64)
    starts = _STARTS if len(vectors) < SMALL_NODES else 1
    return kmeans_in_memory(vectors, clusters, starts=starts)[0]


def _scores(key: Key, result: Result) -> list[_Score]:
    name, preset, dim = str(key[0]), str(key[1]), int(key[2])
    if preset == _COLUMNS:
        return []
    measures = ("modularity", "permanence", "nmi")
    columns = result["sketch_size"]
    return [
        _Score(name, method, preset, dim, columns, *(result[method][one] for one in measures))
        for method in METHODS
    ]


def _best(scores: Sequence[_Score]) -> _Score:
    return max(scores, key=lambda score: score.modularity)


def _row(own: Sequence[_Score]) -> tuple[list[Cell], list[str]]:
    """Row of a graph and a method, and the presets that reach the printed modularity."""
    name, method = own[0].graph, own[0].method
    printed, printed_permanence = (values[0] for values in paper.CLUSTERING[name, method])
    best = _best(own)
    presets = [preset for preset in (*PRESETS, SETTING) if any(one.preset == preset for one in own)]
    of_presets = [_best([one for one in own if one.preset == preset]) for preset in presets]
    reached = [one.preset for one in of_presets if one.modularity >= printed - _TOLERANCE]
    unmeasured = [None] * (len(PRESETS) + 1 - len(presets))
    row = [
        *(name, method, paper.CLUSTERS[name], printed),
        *(one.modularity for one in of_presets),
        *unmeasured,
        "; ".join(reached) or "none",
        "/".join(str(one.dim) for one in of_presets),
        *(printed_permanence, best.permanence, max(one.permanence for one in own)),
        best.nmi,
    ]
    return row, reached


def _by_columns(results: Results) -> Table:
    rows: list[list[Cell]] = [
        [size, *(results[_SIZED, _COLUMNS, size][method]["modularity"] for method in METHODS)]
        for size in _SIZES
    ]
    setting = results[_SIZED, SETTING, _SETTING_DIM]
    rows.append([setting["sketch_size"], *(setting[method]["modularity"] for method in METHODS)])
    printed = [paper.CLUSTERING[_SIZED, method][0][0] for method in METHODS]
    return Table(
        "clustering-columns",
        f"{_SIZED}, the preset paper with k = {_SETTING_DIM}: modularity rises with the columns",
        ("sketch columns", *METHODS),
        [*rows, ["printed in the paper, epsilon = 0.1", *printed]],
    )


def _cluster_numbers(graphs: Sequence[str], results: Results) -> Table:
    rows: list[list[Cell]] = []
    for name, method in product(graphs, METHODS):
        found = [
            (value, int(count), preset, dim)
            for (graph, preset, dim), result in results.items()
            for count, value in result[method].get("by_clusters", {}).items()
            if graph == name
        ]
        if found:
            value, count, preset, dim = max(found, key=lambda one: one[0])
            rows.append([name, method, count, value, preset, dim])
    return Table(
        "clustering-numbers",
        "Small graphs: the number of clusters, of 2 to 12, with the highest modularity",
        ("graph", "clustering", "clusters", "modularity", "preset", "k"),
        rows,
    )


def _all(scores: Sequence[_Score]) -> Table:
    columns = ("graph", "clustering", "preset", "k", "sketch columns")
    measures = ("modularity", "permanence", "NMI")
    return Table("clustering-all", "Every combination", (*columns, *measures), scores, folded=True)
