"""Chunks written without zarr are what zarr would have written, and come back."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from figrl.errors import BadInputError
from figrl.store.arrays import ArraySpec, create_array, open_zarr
from figrl.store.matrix import aligned_empty, open_matrix

LARGE = (512, 520)
"""A chunk of over a megabyte, which does not fill its last page."""


@pytest.fixture
def small(tmp_path):
    create_array(ArraySpec(tmp_path / "array", (10, 7), (4, 3)))
    return tmp_path / "array"


@pytest.mark.parametrize(
    ("corner", "shape"),
    [
        ((1, 0), (3, 3)),
        ((0, 0), (3, 3)),
        ((0, 1), (4, 2)),
        ((0, 0), (4, 2)),
        ((8, 0), (1, 3)),
        ((4, 3), (4, 1)),
    ],
)
def test_a_tile_that_would_race_with_its_neighbour_is_refused(small, corner, shape):
    with pytest.raises(AssertionError, match="does not cover chunks"):
        open_matrix(small).write(corner, np.ones(shape, np.float32))
    assert not (small / "c").exists()


def test_zarr_reads_the_tiles_that_were_written(small):
    expected = np.zeros((10, 7), np.float32)
    tiles = open_matrix(small)
    tiles.write((0, 0), expected)
    for corner, shape in (((0, 0), (4, 3)), ((4, 3), (4, 3)), ((8, 6), (2, 1)), ((4, 6), (6, 1))):
        value = np.full(shape, 1.0 + sum(corner), np.float32)
        tiles.write(corner, value)
        expected[corner[0] : corner[0] + shape[0], corner[1] : corner[1] + shape[1]] = value
    np.testing.assert_array_equal(zarr.open_array(str(small))[...], expected)
    np.testing.assert_array_equal(open_zarr(small)[...], expected)


@given(
    rows=st.integers(1, 1100),
    columns=st.integers(1, 1100),
    aligned=st.booleans(),
    by_zarr=st.booleans(),
    direct=st.booleans(),
)
def test_large_tiles_come_back(tmp_path_factory, rows, columns, aligned, by_zarr, direct):
    with patch("figrl.store.matrix._CACHED_BYTES", 0 if direct else 1 << 40):
        check_large_tiles(tmp_path_factory, rows, columns, aligned=aligned, by_zarr=by_zarr)


def check_large_tiles(tmp_path_factory, rows, columns, *, aligned, by_zarr):
    path = tmp_path_factory.mktemp("tiles") / "array"
    create_array(ArraySpec(path, (rows, columns), LARGE))
    values = np.random.default_rng(rows).standard_normal((rows, columns), np.float32)
    if aligned:
        memory = aligned_empty(values.nbytes).view(np.float32).reshape(values.shape)
        memory[:] = values
        values = memory
    if by_zarr:
        zarr.open_array(str(path))[...] = values
    else:
        open_matrix(path).write((0, 0), values)
    np.testing.assert_array_equal(zarr.open_array(str(path))[...], values)
    tiles = open_matrix(path)
    np.testing.assert_array_equal(tiles.read((0, 0), np.empty_like(values)), values)
    for corner in ((512, 0), (0, 520), (512, 520), (256, 0), (768, 520), (1, 0)):
        if corner[0] < rows and corner[1] < columns:
            part = values[corner[0] :, corner[1] :]
            np.testing.assert_array_equal(tiles.read(corner, np.empty_like(part)), part)


def test_what_is_missing_or_cut_off_is_an_error(small):
    tiles = open_matrix(small)
    tiles.write((0, 0), np.ones((4, 7), np.float32))
    chunk = small / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(BadInputError, match="0/1 has 51 bytes where 52 belong"):
        tiles.read((0, 0), np.empty((4, 7), np.float32))
    chunk.unlink()
    with pytest.raises(BadInputError, match="0/1 is missing"):
        tiles.read((0, 0), np.empty((4, 7), np.float32))
    with pytest.raises(AssertionError, match="begins at column 1"):
        tiles.read((0, 1), np.empty((4, 6), np.float32))


def test_other_arrays_are_refused(tmp_path):
    create_array(ArraySpec(tmp_path / "wide", (4, 4), (2, 2), "float64"))
    with pytest.raises(AssertionError, match="plain float32"):
        open_matrix(tmp_path / "wide")
