"""Structural holes: which are chosen, and how far their influence reaches (SHII)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from figrl.analyze.adjacency import Adjacency
from figrl.analyze.deviation import score_vectors
from figrl.analyze.influence import InfluenceTask, influence
from figrl.analyze.kmeans import kmeans_in_memory
from figrl.analyze.live_edges import MODELS
from figrl.analyze.metrics import Labels, modularity
from figrl.engine.runner import ClusterRunner
from figrl.errors import BadInputError, ConfigError
from figrl.store import files
from figrl.study import paper
from figrl.study.baselines import Nodes, Scores, betweenness, constraint, lowest, pagerank
from figrl.study.baselines_holes import ap_bicc, ham_scores, his_scores
from figrl.study.experiment import Experiment, Key, Result, Results, Study, preset_options
from figrl.study.figures import Axes, bars
from figrl.study.graphs import StudyGraph
from figrl.study.page import Cell, Picture, Section, Table

CLUSTERS = {"karate": 2, "com-dblp": 1000}
DIMS = {"karate": 2, "com-dblp": 128}
UNSMOOTHED = ("karate",)
"""Graphs so small that smoothing, in two dimensions, moves holes into the clusters beside them."""

_OURS = "RDS"
_PIVOTS = 64
"""Sources of the sampled betweenness of a large graph."""
_LARGE_NODES = 20_000
_HIS_CLUSTERS = 64
_SHOWN_IDS = 3


BASELINES = ("HAM", "constraint", "PageRank", "betweenness", "HIS", "AP_BICC")
"""Methods to choose holes beside figrl's RDS."""


def choose_holes(method: str, adjacency: Adjacency, count: int, labels: Labels) -> Nodes:
    """Choose structural holes by a baseline; ConfigError if it cannot handle the graph."""
    large, clusters = adjacency.nodes > _LARGE_NODES, int(labels.max()) + 1
    if method == "HAM" and large:
        reason = "it decomposes a matrix in every round"
        raise ConfigError(f"not run above {_LARGE_NODES:,} nodes: {reason}")
    if method == "HIS" and clusters > _HIS_CLUSTERS:
        reason = "it keeps two numbers for each node and cluster"
        raise ConfigError(f"not run with more than {_HIS_CLUSTERS} clusters: {reason}")
    if method == "AP_BICC":
        return ap_bicc(adjacency, count)
    scores: dict[str, Callable[[], Scores]] = {
        "HAM": lambda: ham_scores(adjacency, clusters),
        "constraint": lambda: constraint(adjacency),
        "PageRank": lambda: -pagerank(adjacency),
        "betweenness": lambda: -betweenness(adjacency, samples=_PIVOTS if large else None),
        "HIS": lambda: -his_scores(adjacency, labels, max_clusters=_HIS_CLUSTERS),
    }
    return lowest(scores[method](), count)


class Holes(Experiment):
    """On each graph figrl's choice, whose clusters are kept, then that of every baseline."""

    name = "holes"
    title = "Structural holes"
    covers = tuple(paper.HOLES)

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.runs = 500 if study.quick else 10_000

    def keys(self) -> list[Key]:
        """Graph and method."""
        return [(name, method) for name in self.graphs for method in (_OURS, *BASELINES)]

    def measure(self, name: str, method: str) -> Result:
        """Choose holes by a method and simulate their influence, within figrl's clusters."""
        graph, count = self.study.graph(name), paper.HOLES[name]
        if method == _OURS:
            return self._measure_ours(graph, count)
        path = self._labels_path(name)
        if not files.exists(path):
            raise BadInputError(
                f"{path} is missing, the clusters by which the holes of {name} are measured. "
                f"Delete {path.with_name(f'{name}-RDS.json')} and the others of {name}, and start "
                "again."
            )
        try:
            chosen = choose_holes(
                method, graph.adjacency(), count, files.load_array(path, checked=False)
            )
        except ConfigError as refused:
            return {"skipped": str(refused)}
        return self._influence(graph, method, chosen)

    def _labels_path(self, name: str) -> Path:
        return self.folder / f"{name}-labels.npy"

    def _measure_ours(self, graph: StudyGraph, count: int) -> Result:
        """Learn vectors, cluster them, and choose the nodes with the highest RDS."""
        options = preset_options("accurate", graph.nodes, DIMS[graph.name])
        if graph.name in UNSMOOTHED:
            options["smoothing"] = 0
        vectors, _ = self.study.embed(graph, **options)
        starts = 10 if graph.nodes < _LARGE_NODES else 1
        labels, _ = kmeans_in_memory(vectors, CLUSTERS[graph.name], starts=starts)
        files.save_array(self._labels_path(graph.name), labels)
        best = np.argsort(-score_vectors(vectors, labels).scores, kind="stable")[:count]
        found = {"modularity": modularity(graph.graph, labels)}
        return found | self._influence(graph, _OURS, best)

    def _influence(self, graph: StudyGraph, method: str, chosen: Any) -> Result:
        path, rows = self._labels_path(graph.name), [int(row) for row in chosen]
        labels = files.load_array(path, checked=False)
        result: Result = {
            "ids": graph.ids()[rows].tolist(),
            "rows": rows,
            "bridges": _bridges(graph.adjacency(), labels, rows),
        }
        members = int(np.bincount(labels)[labels[rows]].sum())
        key = files.digest([rows, files.file_digest(path)])
        work = graph.store / "work" / f"influence-{method}-{key}"
        files.save_array(work / "holes.npy", np.array(rows))
        for model in MODELS:
            task = InfluenceTask(graph.adjacency_path(), path, work / "holes.npy", model)
            job = ClusterRunner(self.study.session.connected(), work / "marks")
            sizes = {"nodes": graph.nodes, "members": members}
            mean = influence(job, task, runs=self.runs, **sizes).together
            result[model] = {"shii": mean.mean, "error": mean.error, "active": mean.active}
        files.delete(work)
        return result

    def section(self, results: Results) -> Section:
        """SHII of every method beside the paper's."""
        rows: list[list[Cell]] = []
        skipped = []
        for (name, method), result in results.items():
            if "skipped" in result:
                skipped.append(f"{method} on {name}: {result['skipped']}")
            else:
                rows.append(_row(str(name), str(method), result))
        holes = "; ".join(f"{method} {ids}" for method, ids in paper.KARATE_HOLES.items())
        text = [_TEXT.format(runs=self.runs), _KARATE_TEXT.format(holes=holes)]
        if _LARGE in self.graphs:
            text.append(_LARGE_TEXT)
        table = Table(self.name, "Structural holes and their influence", _HEADER, rows)
        pictures = [_picture(name, results) for name in self.graphs]
        return Section(self.name, self.title, text, [table], pictures, skipped)


