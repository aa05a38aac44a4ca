"""Structural holes: who is chosen, and how far the influence of the chosen goes (SHII)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import BadInputError, ConfigError
from pipeline.files import digest, file_digest, load_array, remove, save_array
from pipeline.run import ClusterJob
from pipeline.study import paper
from pipeline.study.adjacency import Adjacency, open_adjacency, write_adjacency
from pipeline.study.articulation import ap_bicc
from pipeline.study.clustering import kmeans_in_memory
from pipeline.study.deviation import score_vectors
from pipeline.study.diffusion import InfluenceTask, influence
from pipeline.study.draws import MODELS
from pipeline.study.figures import bars
from pipeline.study.metrics import Labels, modularity
from pipeline.study.page import Cell, Picture, Section, Table
from pipeline.study.rivals import (
    highest_betweenness,
    highest_pagerank,
    lowest_constraint,
)
from pipeline.study.spanners import ham, his
from pipeline.study.workbench import Item, Result, StudyGraph, Workbench, preset_options

CLUSTERS = {"karate": 2, "com-dblp": 1000}
DIMS = {"karate": 3, "com-dblp": 128}
_RUNS, _QUICK_RUNS = 10_000, 500
_PIVOTS = 64
"""Sources of the sampled betweenness of a large graph."""
_LARGE_NODES = 20_000
_HIS_CLUSTERS = 64
_SHOWN_IDS = 3

Choose = Callable[[Adjacency, int, Labels], Any]


def _chosen_by_ham(adjacency: Adjacency, count: int, labels: Labels) -> Any:
    _refuse_large(adjacency, "it decomposes a matrix once a round")
    return ham(adjacency, count, clusters=int(labels.max()) + 1)


def _chosen_by_his(adjacency: Adjacency, count: int, labels: Labels) -> Any:
    if labels.max() >= _HIS_CLUSTERS:
        reason = "it keeps two numbers for each node and cluster"
        raise ConfigError(f"not run with more than {_HIS_CLUSTERS} clusters: {reason}")
    return his(adjacency, count, labels=labels)


def _chosen_by_ap_bicc(adjacency: Adjacency, count: int, _: Labels) -> Any:
    return ap_bicc(adjacency, count)


def _chosen_by_betweenness(adjacency: Adjacency, count: int, _: Labels) -> Any:
    samples = _PIVOTS if adjacency.nodes > _LARGE_NODES else None
    return highest_betweenness(adjacency, count, samples=samples)


METHODS: dict[str, Choose] = {
    "HAM": _chosen_by_ham,
    "constraint": lambda adjacency, count, _: lowest_constraint(adjacency, count),
    "PageRank": lambda adjacency, count, _: highest_pagerank(adjacency, count),
    "betweenness": _chosen_by_betweenness,
    "HIS": _chosen_by_his,
    "AP_BICC": _chosen_by_ap_bicc,
}
"""Ways to choose holes beside figrl's RDS."""


def _refuse_large(adjacency: Adjacency, reason: str) -> None:
    if adjacency.nodes > _LARGE_NODES:
        raise ConfigError(f"not run above {_LARGE_NODES:,} nodes: {reason}")


def items(bench: Workbench) -> list[Item]:
    """The clusters of each graph, then every method on it."""
    found = []
    for name in (name for name in bench.graphs if name in paper.HOLES):
        found.append(Item(f"{name}-RDS", measure_own, (bench, name)))
        found += [Item(f"{name}-{method}", measure, (bench, name, method)) for method in METHODS]
    return found


def _runs(bench: Workbench) -> int:
    return _QUICK_RUNS if bench.quick else _RUNS


def _labels_path(bench: Workbench, study: StudyGraph) -> Path:
    return bench.out / "results" / "holes" / f"{study.name}-labels.npy"


def measure_own(bench: Workbench, name: str) -> Result:
    """Learn vectors, cluster them, and take the nodes with the highest RDS."""
    study = bench.graph(name)
    options = preset_options("accurate", study.graph.nodes, DIMS[name])
    vectors, _ = bench.embed(study, **options)
    starts = 10 if study.graph.nodes < _LARGE_NODES else 1
    labels, _ = kmeans_in_memory(vectors, CLUSTERS[name], starts=starts)
    save_array(_labels_path(bench, study), labels)
    scores = score_vectors(vectors, labels).scores
    best = np.argsort(-scores, kind="stable")[: paper.HOLES[name]]
    return {
        "modularity": modularity(study.graph, labels),
        **_influence(bench, study, "RDS", best),
    }


def measure(bench: Workbench, name: str, method: str) -> Result:
    """Choose holes by another method; SHII is by the same clusters."""
    study = bench.graph(name)
    folder = write_adjacency(study.graph, study.store / "adjacency")
    path = _labels_path(bench, study)
    if not path.exists():
        raise BadInputError(
            f"{path} is missing, by which the holes of {name} are judged. Delete "
            f"{path.with_name(f'{name}-RDS.json')} and the others of {name}, and start again."
        )
    labels = load_array(path)
    try:
        chosen = METHODS[method](open_adjacency(folder), paper.HOLES[name], labels)
    except ConfigError as refused:
        return {"skipped": str(refused)}
    return _influence(bench, study, method, chosen)


