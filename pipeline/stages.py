"""The stages of an embedding, and what each of them costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pipeline.costs import (
    PROBES,
    Geometry,
    Source,
    StageCost,
    Tiling,
    Tilings,
    product_cost,
    tall_rows,
)
from pipeline.graph import Graph
from pipeline.recipe import Recipe

_EIGH_FLOPS = 20
"""Times d^3: what the decomposition of a d x d matrix costs, at the rate of the Gram matrix."""

_SUMS = ("blocks", "computed", "seconds", "read_bytes", "written_bytes")

LOOK_EVERY = 3
"""Most products between two looks at how far the columns of a sketch lean towards each other."""

_PLANNED = (
    ("sketch-001", "sketch"),
    ("sketch-", "powers"),
    ("lean", "upright"),
    ("left", "ritz"),
    ("norm", "ritz"),
    ("ritz", "ritz"),
    ("exact", "ritz"),
    ("smooth", "smoothing"),
    ("unit", "smoothing"),
    ("upright", "upright"),
)


def planned_stage(name: str) -> str:
    """Name of the stage of a plan that a stage of a run belongs to."""
    if name.startswith("factor"):
        return "factor-solve" if "combine" in name or name.endswith("solve") else "factor"
    return next((planned for start, planned in _PLANNED if name.startswith(start)), name)


def grouped_stages(stages: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Stages of a run, those of one kind together: how many, and what they took in all."""
    groups: dict[str, dict[str, Any]] = {}
    for stage in stages:
        name = planned_stage(stage["name"])
        group = groups.setdefault(name, dict.fromkeys(_SUMS, 0) | {"peak_bytes": 0, "times": 0})
        group["times"] += 1
        group["peak_bytes"] = max(group["peak_bytes"], stage["peak_bytes"])
        for key in _SUMS:
            group[key] += stage[key]
    return groups


def sketch_columns(recipe: Recipe) -> int:
    """Columns that go through the products: those of the sketch, and the probes."""
    return recipe.sketch_size + (PROBES if recipe.certified else 0)


def sketch_costs(
    graph: Graph, recipe: Recipe, tiling: Tiling, geometry: Geometry
) -> tuple[StageCost, ...]:
    """The products that make the sketch, and what keeps its columns upright."""
    columns, more = sketch_columns(recipe), recipe.products - 1
    source: Source = "packed" if recipe.projection == "sparse-sign" else "made"
    first = product_cost("sketch", graph, columns, tiling, geometry, source=source)
    if not more:
        return (first,)
    powers = product_cost("powers", graph, columns, tiling, geometry, source="stored", times=more)
    powers = _beside(replace(powers, disk=4 * graph.nodes * columns), first)
    upright = _upright_cost(graph, columns, geometry, tiling, math.ceil(more / LOOK_EVERY))
    return first, powers, _beside(upright, powers)


def vectors_costs(
    graph: Graph, recipe: Recipe, geometry: Geometry, tilings: Tilings
) -> tuple[StageCost, ...]:
    """What comes after the factor; the workers gave back what the products left with them."""
    factor, _ = _factor_costs(graph, sketch_columns(recipe), geometry, tilings.sketch)
    chain = [_ritz_cost(graph, recipe, geometry, tilings)] if recipe.certified else []
    chain.append(_vectors_cost(graph, recipe, geometry, tilings))
    if recipe.smoothing:
        chain.append(_smoothing_cost(graph, recipe, tilings.vectors, geometry))
    before = factor
    for place, stage in enumerate(chain):
        before = chain[place] = _beside(stage, before)
    return tuple(chain)


def embed_stages(
    graph: Graph, recipe: Recipe, geometry: Geometry, tilings: Tilings
) -> tuple[StageCost, ...]:
    """All stages of a run."""
    factor = _factor_costs(graph, sketch_columns(recipe), geometry, tilings.sketch)
    return (
        *sketch_costs(graph, recipe, tilings.sketch, geometry),
        *factor,
        *vectors_costs(graph, recipe, geometry, tilings),
    )


def _beside(stage: StageCost, before: StageCost) -> StageCost:
    """A stage in workers that still hold the buffers of the one before it."""
    return replace(
        stage,
        held_shared_bytes=max(before.shared_bytes, before.held_shared_bytes),
        held_task_bytes=max(before.task_bytes, before.held_task_bytes),
    )


def _ritz_product_cost(
    graph: Graph, recipe: Recipe, tiling: Tiling, geometry: Geometry
) -> StageCost:
    columns = recipe.dim + PROBES
    return product_cost("ritz", graph, columns, tiling, geometry, source="stored")


def _smoothing_cost(graph: Graph, recipe: Recipe, tiling: Tiling, geometry: Geometry) -> StageCost:
    """Products, and, where a slice has not all columns, a pass that brings rows to length 1."""
    dim, steps = recipe.dim, recipe.smoothing
    stages = [product_cost("smoothing", graph, dim, tiling, geometry, source="stored", times=steps)]
    if tiling.slice_columns < dim:
        stages += [_transform_cost("unit", graph, (dim, dim), geometry, tiling)] * steps
    return _together("smoothing", stages, 3 * 4 * graph.nodes * dim)


def _upright_cost(
    graph: Graph, columns: int, geometry: Geometry, tiling: Tiling, looks: int
) -> StageCost:
    """Looks at the columns, after half of which, at a guess, they have to be moved."""
    look, solve = _factor_costs(graph, columns, geometry, tiling)
    move = _transform_cost("upright", graph, (columns, columns), geometry, tiling)
    stages = [look, solve] * looks + [move] * math.ceil(looks / 2)
    return _together("upright", stages, move.disk_bytes)


