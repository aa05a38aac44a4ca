"""Singular values and right singular vectors of the sketch: their signs, and what is only noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from figrl.store.arrays import load_zarr, save_zarr

Matrix = npt.NDArray[np.float64]

_NOISE_LIMIT = 4 * float(np.finfo(np.float32).eps)
"""Times sqrt(d) sigma_1: what rounding of the sketch to float32 alone can bring about."""


def above_noise(values: Matrix, columns: int) -> npt.NDArray[np.bool_]:
    """Which singular values, largest first, of a sketch of so many columns are more than noise."""
    return np.asarray(values > _NOISE_LIMIT * np.sqrt(columns) * values[0])


def fix_signs(vectors: Matrix) -> None:
    """Make the entry of largest size in each column positive, so that two runs agree."""
    largest = np.argmax(np.abs(vectors), axis=0)
    vectors *= np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def save_factor(folder: Path, values: Matrix, vectors: Matrix) -> None:
    """Store S and V."""
    save_zarr(folder / "singular_values", values)
    save_zarr(folder / "right_vectors", vectors)


def projector(folder: Path) -> npt.NDArray[np.float32]:
    """``V_k S_k^-1``, d x k; a direction that is only noise becomes a column of zeros."""
    values, vectors = (load_zarr(folder / name) for name in ("singular_values", "right_vectors"))
    kept = values[: vectors.shape[1]]
    inverse = np.divide(
        1.0, kept, out=np.zeros_like(kept), where=above_noise(kept, vectors.shape[0])
    )
    return np.asarray(vectors * inverse, np.float32)
