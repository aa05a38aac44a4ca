"""The stored graph to an embedding: the stages of a run, one after the other."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.arrays import ensure_zarr, open_zarr
from pipeline.blocks import Stats
from pipeline.costs import Tiling, tall_rows
from pipeline.files import digest, read_json, remove, write_json
from pipeline.learn.buffers import release_buffers
from pipeline.learn.factor import factor_sketch
from pipeline.learn.sketch import SketchTask, sketch_tile
from pipeline.learn.vectors import VectorsTask, vectors_block
from pipeline.plan import EmbedPlan
from pipeline.run import Block, Job
from pipeline.store import FORMAT, write_manifest

_VERSIONS = ("figrl", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def run_name(plan: EmbedPlan) -> str:
    """Name of a run: a digest of the graph and of all that changes the result."""
    config = plan.config.significant() | {"sketch_size": plan.sketch_size, "epsilon": None}
    return digest({"format": FORMAT, "graph": plan.graph.version, "config": config})


def run_stages(job: Job, plan: EmbedPlan, folder: Path) -> dict[str, Any]:
    """Do what is missing of a run in its folder, and write its manifest.

    Returns
    -------
    dict
        The manifest.
    """
    started = time.time()
    plan = plan.cut_like(_agreed_tiling(folder, plan))
    # A job that failed may have left its own in the workers.
    job.client.run(release_buffers, on_error="ignore")
    sketch_task = SketchTask(
        graph=plan.graph,
        operand=None,
        out=folder / "sketch",
        sketch_size=plan.sketch_size,
        slice_columns=plan.tiling.slice_columns,
        operand_rows=plan.tiling.operand_rows,
        seed=plan.config.seed,
        kept_bytes=plan.kept_bytes,
    )
    _make_arrays(plan, folder)
    tiles = [
        Block(f"{s:04d}-{b:06d}", (sketch_task, b, s))
        for s in range(sketch_task.slices)
        for b in range(plan.graph.blocks)
    ]
    job.run("sketch", sketch_tile, tiles)
    job.client.run(release_buffers, on_error="ignore")
    solved = factor_sketch(
        job,
        folder / "sketch",
        folder / "work" / "factor",
        folder / "factor",
        geometry=plan.geometry,
        dim=plan.config.dim,
    )
    if solved["rank"] < plan.config.dim:
        job.monitor.note(
            f"Only {solved['rank']} of {plan.config.dim} dimensions carry information: the graph "
            "has no more independent directions. The others are zero."
        )
    vectors_task = VectorsTask(
        graph=plan.graph,
        run=folder,
        sketch_size=plan.sketch_size,
        chunk_rows=plan.geometry.chunk_rows,
        seed=plan.config.seed,
    )
    blocks = [Block(f"{b:06d}", (vectors_task, b)) for b in range(plan.graph.blocks)]
    job.run("vectors", vectors_block, blocks)
    job.client.run(release_buffers, on_error="ignore")
    manifest = _manifest(job, plan, folder, solved, started)
    write_manifest(folder, manifest)
    remove(folder / "work")
    return manifest


def _agreed_tiling(folder: Path, plan: EmbedPlan) -> Tiling:
    """Tiling of the sketch that was begun, if it still fits the memory; else begin it again."""
    path = folder / "work" / "tiling.json"
    if path.exists():
        begun = Tiling(**read_json(path))
        if plan.fits(begun):
            return begun
        remove(folder)
    write_json(path, vars(plan.tiling))
    return plan.tiling


def _make_arrays(plan: EmbedPlan, folder: Path) -> None:
    nodes, dim, rows = plan.graph.nodes, plan.config.dim, plan.geometry.chunk_rows
    columns = min(plan.tiling.slice_columns, plan.sketch_size)
    # Narrow slices get taller chunks, or there would be a great many small files.
    height = tall_rows(plan.geometry, plan.graph, columns)
    shape, chunks = (nodes, plan.sketch_size), (height, columns)
    ensure_zarr(folder / "sketch", shape=shape, chunks=chunks, dtype=np.float32)
    for name in ("embedding", "basis"):
        ensure_zarr(folder / name, shape=(nodes, dim), chunks=(rows, dim), dtype=np.float32)


def _manifest(
    job: Job, plan: EmbedPlan, folder: Path, solved: Stats, started: float
) -> dict[str, Any]:
    values = np.asarray(open_zarr(folder / "factor" / "singular_values")[...])
    return {
        "run": folder.name,
        "graph": plan.graph.version,
        "config": plan.config.significant(),
        "nodes": plan.graph.nodes,
        "edges": plan.graph.edges,
        "dim": plan.config.dim,
        "sketch_size": plan.sketch_size,
        "seed": plan.config.seed,
        "rank": solved["rank"],
        "factor_method": solved["method"],
        "singular_values": [float(value) for value in values[: plan.config.dim]],
        "plan": plan.describe(),
        "created": round(started, 3),
        "seconds": round(time.time() - started, 3),
        "versions": {name: version(name) for name in _VERSIONS},
        **job.describe(),
    }