def _together(name: str, stages: list[StageCost], disk: int) -> StageCost:
    work: dict[str, int] = {}
    worker_work: dict[str, int] = {}
    for stage in stages:
        for totals, counts in ((work, stage.work), (worker_work, stage.worker_work)):
            for key, count in counts.items():
                totals[key] = totals.get(key, 0) + count
    return StageCost(
        name=name,
        tasks=sum(stage.tasks for stage in stages),
        read_bytes=sum(stage.read_bytes for stage in stages),
        written_bytes=sum(stage.written_bytes for stage in stages),
        flops=sum(stage.flops for stage in stages),
        shared_bytes=max(stage.shared_bytes for stage in stages),
        task_bytes=max(stage.task_bytes for stage in stages),
        work=work,
        worker_work=worker_work,
        disk=disk,
        rounds=sum(stage.rounds for stage in stages),
        alone=all(stage.alone for stage in stages),
    )


def _transform_cost(
    name: str, graph: Graph, shape: tuple[int, int], geometry: Geometry, tiling: Tiling
) -> StageCost:
    """Rows of a stored matrix times a small one, into a matrix of slices."""
    rows, (wide, narrow) = min(geometry.chunk_rows, graph.nodes), shape
    tall = min(tall_rows(geometry, graph, min(tiling.slice_columns, narrow)), graph.nodes)
    return StageCost(
        name=name,
        tasks=graph.blocks,
        read_bytes=4 * graph.nodes * wide,
        written_bytes=4 * graph.nodes * narrow,
        flops=2 * graph.nodes * wide * narrow,
        shared_bytes=0,
        task_bytes=4 * (3 * rows * wide + 3 * wide * narrow + 3 * tall * narrow),
        work={
            "gemm": 2 * graph.nodes * wide * narrow,
            "copy": _read_copies(graph, wide, tiling) + 4 * graph.nodes * narrow,
            "chunks": _sketch_chunks(graph, wide + narrow, geometry, tiling),
        },
    )


def _factor_costs(
    graph: Graph, columns: int, geometry: Geometry, tiling: Tiling
) -> tuple[StageCost, StageCost]:
    """The d x d factor: a pass over the sketch, and its decomposition in one task."""
    square = 8 * columns * columns
    groups = math.ceil(graph.nodes / geometry.group_rows)
    chunk = min(geometry.chunk_rows, graph.nodes) * columns
    return (
        StageCost(
            name="factor",
            tasks=groups,
            read_bytes=4 * graph.nodes * columns,
            written_bytes=groups * square,
            flops=graph.nodes * columns * columns,
            shared_bytes=0,
            task_bytes=3 * square + 16 * chunk,
            work={
                "gram": graph.nodes * columns * columns,
                "gram_entries": graph.nodes * columns,
                "copy": _read_copies(graph, columns, tiling),
                "chunks": _sketch_chunks(graph, columns, geometry, tiling),
            },
        ),
        StageCost(
            name="factor-solve",
            tasks=1,
            read_bytes=groups * square,
            written_bytes=2 * square,
            flops=_EIGH_FLOPS * columns**3,
            shared_bytes=0,
            task_bytes=6 * square,
            work={"gram": _EIGH_FLOPS * columns**3},
        ),
    )


def _ritz_cost(graph: Graph, recipe: Recipe, geometry: Geometry, tilings: Tilings) -> StageCost:
    """U written, multiplied by L, and both multiplied with each other."""
    columns = recipe.dim + PROBES
    wide = sketch_columns(recipe)
    left = _transform_cost("left", graph, (wide, columns), geometry, tilings.sketch)
    product = _ritz_product_cost(graph, recipe, tilings.vectors, geometry)
    sums, _ = _factor_costs(graph, columns, geometry, tilings.vectors)
    stages = [left, product, sums, sums]
    return _together("ritz", stages, left.written_bytes + product.written_bytes)


def _vectors_cost(graph: Graph, recipe: Recipe, geometry: Geometry, tilings: Tilings) -> StageCost:
    """The vectors from the sketch, or from U; and the basis, where smoothing does not make one."""
    chunk_rows, dim = min(geometry.chunk_rows, graph.nodes), recipe.dim
    columns = sketch_columns(recipe)
    source = dim + PROBES if recipe.certified else columns
    tiling = tilings.vectors if recipe.certified else tilings.sketch
    with_basis = not recipe.smoothing
    stored = 4 * graph.nodes * columns if with_basis and recipe.power_iterations else 0
    made = graph.nodes * columns if with_basis and not recipe.power_iterations else 0
    return StageCost(
        name="vectors",
        tasks=graph.blocks,
        read_bytes=4 * graph.nodes * source + stored,
        written_bytes=4 * graph.nodes * dim * (2 if with_basis else 1),
        flops=2 * graph.nodes * dim * (source + columns * with_basis),
        shared_bytes=0,
        task_bytes=4 * (5 * chunk_rows * columns + 6 * columns * dim + 6 * chunk_rows * dim),
        work={
            "gemm": 2 * graph.nodes * dim * (source + columns * with_basis),
            "regenerate": made,
            "copy": _read_copies(graph, source, tiling) + stored + 8 * graph.nodes * dim,
            "chunks": _sketch_chunks(graph, source, geometry, tiling)
            + 2 * math.ceil(graph.nodes / chunk_rows),
        },
    )


def _read_copies(graph: Graph, columns: int, tiling: Tiling) -> int:
    """Bytes that cores move when a matrix is read: slices are put side by side in memory."""
    return (1 if tiling.slice_columns >= columns else 3) * 4 * graph.nodes * columns


def _sketch_chunks(graph: Graph, columns: int, geometry: Geometry, tiling: Tiling) -> int:
    slices = math.ceil(columns / tiling.slice_columns)
    return slices * math.ceil(graph.nodes / geometry.chunk_rows)
