"""Factor: a stored sketch to its left singular vectors, against Dask's own SVD."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from pipeline.arrays import ensure_zarr, open_zarr, write_rows
from pipeline.blocks import Stats
from pipeline.cluster import ClusterConfig, connect
from pipeline.costs import Geometry
from pipeline.job import Block
from pipeline.learn.factor import factor_sketch, projector
from pipeline.learn.rows import chunks_of_rows
from pipeline.run import ClusterJob
from pipeline.study.bench.lines import Line
from pipeline.study.bench.process import run_apart
from pipeline.tiles import open_tiles

_CHUNK_ROWS = 4096
_GEOMETRY = Geometry(chunk_rows=_CHUNK_ROWS, group_rows=8 * _CHUNK_ROWS)


def bench_factor(*, rows: int = 200_000, columns: int = 1000, dim: int = 100) -> list[Line]:
    """Compare on a sketch of noise over a few strong directions."""
    with tempfile.TemporaryDirectory(prefix="figrl-bench-") as folder:
        _make_sketch(Path(folder) / "sketch", rows, columns, dim)
        ours = run_apart(f"{__name__}:ours", folder=folder, dim=dim)
        other = run_apart(f"{__name__}:dask_svd", folder=folder, dim=dim)
        shape = f"{rows:,} x {columns:,}, k = {dim}"
        _check(folder)
    what = f"factor: Zarr sketch {shape}, to U in Zarr"
    return [Line.of(what, "dask.array.linalg.svd", ours, other, wanted=10, wanted_memory=2)]


def _make_sketch(path: Path, rows: int, columns: int, dim: int) -> None:
    ensure_zarr(path, shape=(rows, columns), chunks=(_CHUNK_ROWS, columns), dtype=np.float32)
    array, rng = open_zarr(path), np.random.default_rng(0)
    directions = rng.normal(size=(dim, columns)).astype(np.float32) / np.sqrt(columns)
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        block = rng.standard_normal((count, columns), np.float32) * np.float32(0.3)
        block += rng.standard_normal((count, dim), np.float32) @ directions * 3
        write_rows(array, start, block)


def ours(folder: str, dim: int) -> None:
    """Factor and project with figrl, cluster included."""
    root = Path(folder)
    with connect(ClusterConfig()) as client:
        job = ClusterJob(client, root / "marks")
        shape = open_tiles(root / "sketch").shape
        factor_sketch(
            job,
            root / "sketch",
            root / "work",
            root / "factor",
            shape=shape,
            geometry=_GEOMETRY,
            dim=dim,
        )
        rows = shape[0]
        ensure_zarr(root / "ours", shape=(rows, dim), chunks=(_CHUNK_ROWS, dim), dtype=np.float32)
        starts = range(0, rows, 4 * _CHUNK_ROWS)
        job.run("project", _project, [Block(f"{s:09d}", (_Project(root, s),)) for s in starts])


@dataclass(frozen=True)
class _Project:
    root: Path
    start: int


def _project(task: _Project) -> Stats:
    sketch, out = open_tiles(task.root / "sketch"), open_tiles(task.root / "ours")
    project = projector(task.root / "factor")
    stop = min(task.start + 4 * _CHUNK_ROWS, sketch.shape[0])
    for number, rows in enumerate(chunks_of_rows(sketch, task.start, stop, _CHUNK_ROWS)):
        out.write((task.start + number * _CHUNK_ROWS, 0), rows @ project)
    return {}


def dask_svd(folder: str, dim: int) -> None:
    """Do the same with ``dask.array.linalg.svd``, on the same cluster."""
    import dask.array as da

    root = Path(folder)
    with connect(ClusterConfig()) as client, distributed.Client.as_current(client):
        sketch = da.from_zarr(str(root / "sketch"))
        left, _, _ = da.linalg.svd(sketch)
        left[:, :dim].rechunk((_CHUNK_ROWS, dim)).to_zarr(str(root / "theirs"))


def _check(folder: str) -> None:
    """Both span the same space."""
    first, second = (_columns(Path(folder) / name) for name in ("ours", "theirs"))
    overlap = np.linalg.svd(first.T @ second, compute_uv=False)
    if overlap.min() < 0.999:
        raise AssertionError(f"the two factorisations differ: {overlap.min()}")


def _columns(path: Path) -> Any:
    return np.asarray(open_zarr(path)[...], np.float64)
