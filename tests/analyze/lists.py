"""Neighbour lists of small matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from figrl.analyze.adjacency import Adjacency


def adjacency_of(matrix: Any) -> Adjacency:
    """Neighbour lists of a symmetric sparse matrix of weights, without its diagonal."""
    found = sp.csr_array(matrix, dtype=np.float64)
    found = sp.csr_array(found - sp.diags_array(found.diagonal()))
    found.eliminate_zeros()
    found.sum_duplicates()
    weights = None if (found.data == 1).all() else found.data.astype(np.float32)
    return Adjacency(found.indptr.astype(np.int64), found.indices.astype(np.int32), weights)
