"""The vectors of a run as a picture in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from figrl.serve.embedding import Embedding
from figrl.serve.pictures import PALETTE
from figrl.store.matrix import Floats
from figrl.units import kind_of

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
    if hasattr(color, "loc"):
        return _values_by_name(embedding, rows, color)
    if isinstance(color, str | bytes | dict) or not hasattr(color, "__len__"):
        raise TypeError(
            "color is a value for each node, in a pandas.Series by their ids, or in an array or a "
            f"list in the order of run.ids; not {kind_of(color)}."
        )
    nodes, values = embedding.graph.nodes, np.asarray(color)
    if values.shape != (nodes,):
        shown = f"{len(color):,} values" if values.ndim == 1 else f"the shape {values.shape}"
        raise ValueError(
            f"color has {shown}, and the run has {nodes:,} nodes: give one value for each, in the "
            "order of run.ids, or a pandas.Series by their ids."
        )
    return values[rows]


def _values_by_name(embedding: Embedding, rows: Any, color: Any) -> Any:
    """Values of a series whose index has the names of the nodes."""
    ids, sides = embedding.ids_at(rows), embedding.sides_at(rows)
    names = ids if sides is None else list(zip(ids, sides, strict=True))
    try:
        values = np.asarray(color.loc[names])
    except KeyError as error:
        missing = next(name for name in names if name not in color.index)
        raise KeyError(
            f"color has no value for {missing!r}: its index has to hold the ids of all nodes. Of "
            "values in the order of run.ids give color.to_numpy()."
        ) from error
    if values.shape != (len(names),):
        raise ValueError("color has more than one value for some nodes: its index has repeats.")
    return values


def _scatter(axes: Any, points: Floats, values: Any) -> None:
    size = float(np.clip(4000 / max(len(points), 1), 4, 40))
    if values is None:
        axes.scatter(*points.T, s=size, color=PALETTE[0], linewidths=0)
        return
    distinct = np.unique(values)
    if values.dtype.kind == "f" and distinct.size > _MOST_LABELS:
        drawn = axes.scatter(*points.T, s=size, c=values, cmap="viridis", linewidths=0)
        axes.figure.colorbar(drawn, ax=axes)
        return
    for number, value in enumerate(distinct):
        chosen = points[values == value]
        color = PALETTE[number % len(PALETTE)]
        axes.scatter(*chosen.T, s=size, color=color, linewidths=0, label=str(value))
    if distinct.size <= _MOST_LABELS:
        axes.legend(frameon=False, fontsize=8)