def _bridges(adjacency: Adjacency, labels: Labels, rows: list[int]) -> int:
    """How many of the nodes have neighbours in two clusters or more."""
    spans = (adjacency.neighbours[adjacency.starts[r] : adjacency.starts[r + 1]] for r in rows)
    return sum(np.unique(labels[span]).size > 1 for span in spans)


def _row(name: str, method: str, result: Result) -> list[Cell]:
    first = 1 if name == "karate" else 0
    ids = " ".join(str(node + first) for node in result["ids"][:_SHOWN_IDS])
    lt, ic = result["lt"], result["ic"]
    return [
        *(name, method, len(result["ids"])),
        ids + (" ..." if len(result["ids"]) > _SHOWN_IDS else ""),
        result["bridges"],
        *(lt["shii"], lt["error"], paper.INFLUENCE[name, "lt"][method]),
        *(ic["shii"], ic["error"], paper.INFLUENCE[name, "ic"][method]),
        lt["active"],
    ]


def _picture(name: str, results: Results) -> Picture:
    """Bars of both models; skipped methods keep their place, so that colours are the same."""
    heights = {
        model.upper(): {
            method: results[name, method].get(model, {}).get("shii")
            for method in (_OURS, *BASELINES)
        }
        for model in MODELS
    }
    values = [value for group in heights.values() for value in group.values() if value]
    labels = f"SHII on {name}", "influence model", "SHII (reached outside / inside)"
    return Picture(
        bars(heights, Axes(*labels, log_y=max(values) > 50 * min(values))),
        f"{name}: how many nodes of other clusters are reached for each node of the hole's own, "
        "under both influence models; the first bar is figrl's choice.",
    )


_LARGE = "com-dblp"
_HEADER = (
    *("graph", "method", "holes", "ids", "bridges", "LT", "error, LT", "LT, paper"),
    *("IC", "error, IC", "IC, paper", "reached, LT"),
)
_TEXT = (
    "figrl ranks nodes by the paper's relative deviation score (RDS). They are measured by SHII: "
    "the hole and a tenth of its cluster, drawn at random, are the seeds; SHII is the number of "
    "nodes reached outside the cluster for each one inside, the mean of {runs:,} runs a hole. "
    "Linear threshold: uniform thresholds, weights of one over the degree. Independent cascade: "
    "p = 0.1. All methods are measured with figrl's k-means clusters: 2 on karate, 1,000 on "
    "com-dblp (the paper does not say how many). Bridges are holes with neighbours in two clusters "
    "or more; errors are standard errors."
)
_KARATE_TEXT = (
    "On karate the paper's holes are {holes}. It numbers nodes from 1, the file from 0: ids here "
    "are as in the paper. Its SHII depends on its clusters and on a probability that it does not "
    "give, so only the order of the methods can be compared."
)
_LARGE_TEXT = (
    f"Betweenness on {_LARGE} is that of paths from {_PIVOTS} sampled sources. RDS finds nodes of "
    "small, tight clusters there, a tenth of which is a node or two; hubs start with hundreds. So "
    "thresholds, which need many active neighbours, favour hubs, and under cascades, whose pieces "
    "span the graph, the small clusters of RDS give the largest ratio."
)
