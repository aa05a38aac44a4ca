"""Metrics of a clustering, computed out of core over the stored graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import numpy.typing as npt

from figrl.engine.runner import map_on_workers
from figrl.errors import BadInputError, ConfigError
from figrl.store.files import load_array
from figrl.store.graph import Graph

Labels = npt.NDArray[np.int64]
LabelsOrPath = npt.NDArray[np.integer[Any]] | str | os.PathLike[str]
"""Cluster of each node, by row, from 0 on; or the .npy file that holds them."""

_MOST_TASKS = 256
"""Tasks of a pass over the graph: each returns a number for every cluster."""


def modularity(
    graph: Graph, labels: LabelsOrPath, *, client: distributed.Client | None = None
) -> float:
    """Newman's modularity: share of the weight inside clusters, minus its expectation.

    Workers compute it if a client is given, and then `labels` is a path that they can read.
    """
    step = -(-graph.blocks // _MOST_TASKS)
    groups = [range(graph.blocks)[i : i + step] for i in range(0, graph.blocks, step)]
    sums = map_groups(modularity_sums, graph, labels, [(group,) for group in groups], client)
    volumes = np.zeros(max(found.size for _, found in sums))
    for _, found in sums:
        volumes[: found.size] += found
    total = volumes.sum()
    if total == 0:
        return 0.0
    inside = sum(weight for weight, _ in sums)
    return float(inside / total - ((volumes / total) ** 2).sum())


def modularity_sums(
    graph: Graph, labels: LabelsOrPath, blocks: range
) -> tuple[float, npt.NDArray[np.float64]]:
    """Weight of entries with both ends in one cluster; and with the row in each, up to the last."""
    clusters = open_labels(labels)
    volumes: npt.NDArray[np.float64] = np.zeros(1)
    inside = 0.0
    for block in blocks:
        for rows, columns, weights in graph.row_groups(block):
            weight = np.ones(rows.size) if weights is None else weights.astype(np.float64)
            own = clusters[rows]
            inside += float(weight[own == clusters[columns]].sum())
            found = np.asarray(np.bincount(own, weight, minlength=volumes.size), np.float64)
            found[: volumes.size] += volumes
            volumes = found
    return inside, volumes


def open_labels(labels: LabelsOrPath) -> npt.NDArray[np.integer[Any]]:
    """Labels as given, or memory-mapped from their file."""
    if isinstance(labels, np.ndarray):
        return labels
    return load_array(Path(labels), mapped=True, checked=False)


def map_groups(
    function: Callable[..., Any],
    graph: Graph,
    labels: LabelsOrPath,
    items: Sequence[tuple[Any, ...]],
    client: distributed.Client | None,
) -> list[Any]:
    """Call ``function(graph, labels, *item)`` for each item, here or on workers.

    Refuses labels that do not fit the graph, or that workers cannot read.
    """
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
    calls = [(graph, labels, *item) for item in items]
    return map_on_workers(client, function, calls) if client else [function(*c) for c in calls]


def agreement(labels: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Normalised mutual information of two partitions of the same nodes: 0 to 1."""
    # scikit-learn takes a second and 100 MB to load.
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(truth, np.asarray(labels)))
