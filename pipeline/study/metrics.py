"""How good a clustering of a graph is, over the stored graph, a block at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from pipeline.errors import BadInputError, ConfigError
from pipeline.files import load_array
from pipeline.graph import Graph
from pipeline.run import map_once

Labels = npt.NDArray[np.int64]
LabelsOrPath = npt.NDArray[np.integer[Any]] | str | os.PathLike[str]
"""Cluster of each node, by row, from 0 on; or the .npy file that holds them."""

_MOST_TASKS = 256
"""Tasks of one pass over the graph: each returns a number for every cluster."""


def modularity(
    graph: Graph, labels: LabelsOrPath, *, client: distributed.Client | None = None
) -> float:
    """Newman's modularity: weight inside clusters, less what chance would put there.

    Parameters
    ----------
    graph : Graph
    labels : int array, shape (nodes,), or path
        Cluster of each node, by row, from 0 on; or an ``.npy`` file of them.
    client : distributed.Client, optional
        Cluster whose workers go through the blocks, for which `labels` has to be a path that they
        can read; by default this process does.
    """
    check_labels(graph, labels, client)
    step = -(-graph.blocks // _MOST_TASKS)
    items = [
        (graph, labels, first, min(first + step, graph.blocks))
        for first in range(0, graph.blocks, step)
    ]
    sums = (
        [modularity_sums(*item) for item in items]
        if client is None
        else map_once(client, modularity_sums, items)
    )
    volumes = np.zeros(max(found.size for _, found in sums))
    for _, found in sums:
        volumes[: found.size] += found
    total = volumes.sum()
    if total == 0:
        return 0.0
    inside = sum(weight for weight, _ in sums)
    return float(inside / total - ((volumes / total) ** 2).sum())


def modularity_sums(
    graph: Graph, labels: LabelsOrPath, first: int, stop: int
) -> tuple[float, npt.NDArray[np.float64]]:
    """What row blocks from `first` up to `stop` add to the modularity.

    Returns
    -------
    inside : float
        Weight of entries whose two ends are in one cluster.
    volumes : float64 array, shape (clusters up to the last one met,)
        Weight of entries that begin in each cluster.
    """
    clusters = open_labels(labels)
    volumes: npt.NDArray[np.float64] = np.zeros(1)
    inside = 0.0
    for block in range(first, stop):
        for rows, columns, weights in graph.edge_runs(block):
            weight = np.ones(rows.size) if weights is None else weights.astype(np.float64)
            own = clusters[rows]
            inside += float(weight[own == clusters[columns]].sum())
            found = np.asarray(np.bincount(own, weight, minlength=volumes.size), np.float64)
            found[: volumes.size] += volumes
            volumes = found
    return inside, volumes


def open_labels(labels: LabelsOrPath) -> npt.NDArray[np.integer[Any]]:
    """Labels as they were given, or mapped from their file without being read."""
    if isinstance(labels, np.ndarray):
        return labels
    return load_array(Path(labels), mapped=True)


def check_labels(graph: Graph, labels: LabelsOrPath, client: distributed.Client | None) -> None:
    """Refuse labels that are not those of the graph's nodes, or that workers cannot read."""
    if client is not None and isinstance(labels, np.ndarray):
        raise ConfigError(
            "Labels were given as an array, which is too large to send to workers. Save it with "
            "numpy.save in a folder that they share, and give the path."
        )
    found = open_labels(labels)
    if found.shape != (graph.nodes,) or not np.issubdtype(found.dtype, np.integer):
        raise BadInputError(
            f"The labels have shape {found.shape} and type {found.dtype}; the graph "
            f"{graph.version} needs {graph.nodes:,} integers, one for each node, in order of rows."
        )
    least = int(found.min(initial=0))
    if least < 0:
        raise BadInputError(f"The labels hold {least}; clusters are numbered from 0 on.")
