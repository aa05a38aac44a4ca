"""The stored graph to an embedding: the stages of a run, one after the other."""

from __future__ import annotations

import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from figrl.engine.stage import Stages, Stats
from figrl.learn.factor import TRUSTED, Factor, factor_stages
from figrl.learn.ritz import ritz_stages
from figrl.learn.setup import Setup
from figrl.learn.sketch import Powers, sketch_stages
from figrl.learn.smooth import Steps, smooth_stages
from figrl.learn.vectors import vectors_stage
from figrl.store.arrays import load_zarr
from figrl.store.files import digest
from figrl.store.layout import FORMAT

_VERSIONS = ("figrl", "numpy", "scipy", "numba", "dask", "zarr", "pyarrow")


def run_name(setup: Setup, reference: str | None = None) -> str:
    """Name of a run: a digest of the graph and of all that changes the result."""
    identity = {"format": FORMAT, "graph": setup.graph.version, "spec": asdict(setup.spec)}
    return digest(identity | ({"reference": reference} if reference else {}))


def embed_stages(setup: Setup) -> Stages[Stats]:
    """Stages of a run: products, factor, Ritz step, vectors, smoothing.

    Returns ``rank``, ``factor_method`` and ``certificate``.
    """
    powers = yield from sketch_stages(setup)
    factor = Factor(
        name="factor",
        sketch=powers.last,
        work=setup.work / "factor",
        out=setup.folder / "factor",
        dim=setup.spec.dim,
        tiling=setup.wide,
        trusted=TRUSTED,
        likely_condition=powers.condition,
    )
    solved = yield from factor_stages(setup, factor)
    certificate = yield from vectors_stages(setup, powers)
    return {"rank": solved["rank"], "factor_method": solved["method"], "certificate": certificate}


def vectors_stages(setup: Setup, powers: Powers) -> Stages[dict[str, Any] | None]:
    """What comes after the factor; returns the certificate, where there is one."""
    certificate = None
    if setup.spec.certified:
        certificate = yield from ritz_stages(setup, powers)
    yield vectors_stage(setup, powers, Steps(setup).outputs(0))
    yield from smooth_stages(setup)
    return certificate


def describe_run(setup: Setup, facts: Stats, started: float) -> dict[str, Any]:
    """What the manifest says of a run, besides its stages."""
    spec, graph = setup.spec, setup.graph
    values = load_zarr(setup.folder / "factor" / "singular_values")
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
        "singular_values": [float(value) for value in values[: spec.dim]],
        "created": round(started, 3),
        "seconds": round(time.time() - started, 3),
        "versions": {name: version(name) for name in _VERSIONS},
    }
