"""The vectors of a run as a picture in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from figrl.serve.embedding import Embedding
from figrl.serve.pictures import PALETTE
from figrl.store.matrix import Floats

_MOST_LABELS = 10
"""Values of a colour that a legend shows."""


def plot_vectors(
    embedding: Embedding, *, color: Any, labels: bool | list[Any], nodes: int, seed: int, ax: Any
) -> Any:
    """Draw a sample of the vectors; see `Embedding.plot`."""
    axes = _new_axes() if ax is None else ax
    every = embedding.graph.nodes
    rows = np.arange(every)
    if every > nodes:
        rows = np.sort(np.random.default_rng(seed).choice(every, nodes, replace=False))
    points, ids = _plane(embedding.vectors_at(rows)), embedding.ids_at(rows)
    _scatter(axes, points, _values(embedding, rows, color))
    wanted = set(ids) if labels is True else set(labels or ())
    for place, name in zip(points, ids, strict=True):
        if name in wanted:
            axes.annotate(str(name), place, fontsize=7, xytext=(2, 2), textcoords="offset points")
    shown = f"{rows.size:,} of {every:,} nodes" if rows.size < every else f"{every:,} nodes"
    axes.set(xlabel="first principal component", ylabel="second", title=shown)
    return axes


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install matplotlib") from error
    return plt.subplots(figsize=(6, 5))[1]


def _plane(vectors: Floats) -> Floats:
    """The first two principal components; a second dimension of zeros where there is one."""
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2), np.float32)
    found = (left * sizes)[:, :2]
    points[:, : found.shape[1]] = found
    return points


def _values(embedding: Embedding, rows: Any, color: Any) -> Any:
    """Value of each row, by which it is coloured; None without."""
    if color is None:
        return None
    ids, sides = embedding.ids_at(rows), embedding.sides_at(rows)
    names = ids if sides is None else list(zip(ids, sides, strict=True))
    return np.asarray(color.loc[names])


def _scatter(axes: Any, points: Floats, values: Any) -> None:
    size = float(np.clip(4000 / max(len(points), 1), 4, 40))
    if values is None:
        axes.scatter(*points.T, s=size, color=PALETTE[0], linewidths=0)
        return
    distinct = np.unique(values)
    for number, value in enumerate(distinct):
        chosen = points[values == value]
        color = PALETTE[number % len(PALETTE)]
        axes.scatter(*chosen.T, s=size, color=color, linewidths=0, label=str(value))
    if distinct.size <= _MOST_LABELS:
        axes.legend(frameon=False, fontsize=8)
