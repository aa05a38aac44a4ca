"""The last dimension of a unit vector: how well linked its node is.

    y = [x, g] / sqrt(1 + g^2)      x: the vector of length 1      g = a sqrt(d / (d + 3 m))

d is the degree of the node and m the mean degree. Most edges lead to nodes with many others, which
a vector that only says where in the graph a node is cannot know: of two nodes that are equally
close, the better linked one becomes the nearer. g is bounded by a, so a hub is no nearer to all
than a node of some ten times the mean degree, and leaves keep nearly all of their length for x. It
needs nothing but a node's own degree, so new nodes get it too.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from figrl.learn.spec import EmbedSpec
from figrl.store.matrix import Floats

_HALFWAY = 3.0
"""Mean degrees at which half of the square of g is reached."""


def add_prominence(
    spec: EmbedSpec, degrees: npt.NDArray[np.float64], mean_degree: float, rows: Floats
) -> None:
    """Set the last entry of rows of length 1, in place; a row of zeros stays one."""
    if spec.prominence:
        shares = degrees / np.maximum(degrees + _HALFWAY * mean_degree, np.finfo(float).tiny)
        _set_last(rows, (spec.prominence * np.sqrt(shares)).astype(np.float32))


@numba.njit(nogil=True, cache=True)
def _set_last(rows: Floats, values: Floats) -> None:
    last = rows.shape[1] - 1
    for i in range(rows.shape[0]):
        # Most rows have a first entry, so this looks at one number.
        if rows[i, :last].any():
            value = np.float64(values[i])
            factor = np.float32(1 / np.sqrt(1 + value * value))
            for c in range(last):
                rows[i, c] *= factor
            rows[i, last] = values[i] * factor