def _influence(bench: Workbench, study: StudyGraph, method: str, chosen: Any) -> Result:
    folder = write_adjacency(study.graph, study.store / "adjacency")
    labels, rows = _labels_path(bench, study), [int(row) for row in chosen]
    result: Result = {
        "ids": study.ids()[rows].tolist(),
        "rows": rows,
        "bridges": _bridges(open_adjacency(folder), load_array(labels), rows),
    }
    clusters = load_array(labels)
    members = int(np.bincount(clusters)[clusters[rows]].sum())
    work = study.store / "work" / f"influence-{method}-{digest([rows, file_digest(labels)])}"
    save_array(work / "holes.npy", np.array(rows))
    for model in MODELS:
        task = InfluenceTask(folder, labels, work / "holes.npy", model)
        job = ClusterJob(bench.client, work / "marks")
        sizes = {"nodes": study.graph.nodes, "members": members}
        mean = influence(job, task, runs=_runs(bench), **sizes).together
        result[model] = {"shii": mean.mean, "error": mean.error, "active": mean.active}
    remove(work)
    return result


def _bridges(adjacency: Adjacency, labels: Labels, rows: list[int]) -> int:
    """How many of the nodes have neighbours in two clusters or more."""
    spans = (adjacency.neighbours[adjacency.starts[r] : adjacency.starts[r + 1]] for r in rows)
    return sum(np.unique(labels[span]).size > 1 for span in spans)


def section(bench: Workbench, results: dict[str, Result]) -> Section:
    """SHII of every method beside the paper's."""
    names = [name for name in bench.graphs if name in paper.HOLES]
    rows: list[list[Cell]] = []
    skipped, pictures = [], []
    for name in names:
        heights: dict[str, dict[str, float | None]] = {"LT": {}, "IC": {}}
        for method in ("RDS", *METHODS):
            result = results[f"{name}-{method}"]
            # Also of one that is not there, so that a method has the same colour everywhere.
            for model in MODELS:
                heights[model.upper()][method] = result.get(model, {}).get("shii")
            if "skipped" in result:
                skipped.append(f"{method} on {name}: {result['skipped']}")
            else:
                rows.append(_row(name, method, result))
        values = [value for group in heights.values() for value in group.values() if value]
        pictures.append(
            Picture(
                bars(
                    heights,
                    title=f"SHII on {name}",
                    x="model of influence",
                    y="SHII (reached outside / inside)",
                    log_y=max(values) > 50 * min(values),
                ),
                f"{name}: how many nodes of other clusters are reached for each node of the "
                "hole's own, under both models of influence; the first bar is figrl's choice.",
            )
        )
    columns = (
        *("graph", "method", "holes", "ids", "bridges", "LT", "error, LT", "LT, paper"),
        *("IC", "error, IC", "IC, paper", "reached, LT"),
    )
    return Section(
        "holes",
        "Structural holes",
        [
            "figrl ranks nodes by the paper's relative deviation score (RDS). They are judged "
            "by SHII: the hole and a tenth of its cluster, drawn at random, begin; SHII is the "
            "number of nodes reached outside the cluster for each one inside, the mean of "
            f"{_runs(bench):,} runs a hole. Linear threshold: thresholds uniform, edges weigh one "
            "over the degree. Independent cascade: p = 0.1. All methods are judged by figrl's "
            "k-means clusters: 2 on karate, 1,000 on com-dblp (the paper does not say how many). "
            "Bridges are holes with neighbours in two clusters or more; errors are standard ones.",
            "On karate the paper's holes are "
            + "; ".join(f"{method} {ids}" for method, ids in paper.KARATE_HOLES.items())
            + ". It counts nodes from 1, the file from 0: ids here are as in the paper. Its SHII "
            "depends on its clusters and on a probability that it does not give, so only the order "
            "of the methods can be compared.",
            *([_LARGE_TEXT] if _LARGE in names else []),
        ],
        [Table("holes", "Structural holes and their influence", columns, rows)],
        pictures,
        skipped,
    )


_LARGE = "com-dblp"
_LARGE_TEXT = (
    f"Betweenness on {_LARGE} is that of paths from {_PIVOTS} sampled sources. RDS finds nodes of "
    "small, tight clusters there, whose tenth is a node or two; hubs begin with hundreds. So "
    "thresholds, which need many active neighbours, favour hubs, and under cascades, whose pieces "
    "span the graph, the small clusters of RDS make for the largest ratio."
)


def _row(name: str, method: str, result: Result) -> list[Cell]:
    shift = 1 if name == "karate" else 0
    ids = " ".join(str(node + shift) for node in result["ids"][:_SHOWN_IDS])
    lt, ic = result["lt"], result["ic"]
    return [
        *(name, method, len(result["ids"])),
        ids + (" ..." if len(result["ids"]) > _SHOWN_IDS else ""),
        result["bridges"],
        *(lt["shii"], lt["error"], paper.INFLUENCE[name, "lt"][method]),
        *(ic["shii"], ic["error"], paper.INFLUENCE[name, "ic"][method]),
        lt["active"],
    ]
