"""Karate in two and three dimensions, with its two clubs and its structural holes."""

from __future__ import annotations

from typing import Any

import numpy as np

from figrl.analyze.deviation import score_vectors
from figrl.analyze.kmeans import kmeans_in_memory
from figrl.study.experiment import Experiment, Key, Result, Results
from figrl.study.figures import scatter
from figrl.study.graphs import read_classes
from figrl.study.page import Cell, Picture, Section, Table

HOLES = 3
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "epsilon-0.3": ("preset paper, epsilon 0.3", {"preset": "paper", "epsilon": 0.3}),
    "epsilon-0.1": ("preset paper, epsilon 0.1", {"preset": "paper", "epsilon": 0.1}),
    "accurate": ("preset accurate", {"sketch_size": 32}),
}


class Karate(Experiment):
    """Two and three dimensions at both values of epsilon, and with the default preset."""

    name = "karate"
    title = "Karate figures"
    covers = ("karate",)

    def keys(self) -> list[Key]:
        """Options and dimensions."""
        return [(option, dim) for _ in self.graphs for option in OPTIONS for dim in (2, 3)]

    def measure(self, option: str, dim: int) -> Result:
        """Vectors, the nodes with the highest RDS, and how many nodes are with their club."""
        graph = self.study.graph("karate")
        vectors, report = self.study.embed(graph, dim=dim, **OPTIONS[option][1])
        labels, _ = kmeans_in_memory(vectors, 2, starts=10)
        scores = score_vectors(vectors, labels).scores
        classes = read_classes(self.study.data / "karate.labels.tsv.gz", graph.ids())
        if classes is None:
            classes = np.full(graph.nodes, "")
        same = labels == (classes == classes[0])
        return {
            "points": vectors.tolist(),
            "classes": classes.tolist(),
            "holes": np.argsort(-scores, kind="stable")[:HOLES].tolist(),
            # The file numbers nodes from 0, Zachary and the paper from 1.
            "names": [str(node + 1) for node in graph.ids()],
            "sketch_size": report["sketch_size"],
            "right": int(max(same.sum(), (~same).sum())),
        }

    def section(self, results: Results) -> Section:
        """Scatter plots."""
        rows: list[list[Cell]] = []
        pictures = []
        for (option, dim), result in results.items():
            name, names = OPTIONS[str(option)][0], result["names"]
            holes = " ".join(names[node] for node in result["holes"])
            rows.append([name, dim, result["sketch_size"], holes, result["right"]])
            title = f"Karate, {name}, {dim} dimensions"
            svg = scatter(result["points"], result["classes"], names, result["holes"], title=title)
            caption = (
                f"{name[0].upper()}{name[1:]}, {result['sketch_size']} sketch columns: nodes "
                "coloured by club; rings mark the three nodes with the highest RDS. k-means with "
                f"two clusters puts {result['right']} of {len(names)} nodes with their club."
            )
            pictures.append(Picture(svg, caption))
        table = Table(self.name, "Holes and clusters of karate", _COLUMNS, rows)
        return Section(self.name, self.title, [_TEXT], [table], pictures)


_COLUMNS = ("vectors", "dimensions", "sketch columns", "highest RDS", "nodes with their club")
_TEXT = (
    "The paper shows karate at epsilon 0.3, where the clubs mix, and at 0.1, where they lie apart. "
    "Dimensions are those of the vectors themselves. Nodes are numbered from 1, as in the paper, "
    "which finds the holes 3, 14 and 20."
)
