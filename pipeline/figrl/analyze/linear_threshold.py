"""The linear threshold model as a live-edge graph.

A node becomes active once its active neighbours have at least a share of its degree that is drawn
uniformly. That activates any set of nodes with the same probability as if each node listened to a
single neighbour, drawn by weight, and became active after it (Kempe et al. 2003, theorem 4.6; the
weights at a node add up to its degree, so each node listens to one). These choices form trees that
grow out of cycles, and the nodes of a cycle are active together or not at all.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from figrl.analyze.live_edges import UNIT, Forest, Rows, below
from figrl.store.mixing import GOLDEN, mix64


@numba.njit(nogil=True, cache=True)
def draw_threshold_parents(
    starts: npt.NDArray[np.int64],
    neighbours: Rows,
    weights: npt.NDArray[np.float32] | None,
    degrees: npt.NDArray[np.float64],
    key: np.uint64,
    parents: Rows,
) -> None:
    """Draw the neighbour that each node listens to; a node without neighbours is its own parent."""
    for node in range(parents.size):
        entry, count = starts[node], starts[node + 1] - starts[node]
        bits = mix64(key + np.uint64(node + 1) * GOLDEN)
        if count == 0:
            parents[node] = node
            continue
        if weights is None:
            entry += below(bits, count)
        else:
            left = np.float64(bits >> np.uint64(11)) * UNIT * degrees[node]
            while entry < starts[node + 1] - 1 and left >= weights[entry]:
                left -= weights[entry]
                entry += 1
        parents[node] = neighbours[entry]


@numba.njit(nogil=True, cache=True)
def root_cycles(forest: Forest, pending: Rows) -> None:
    """Make a forest of drawn parents: one node of each cycle becomes the root of the others.

    Its size is that of the whole component, and it represents the other nodes of the cycle.
    `pending` is memory for the children of each node that are not counted yet.
    """
    parents, sizes, representatives = forest.parents, forest.sizes, forest.representatives
    nodes = parents.size
    for node in range(nodes):
        sizes[node], representatives[node], pending[node] = 1, node, 0
    for node in range(nodes):
        pending[parents[node]] += 1
    # Leaves are counted first; what is left in the end are the cycles.
    for node in range(nodes):
        at = node
        while pending[at] == 0:
            pending[at] = -1
            sizes[parents[at]] += sizes[at]
            at = parents[at]
            pending[at] -= 1
    for node in range(nodes):
        if pending[node] > 0:
            at = parents[node]
            while at != node:
                sizes[node] += sizes[at]
                onward = parents[at]
                parents[at] = representatives[at] = node
                pending[at] = 0
                at = onward
            parents[node] = node
