"""A small graph with planted communities, and how well vectors separate them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from figrl.analyze.adjacency import Adjacency
from figrl.analyze.kmeans import kmeans_in_memory
from figrl.analyze.metrics import agreement
from figrl.study.planted import PlantedGraph
from tests.analyze.lists import adjacency_of

COMMUNITIES = 4
PLANTED = PlantedGraph(nodes=120, communities=COMMUNITIES, edges_per_node=6, new_nodes=20)
TRUTH = PLANTED.community(np.arange(PLANTED.nodes))


def matrix_of(start: int, stop: int) -> sp.csr_array:
    """Edges from some nodes to the first ones, once each."""
    source, target = PLANTED.edges_of(start, stop)
    shape = (stop - start, PLANTED.nodes)
    found = sp.csr_array((np.ones(source.size), (source - start, target)), shape=shape)
    found.data[:] = 1
    return found


def planted_lists() -> Adjacency:
    """Neighbour lists of the planted graph."""
    one_way = matrix_of(0, PLANTED.nodes)
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1
    return adjacency_of(both)


def separation(vectors: np.ndarray, truth: np.ndarray = TRUTH) -> float:
    """NMI of k-means clusters with the communities."""
    labels, _ = kmeans_in_memory(vectors, COMMUNITIES, starts=5)
    return agreement(labels, truth)
