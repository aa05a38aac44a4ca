"""Projection cost: what a sketch loses, by its size and by power iterations."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from pipeline.study.adjacency import open_adjacency, write_adjacency
from pipeline.study.figures import Curve, curves
from pipeline.study.page import Cell, Picture, Section, Table, pivot
from pipeline.study.workbench import GRAPHS, Item, Result, StudyGraph, Workbench

SIZES = (10, 20, 50, 100, 200, 400, 700, 1000)
POWERS = (0, 1, 2, 3, 5, 7)
_GRAPHS = 7
"""The smallest ones: those whose exact decomposition takes less than minutes."""
_DENSE_NODES = 2000


def dimension(nodes: int) -> int:
    """The paper's k."""
    return max(min(nodes // 10, 200), 1)


def items(bench: Workbench) -> list[Item]:
    """The exact residual of every graph, then sizes, then powers."""
    found = []
    for name in _names(bench):
        found.append(Item(f"{name}-exact", exact, (bench, name)))
        sizes = SIZES[2:4] if bench.quick else SIZES
        for size in sizes:
            key = f"{name}-size-{size}-{bench.repeats}"
            found.append(Item(key, measure, (bench, name, size, 0)))
        nodes = bench.graph(name, connected=True).graph.nodes
        for powers in POWERS[:2] if bench.quick else POWERS:
            size = -(-3 * dimension(nodes) // 8) * 4
            key = f"{name}-powers-{powers}-{bench.repeats}"
            found.append(Item(key, measure, (bench, name, size, powers)))
    return found


def _names(bench: Workbench) -> list[str]:
    return [name for name in bench.graphs if name in GRAPHS[:_GRAPHS]]


def exact(bench: Workbench, name: str) -> Result:
    """What the best k dimensions leave of ``||L||_F^2``."""
    study = bench.graph(name, connected=True)
    matrix = normalised(study)
    k = dimension(study.graph.nodes)
    total = float((matrix.data**2).sum())
    if study.graph.nodes <= _DENSE_NODES:
        values = np.linalg.norm(scipy.linalg.eigvalsh(matrix.toarray())[:, None], axis=1)
        values = np.sort(values)[::-1][:k]
    else:
        values = scipy.sparse.linalg.svds(matrix, k, return_singular_vectors=False)
    return {"k": k, "total": total, "residual": total - float((values**2).sum())}


def normalised(study: StudyGraph) -> scipy.sparse.csr_matrix:
    """``D^-1/2 W D^-1/2`` in memory."""
    adjacency = open_adjacency(write_adjacency(study.graph, study.store / "adjacency"))
    root = scipy.sparse.diags(1 / np.sqrt(adjacency.degrees))
    return scipy.sparse.csr_matrix(root @ adjacency.matrix() @ root)


def measure(bench: Workbench, name: str, size: int, powers: int) -> Result:
    """Costs ``||L - U U^t L||_F^2`` of as many seeds as there are repeats."""
    study = bench.graph(name, connected=True)
    dim = min(dimension(study.graph.nodes), size)
    costs = []
    for seed in range(bench.repeats if powers == 0 else min(bench.repeats, 3)):
        _, report = bench.embed(
            study,
            preset="paper",
            certificate="yes",
            dim=dim,
            sketch_size=size,
            power_iterations=powers,
            seed=seed,
        )
        certificate = report["certificate"]
        costs.append(certificate["square_norm"] - certificate["captured"])
    return {"costs": costs, "dim": dim, "size": size}


def section(bench: Workbench, results: dict[str, Result]) -> Section:
    """Relative projection cost by sketch size, and by power iterations."""
    tables, folded, pictures = [], [], []
    for kind, x, log in (
        ("size", "sketch columns d", True),
        ("powers", "power iterations q", False),
    ):
        lines, rows = {}, []
        means: dict[tuple[Cell, ...], dict[float, Cell]] = {}
        for name in _names(bench):
            best = results[f"{name}-exact"]
            points = []
            for key, result in results.items():
                if not key.startswith(f"{name}-{kind}-"):
                    continue
                relative = (np.array(result["costs"]) - best["residual"]) / best["residual"]
                at = int(key.rsplit("-", 2)[1])
                mean, spread = float(relative.mean()), float(relative.std())
                points.append((at, mean, spread))
                rows.append([name, best["k"], result["size"], at, relative.size, mean, spread])
            places, heights, spreads = zip(*sorted(points), strict=True)
            lines[f"{name}, k = {best['k']}"] = Curve(places, heights, spreads)
            means[name, best["k"]] = dict(zip(places, heights, strict=True))
        title = f"Relative projection cost by {x}"
        tables.append(pivot(f"projection-{kind}", title, ("graph", "k"), x, means))
        columns = ("graph", "k", "columns", x, "seeds", "relative cost", "deviation")
        details = f"{title}: seeds and deviations"
        folded.append(Table(f"projection-{kind}-all", details, columns, rows, folded=True))
        picture = curves(
            lines, title=title, x=x, y="relative projection cost", log_x=log, log_y=True
        )
        pictures.append(Picture(picture, _SENTENCES[kind]))
    return Section(
        "projection",
        "Projection cost",
        [
            "How much more of the matrix L is lost by the k dimensions that were found than by the "
            "best k, over what the best lose: (||L - U U^t L||^2 - best) / best, with "
            "k = min(0.1 n, 200) as in the paper; best by an exact decomposition (svds, dense on "
            "small graphs). Largest components. Where d is below k, there are only d dimensions.",
            "The paper draws the curve by sketch size and prints no table. It calls the cost at "
            "1,000 columns nearly optimal; measured, a single pass is still some way off on the "
            "larger graphs, and a few power iterations with 1.5 k columns come much nearer.",
        ],
        [*tables, *folded],
        pictures,
    )


_SENTENCES = {
    "size": "One pass, the paper's method: the cost falls with the sketch size. The band is one "
    "standard deviation over the seeds: wide on karate, and hidden by the line on large graphs.",
    "powers": "With 1.5 k columns: every power iteration, two more products with the graph, "
    "brings the cost down far more than more columns do.",
}
