"""The paper's rivals in the part on clustering: their vectors, and tables beside the paper's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from figrl.study import paper
from figrl.study.experiment import Results
from figrl.study.figures import Axes, bars
from figrl.study.graphs import StudyGraph
from figrl.study.page import Cell, Picture, Table
from figrl.study.peers import RIVALS, run_peer

DIM = 100
"""Vector length of all rivals in the paper's table of running times; less on a small graph."""

TIMEOUT_SECONDS = 120.0

Measure = Literal["modularity", "permanence", "nmi"]
Scores = Mapping[tuple[str, str], Mapping[Measure, float | None]]
"""By graph and clustering method: what figrl's own vectors reach."""

TEXT = (
    f"Rivals have vectors of length {DIM}, or half the nodes, where figrl has the best k of its "
    "grid and its best preset: they could gain from a search of their own. node2vec has p = 1 and "
    "q = 0.5; DeepWalk is node2vec with p = q = 1 and a hierarchical softmax (both by "
    "fastnode2vec). LINE joins its two orders. GraphSAGE has learnt features, for the graphs have "
    "none.",
    "Settings are those of the authors' programs, except for GraphSAGE's rate (0.01), number of "
    "steps and 5 negatives, for which a few values were tried on the four small graphs: with its "
    "authors' 20 negatives modularity was lower on all four. A rival that did not end in "
    f"{TIMEOUT_SECONDS:.0f} s was stopped.",
)


class RivalKey(NamedTuple):
    """A measurement of a rival."""

    graph: str
    method: str
    dim: int


def rival_dim(nodes: int) -> int:
    """Vector length of rivals and peers on a graph."""
    return min(DIM, nodes // 2)


def rival_keys(name: str, nodes: int, *, quick: bool) -> list[RivalKey]:
    """Measurements of all rivals on a graph; in a quick study one rival, which is fast."""
    return [RivalKey(name, rival, rival_dim(nodes)) for rival in (("LINE",) if quick else RIVALS)]


def learn_rival(graph: StudyGraph, rival: str, dim: int) -> npt.NDArray[np.float32]:
    """Vectors of a rival, learnt in a process of its own; `SkippedError` if it gives none."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        run_peer(rival, str(graph.store), dim, out.name, TIMEOUT_SECONDS)
        vectors: npt.NDArray[np.float32] = np.load(out.name)
    return vectors


def rival_tables(
    names: Sequence[str], clusterings: Sequence[str], ours: Scores, results: Results
) -> list[Table]:
    """Modularity and permanence beside the printed ones; NMI of graphs that have classes."""
    rows = list(product(names, clusterings))
    printed = "as measured here and as printed in the paper"
    tables = [
        _beside_printed("modularity", f"Modularity, {printed}", rows, ours, results),
        _beside_printed("permanence", f"Permanence, {printed}", rows, ours, results),
    ]
    classified = [row for row in rows if ours[row]["nmi"] is not None]
    if classified:
        tables.append(_agreement(classified, ours, results))
    return tables


def _beside_printed(
    measure: Literal["modularity", "permanence"],
    caption: str,
    rows: Sequence[tuple[str, str]],
    ours: Scores,
    results: Results,
) -> Table:
    columns = ["graph", "clustering", "figrl", "FI-GRL, printed"]
    for rival in paper.METHODS[1:]:
        columns += [rival, f"{rival}, printed"]
    place = 0 if measure == "modularity" else 1
    cells: list[list[Cell]] = []
    for graph, clustering in rows:
        found: list[Cell] = [ours[graph, clustering][measure]]
        found += [_cell(results, graph, rival, clustering, measure) for rival in paper.METHODS[1:]]
        pairs = zip(found, paper.CLUSTERING[graph, clustering][place], strict=True)
        cells.append([graph, clustering, *(value for pair in pairs for value in pair)])
    return Table(f"clustering-rivals-{measure}", caption, tuple(columns), cells)


def _agreement(rows: Sequence[tuple[str, str]], ours: Scores, results: Results) -> Table:
    cells: list[list[Cell]] = [
        [
            *(graph, clustering, ours[graph, clustering]["nmi"]),
            *(_cell(results, graph, rival, clustering, "nmi") for rival in paper.METHODS[1:]),
        ]
        for graph, clustering in rows
    ]
    caption = "NMI of clusters and classes, as measured here; the paper prints none"
    columns = ("graph", "clustering", "figrl", *paper.METHODS[1:])
    return Table("clustering-rivals-nmi", caption, columns, cells)


def _cell(results: Results, graph: str, rival: str, clustering: str, measure: Measure) -> Cell:
    """A measured value, or why there is none."""
    for (name, method, *_), result in results.items():
        if (name, method) == (graph, rival):
            value: Cell = result.get("skipped") or result[clustering][measure]
            return value
    return None


def rival_picture(names: Sequence[str], ours: Scores, results: Results) -> Picture:
    """Bars of the modularity of k-means clusters, all measured here."""
    heights: dict[str, dict[str, float | None]] = {}
    for name in names:
        heights[name] = {"figrl": ours[name, "k-means"]["modularity"]}
        for rival in paper.METHODS[1:]:
            cell = _cell(results, name, rival, "k-means", "modularity")
            heights[name][rival] = cell if isinstance(cell, float) else None
    title = "Modularity of k-means clusters, all measured here"
    caption = (
        "figrl with its best preset and k, and the paper's rivals, measured on the same machine. "
        "A rival without a bar did not end in time, or is not installed."
    )
    return Picture(bars(heights, Axes(title, "graph", "modularity")), caption)
