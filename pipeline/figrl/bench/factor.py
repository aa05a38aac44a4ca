"""Factor: a stored sketch to its left singular vectors, against Dask's SVD."""

from __future__ import annotations

from pathlib import Path

import distributed
import numpy as np
import zarr

from figrl.bench.harness import run_both, scratch
from figrl.bench.results import Comparison
from figrl.engine.cluster import connect
from figrl.engine.cluster_file import ClusterConfig
from figrl.engine.runner import ClusterRunner
from figrl.engine.stage import Stage, Stats, numbered
from figrl.learn.factor import factor_stages
from figrl.learn.plan import imagined_graph
from figrl.learn.rows import chunks_of_rows
from figrl.learn.setup import Geometry, Setup, Tiling
from figrl.learn.singular import projector
from figrl.learn.spec import EmbedOptions, make_spec
from figrl.store.arrays import ArraySpec, create_array, open_zarr, write_rows
from figrl.store.matrix import open_matrix

_CHUNK_ROWS = 4096
_GEOMETRY = Geometry(chunk_rows=_CHUNK_ROWS, group_rows=8 * _CHUNK_ROWS)


def bench_factor(*, rows: int = 200_000, columns: int = 1000, dim: int = 100) -> list[Comparison]:
    """Compare on a sketch of noise over a few strong directions."""
    with scratch() as folder:
        _make_sketch(Path(folder) / "sketch", rows, columns, dim)
        measured = run_both(ours, dask_svd, folder=folder, dim=dim)
        _check(folder)
    what = f"factor: Zarr sketch {rows:,} x {columns:,}, k = {dim}, to U in Zarr"
    other = "dask.array.linalg.svd"
    return [Comparison.of(what, other, measured, wanted=10, wanted_memory=2)]


def _make_sketch(path: Path, rows: int, columns: int, dim: int) -> None:
    create_array(ArraySpec(path, (rows, columns), (_CHUNK_ROWS, columns)))
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
        job = ClusterRunner(client, root / "marks")
        rows, columns = open_matrix(root / "sketch").shape
        tiling = Tiling(columns, rows)
        options = EmbedOptions(preset="paper", dim=dim, sketch_size=columns)
        spec = make_spec(options, nodes=rows, mean_degree=1.0)
        graph = imagined_graph(rows, rows)
        setup = Setup(graph, spec, _GEOMETRY, tiling, tiling, 1, root)
        job.run(factor_stages(setup))
        create_array(ArraySpec(root / "ours", (rows, dim), (_CHUNK_ROWS, dim)))
        blocks = numbered(root, -(-rows // (4 * _CHUNK_ROWS)))
        job.run_stage(Stage("project", _project, blocks))


def _project(root: Path, block: int) -> Stats:
    sketch, out = open_matrix(root / "sketch"), open_matrix(root / "ours")
    project, start = projector(root / "factor"), block * 4 * _CHUNK_ROWS
    stop = min(start + 4 * _CHUNK_ROWS, sketch.shape[0])
    for number, rows in enumerate(chunks_of_rows(sketch, start, stop, _CHUNK_ROWS)):
        out.write((start + number * _CHUNK_ROWS, 0), rows @ project)
    return {}


def dask_svd(folder: str, dim: int) -> None:
    """Factor with ``dask.array.linalg.svd``, on a cluster of the same size."""
    import dask.array as da

    root = Path(folder)
    with connect(ClusterConfig()) as client, distributed.Client.as_current(client):
        sketch = da.from_zarr(str(root / "sketch"))
        left, _, _ = da.linalg.svd(sketch)
        left[:, :dim].rechunk((_CHUNK_ROWS, dim)).to_zarr(str(root / "theirs"))


def _check(folder: str) -> None:
    """Check that both span the same space."""
    paths = (Path(folder) / name for name in ("ours", "theirs"))
    first, second = (np.asarray(zarr.open_array(str(path))[...], np.float64) for path in paths)
    overlap = np.linalg.svd(first.T @ second, compute_uv=False)
    if overlap.min() < 0.999:
        raise AssertionError(f"the two factorisations differ: {overlap.min()}")
