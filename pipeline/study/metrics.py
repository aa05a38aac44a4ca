"""How good a clustering of a graph is, over the stored graph, a block at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.graph import Graph

Labels = npt.NDArray[np.int64]


def modularity(graph: Graph, labels: Labels) -> float:
    """Newman's modularity: weight inside clusters, less what chance would put there.

    Parameters
    ----------
    graph : Graph
    labels : int64 array, shape (nodes,)
        Cluster of each node, by row, from 0 on.
    """
    volumes = np.zeros(int(labels.max()) + 1)
    inside = 0.0
    for block in range(graph.blocks):
        for rows, columns, weights in graph.edge_runs(block):
            weight = np.ones(rows.size) if weights is None else weights.astype(np.float64)
            own = labels[rows]
            inside += float(weight[own == labels[columns]].sum())
            volumes += np.bincount(own, weight, minlength=volumes.size)
    total = volumes.sum()
    if total == 0:
        return 0.0
    return float(inside / total - ((volumes / total) ** 2).sum())
