"""The largest eigenpairs of a symmetric matrix that is known by its products with blocks.

Block Lanczos with full orthogonalisation and thick restarts: the matrix is projected onto a growing
orthonormal basis V, ``H = V^t G V``, each block of which is the last one multiplied by G, less its
part in V. Of a basis that is full, the best Ritz vectors are kept. The residual of a Ritz vector
follows from H and the part that is left, without another product; it bounds the error of its value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.linalg

Matrix = npt.NDArray[np.float64]

_BLOCKS = 25
"""Blocks of half as many columns as pairs are wanted: with so many, sketches need few restarts."""

_STEPS_PER_LOOK = 4
"""Blocks between two looks at the residuals: a decomposition of H costs as much as a product."""

_MAX_PRODUCTS = 100 * _STEPS_PER_LOOK


def basis_columns(size: int, count: int) -> int:
    """Most columns of the basis, for `count` pairs of a matrix of this size."""
    return min(_BLOCKS * _block_columns(count), size)


def working_bytes(size: int, count: int) -> int:
    """Bytes that are held at a time, besides the matrix."""
    columns, block = basis_columns(size, count), _block_columns(count)
    blocks = 4 * size * (block + count)
    return 8 * (size * columns + 4 * columns**2 + blocks)


def _block_columns(count: int) -> int:
    return max(-(-count // 2), 8)


def largest_eigenpairs(
    multiply: Callable[[Matrix], Matrix], size: int, count: int, *, tolerance: float
) -> tuple[Matrix, Matrix, float]:
    """Eigenvalues, largest first, their vectors, and the largest residual.

    Residuals are relative to the largest eigenvalue. It ends when all are within the `tolerance`,
    or after very many products.
    """
    block, room = _block_columns(count), basis_columns(size, count)
    if room < 2 * count + 3 * block:
        raise AssertionError(f"{count} pairs are too many for a matrix of size {size}")
    basis, projected = np.empty((size, room), order="F"), np.zeros((room, room))
    held = 0
    latest = np.linalg.qr(np.random.default_rng(0).standard_normal((size, block)))[0]
    for product in range(1, _MAX_PRODUCTS + 1):
        basis[:, held : held + block] = latest
        held += block
        known = basis[:, :held]
        latest, inside, left = _orthogonalise(multiply(latest), known)
        projected[:held, held - block : held] = inside
        projected[held - block : held, :held] = inside.T
        is_full = held + block > room
        if not is_full and (held < count or product % _STEPS_PER_LOOK):
            continue
        values, vectors = _largest(projected[:held, :held], count + block)
        residual = np.linalg.norm(left @ vectors[-block:, :count], axis=0).max() / values[0]
        if residual <= tolerance or product == _MAX_PRODUCTS:
            break
        if is_full:
            held = count + block
            basis[:, :held] = known @ vectors
            projected[:held, :held] = np.diag(values)
    return values[:count], known @ vectors[:, :count], float(residual)


def _orthogonalise(block: Matrix, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Split ``block = basis inside + rest left``, all of it orthonormal; rest, inside and left."""
    inside = basis.T @ block
    block = block - basis @ inside
    more = basis.T @ block
    rest, left = np.linalg.qr(block - basis @ more)
    # Columns that were in the basis but for rounding are replaced by directions outside of it.
    rest = np.linalg.qr(rest - basis @ (basis.T @ rest))[0]
    return rest, inside + more, left


def _largest(matrix: Matrix, count: int) -> tuple[Matrix, Matrix]:
    size = len(matrix)
    values, vectors = scipy.linalg.eigh(
        matrix, subset_by_index=(max(size - count, 0), size - 1), check_finite=False
    )
    return values[::-1], vectors[:, ::-1]
