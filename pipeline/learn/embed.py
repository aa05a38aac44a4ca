"""The stored graph to an embedding: the stages of a run, one after the other."""

from __future__ import annotations

import math
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.arrays import ensure_zarr, load_zarr
from pipeline.blocks import Stats
from pipeline.costs import Tiling, Tilings
from pipeline.files import digest, read_json, remove, write_json
from pipeline.job import Block, Job
from pipeline.learn.buffers import release_buffers
from pipeline.learn.certify import (
    EXACT_NODES,
    RitzTask,
    certificate_sentence,
    exact_cost,
    norm_block,
    solve_ritz,
    sum_group,
)
from pipeline.learn.factor import TRUSTED, factor_sketch
from pipeline.learn.powers import (
    Powers,
    TransformTask,
    make_matrix,
    run_product,
    run_products,
    transform_block,
)
from pipeline.learn.smooth import Steps, run_smoothing
from pipeline.learn.vectors import VectorsTask, vectors_block
from pipeline.plan import EmbedPlan
from pipeline.store import FORMAT

_VERSIONS = ("figrl", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def run_name(plan: EmbedPlan, reference: str | None = None) -> str:
    """Name of a run: a digest of the graph and of all that changes the result."""
    recipe = plan.recipe.describe()
    identity = {"format": FORMAT, "graph": plan.graph.version, "recipe": recipe}
    return digest(identity | ({"reference": reference} if reference else {}))


def run_stages(job: Job, plan: EmbedPlan, folder: Path) -> dict[str, Any]:
    """Do what is missing of a run in its folder.

    Returns
    -------
    dict
        What its manifest will say.
    """
    started = time.time()
    plan = plan.cut_like(_agreed_tilings(folder, plan))
    # A job that failed may have left its own in the workers.
    job.everywhere(release_buffers)
    powers = run_products(job, plan, folder)
    job.everywhere(release_buffers)
    solved = factor_sketch(
        job,
        powers.last,
        folder / "work" / "factor",
        folder / "factor",
        shape=(plan.graph.nodes, plan.recipe.sketch_size),
        geometry=plan.geometry,
        dim=plan.recipe.dim,
        trusted={m: share for m, share in TRUSTED.items() if share <= powers.share},
    )
    if solved["rank"] < plan.recipe.dim:
        job.monitor.note(
            f"Only {solved['rank']} of {plan.recipe.dim} dimensions carry information: the graph "
            "has no more directions that stand clear of rounding. The others are zero."
        )
    certificate = _ritz_step(job, plan, folder, powers) if plan.recipe.certified else None
    steps = Steps(plan, folder)
    _write_vectors(job, plan, folder, powers, steps)
    run_smoothing(job, steps)
    job.everywhere(release_buffers)
    return _manifest(job, plan, folder, solved, certificate, started)


def _agreed_tilings(folder: Path, plan: EmbedPlan) -> Tilings:
    """Tilings of the run that was begun, if they still fit the memory; else begin it again."""
    path = folder / "work" / "tiling.json"
    if path.exists():
        begun = Tilings(**{name: Tiling(**value) for name, value in read_json(path).items()})
        if plan.fits(begun):
            return begun
        remove(folder)
    write_json(path, {name: vars(tiling) for name, tiling in vars(plan.tilings).items()})
    return plan.tilings


def _ritz_step(job: Job, plan: EmbedPlan, folder: Path, powers: Powers) -> dict[str, Any]:
    """Write U, multiply it by L once more, and rotate it; the certificate."""
    recipe, graph, work = plan.recipe, plan.graph, folder / "work"
    columns = recipe.dim + plan.probes
    make_matrix(plan, work / "left", columns, plan.narrow.slice_columns)
    rows = plan.geometry.chunk_rows
    transform = TransformTask(
        graph, powers.last, work / "left", folder / "factor", rows, recipe.sketch_size
    )
    blocks = range(graph.blocks)
    job.run("left", transform_block, [Block(f"{b:06d}", (transform, b)) for b in blocks])
    make_matrix(plan, work / "ritz-product", columns, plan.narrow.slice_columns)
    run_product(job, plan, "ritz-product", work / "left", work / "ritz-product", columns=columns)
    task = RitzTask(
        graph=graph,
        left=work / "left",
        product=work / "ritz-product",
        work=work / "ritz",
        folder=folder / "ritz",
        chunk_rows=rows,
        group_rows=plan.geometry.group_rows,
        operand_rows=plan.norm_rows,
        regularization=recipe.regularization,
        sketch_columns=plan.columns,
    )
    norm = job.run("norm", norm_block, [Block(f"{b:06d}", (task, b)) for b in blocks])
    square_norm = math.fsum(norm.stats[key]["square"] for key in sorted(norm.stats))
    groups = math.ceil(graph.nodes / task.group_rows)
    job.run("ritz", sum_group, [Block(f"{g:06d}", (task, g)) for g in range(groups)])
    power = recipe.power_iterations + 1
    last = Block("all", (task, groups, square_norm, recipe.dim, power))
    found = job.run("ritz-solve", solve_ritz, [last]).stats["all"]
    certificate = {**found, "share_captured": _share(found), "exact_cost": None}
    if graph.nodes <= EXACT_NODES:
        small = Block("all", (task, found["captured"], recipe.dim))
        certificate |= job.run("exact", exact_cost, [small]).stats["all"]
    return {**certificate, "meaning": certificate_sentence(certificate, recipe.dim)}


def _share(found: Stats) -> float:
    return found["captured"] / found["square_norm"] if found["square_norm"] else 1.0


def _write_vectors(job: Job, plan: EmbedPlan, folder: Path, powers: Powers, steps: Steps) -> None:
    """Write the vectors, or what smoothing begins with, and the basis if it does not make one."""
    basis = None
    if not steps.count:
        basis = folder / "basis"
        shape, chunks = (plan.graph.nodes, plan.recipe.dim), plan.geometry.chunk_rows
        ensure_zarr(basis, shape=shape, chunks=(chunks, plan.recipe.dim), dtype=np.float32)
    task = VectorsTask(
        graph=plan.graph,
        recipe=plan.recipe,
        columns=plan.columns,
        chunk_rows=plan.geometry.chunk_rows,
        factor=folder / "factor",
        source=folder / "work" / "left" if plan.recipe.certified else powers.last,
        before=powers.before,
        ritz=folder / "ritz" if plan.recipe.certified else None,
        vectors=steps.outputs(0),
        basis=basis,
    )
    blocks = [Block(f"{b:06d}", (task, b)) for b in range(plan.graph.blocks)]
    job.run("vectors", vectors_block, blocks)
    remove(folder / "work" / "left")
    remove(folder / "work" / "ritz-product")
    if powers.before is not None:
        remove(powers.before)


def _manifest(
    job: Job,
    plan: EmbedPlan,
    folder: Path,
    solved: Stats,
    certificate: dict[str, Any] | None,
    started: float,
) -> dict[str, Any]:
    values = load_zarr(folder / "factor" / "singular_values")
    return {
        "run": folder.name,
        "graph": plan.graph.version,
        "config": plan.config.significant(),
        "recipe": plan.recipe.describe(),
        "nodes": plan.graph.nodes,
        "edges": plan.graph.edges,
        "dim": plan.recipe.dim,
        "sketch_size": plan.recipe.sketch_size,
        "seed": plan.recipe.seed,
        "rank": solved["rank"],
        "factor_method": solved["method"],
        "singular_values": [float(value) for value in values[: plan.recipe.dim]],
        "certificate": certificate,
        "plan": plan.describe(),
        "created": round(started, 3),
        "seconds": round(time.time() - started, 3),
        "versions": {name: version(name) for name in _VERSIONS},
        **job.describe(),
    }
