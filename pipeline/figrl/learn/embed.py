"""The stored graph to an embedding: the stages of a run, one after the other."""

from __future__ import annotations

import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from figrl.engine.stage import Stage, Stages, Stats
from figrl.learn.factor import factor_stages
from figrl.learn.ritz import ritz_stages
from figrl.learn.setup import Setup
from figrl.learn.sketch import sketch_stages
from figrl.learn.smooth import local_weight, smooth_stages, smoothed_array
from figrl.learn.vectors import vectors_stage
from figrl.store.arrays import load_zarr
from figrl.store.files import digest
from figrl.store.layout import FORMAT

_VERSIONS = ("figrl", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


_METHOD = 3
"""Part of a run's name; raised when the same spec gives other vectors."""


def run_name(setup: Setup, reference: str | None = None) -> str:
    """Name of a run: a digest of the graph and of all that changes the result."""
    graph, spec = setup.graph.version, asdict(setup.spec)
    identity = {"format": FORMAT, "method": _METHOD, "graph": graph, "spec": spec}
    return digest(identity | ({"reference": reference} if reference else {}))


def embed_stages(setup: Setup) -> Stages[Stats]:
    """Stages of a run: products, factor, vectors, smoothing.

    Returns ``rank``, ``factor_method``, ``certificate``, ``smoothing_steps``, and with smoothing
    ``local_weight``, that of the vectors before it.
    """
    yield from sketch_stages(setup)
    facts = yield from _factor_stages(setup)
    steps, certificate = setup.spec.smoothing, facts["certificate"]
    share = 0.0 if certificate is None else certificate["share_captured"]
    yield from vectors_stages(setup, share)
    smoothed = {"local_weight": round(local_weight(share), 6)} if steps else {}
    return {**facts, "smoothing_steps": steps, **smoothed}


def _factor_stages(setup: Setup) -> Stages[Stats]:
    if setup.spec.is_paper:
        solved = yield from factor_stages(setup)
        return {"rank": solved["rank"], "factor_method": solved["method"], "certificate": None}
    found = yield from ritz_stages(setup)
    return {**found, "factor_method": "ritz"}


def sketch_readers(setup: Setup) -> list[Stage]:
    """Stages that read the sketch: the first of the factor, and the vectors."""
    return [next(_factor_stages(setup)), next(vectors_stages(setup))]


def vectors_stages(setup: Setup, share: float = 0.0) -> Stages[None]:
    """What comes after the factor, whose dimensions hold a share of the graph's matrix."""
    if setup.spec.smoothing == 0:
        yield vectors_stage(setup, setup.rows_array(setup.folder / "embedding"), with_basis=True)
        return
    yield vectors_stage(setup, smoothed_array(setup, 0), with_basis=False)
    yield from smooth_stages(setup, share)


def describe_run(setup: Setup, facts: Stats, started: float) -> dict[str, Any]:
    """What the manifest says of a run, besides its stages."""
    spec, graph = setup.spec, setup.graph
    return {
        "run": setup.folder.name,
        "graph": graph.version,
        "spec": asdict(spec),
        "nodes": graph.nodes,
        "edges": graph.edges,
        "dim": spec.dim,
        "sketch_size": spec.sketch_size,
        "seed": spec.seed,
        **facts,
        "singular_values": _singular_values(setup, facts),
        "created": round(started, 3),
        "seconds": round(time.time() - started, 3),
        "versions": {name: version(name) for name in _VERSIONS},
    }


def _singular_values(setup: Setup, facts: Stats) -> list[float]:
    if facts["certificate"] is not None:
        return [abs(value) for value in facts["certificate"]["eigenvalues"]]
    values = load_zarr(setup.folder / "factor" / "singular_values")
    return [float(value) for value in values[: setup.spec.dim]]
