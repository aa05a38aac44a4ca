"""figrl: node embeddings for graphs larger than memory, on Dask.

from pipeline import ingest, embed, fold_in, open_store

ingest("edges/", store="store")
vectors = embed("store", dim=64).vectors        # a lazy dask.array
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.api import embed, ingest
    from pipeline.graph import Graph
    from pipeline.nightly import run_reindex
    from pipeline.serve.calls import export, neighbors
    from pipeline.serve.embedding import Embedding, StoreView, open_store
    from pipeline.serve.fold_calls import FoldedNodes, fold_in
    from pipeline.study.cluster_calls import find_clusters
    from pipeline.study.hole_calls import find_holes

__all__ = [
    "Embedding",
    "FoldedNodes",
    "Graph",
    "StoreView",
    "embed",
    "export",
    "find_clusters",
    "find_holes",
    "fold_in",
    "ingest",
    "neighbors",
    "open_store",
    "run_reindex",
]

_HOMES = {
    "api": ("embed", "ingest"),
    "graph": ("Graph",),
    "nightly": ("run_reindex",),
    "serve.calls": ("export", "neighbors"),
    "serve.fold_calls": ("FoldedNodes", "fold_in"),
    "study.cluster_calls": ("find_clusters",),
    "study.hole_calls": ("find_holes",),
    "serve.embedding": ("Embedding", "StoreView", "open_store"),
}

# A room has the name of a call. Were it imported later, its name would hide the call's.
import_module("pipeline.ingest")
del globals()["ingest"]


def __getattr__(name: str) -> object:
    """Import a call when it is asked for: a worker loads only the room that its task is in."""
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"pipeline.{home}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
