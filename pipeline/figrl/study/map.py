"""A map of vectors: nodes that are close lie together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figrl.store.files import atomic_write
from figrl.store.matrix import Floats
from figrl.study.planted import Integers

_COLORS = "tab20"


def draw_map(path: Path, known: tuple[Floats, Integers], new: tuple[Floats, Integers]) -> None:
    """Write a PNG of vectors in the plane (t-SNE), coloured by community; new nodes are crosses."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    vectors = np.concatenate([known[0], new[0]])
    places = TSNE(init="pca", random_state=0, max_iter=500).fit_transform(vectors)
    colors = colormaps[_COLORS]
    figure = Figure(figsize=(7, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = len(known[0])
    x, y = places.T
    axes.scatter(x[:shown], y[:shown], s=7, color=colors(known[1] % 20), linewidths=0)
    axes.scatter(x[shown:], y[shown:], s=26, marker="x", color=colors(new[1] % 20), linewidths=1.2)
    axes.scatter([], [], s=20, color="#555555", linewidths=0, label=f"{shown:,} nodes of the graph")
    axes.scatter(
        [], [], s=26, marker="x", color="#555555", label=f"{len(new[0]):,} new nodes, folded in"
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
    axes.set(xticks=[], yticks=[], title="Vectors in the plane (t-SNE), coloured by community")
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(False)
    with atomic_write(path) as aside:
        figure.savefig(aside, format="png", dpi=130)
