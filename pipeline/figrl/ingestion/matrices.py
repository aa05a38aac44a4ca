"""Files that hold one sparse adjacency matrix: MatrixMarket (.mtx) and scipy's .npz.

A matrix is read as a whole by the process that called, like one that is given in memory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from figrl.errors import BadInputError
from figrl.ingestion.frames import Frame
from figrl.ingestion.networks import matrix_frame
from figrl.ingestion.opening import open_bytes
from figrl.ingestion.options import IngestOptions

_HOW = {
    ".mtx": "Write it with scipy.io.mmwrite; a list of pairs without a size in its first line is "
    "read as text, from a file that ends in .txt.",
    ".npz": "Write a sparse matrix with scipy.sparse.save_npz.",
}


def is_matrix_file(path: str) -> bool:
    """Whether a path is a file that holds a matrix, by its ending."""
    return Path(path.removesuffix(".gz")).suffix.lower() in _HOW and Path(path).is_file()


def matrix_file_frame(path: str, options: IngestOptions, *, new_nodes: bool) -> Frame:
    """The entries of the matrix of a file; .mtx numbers nodes from 1, .npz from 0."""
    from scipy import io, sparse

    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    try:
        with open_bytes(path) as file:
            found = io.mmread(file) if suffix == ".mtx" else sparse.load_npz(file)
        matrix = sparse.coo_array(found)
    except PermissionError:
        raise
    except Exception as error:
        # Each part of these readers has errors of its own.
        raise BadInputError(
            f"{path}: cannot be read as a sparse matrix: {error}. {_HOW[suffix]}"
        ) from error
    if matrix.ndim != 2 or np.iscomplexobj(matrix):
        raise BadInputError(
            f"{path}: its entries are no weights. Give a real matrix. {_HOW[suffix]}"
        )
    first = 1 if suffix == ".mtx" else 0
    frame = matrix_frame(matrix, options, new_nodes=new_nodes, name=path, first=first)
    note = f"Ids are the numbers of the rows and columns of {path}, from {first}."
    return replace(frame, notes=(*frame.notes, note))
