"""figrl: node embeddings for graphs larger than memory, on Dask.

Examples
--------
>>> import figrl
>>> run = figrl.embed([(1, 2), (2, 3), (3, 1), (3, 4)], dim=2)
>>> run.vectors.shape
(4, 2)
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figrl.analyze.clusters import find_clusters
    from figrl.analyze.holes import find_holes
    from figrl.api.calls import embed, fold_in, ingest
    from figrl.api.embedding import Embedding, StoreView, open_store
    from figrl.api.estimator import FIGRL
    from figrl.api.folding import FoldedNodes
    from figrl.nightly.reindex import run_reindex
    from figrl.serve.compare import Comparison
    from figrl.serve.export import export
    from figrl.serve.neighbors import neighbors
    from figrl.serve.verify import verify
    from figrl.store.graph import Graph

__all__ = [
    "FIGRL",
    "Comparison",
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
    "verify",
]

__version__ = metadata.version("figrl")

_MODULES = {
    "analyze.clusters": ("find_clusters",),
    "analyze.holes": ("find_holes",),
    "api.calls": ("embed", "fold_in", "ingest"),
    "api.embedding": ("Embedding", "StoreView", "open_store"),
    "api.estimator": ("FIGRL",),
    "api.folding": ("FoldedNodes",),
    "nightly.reindex": ("run_reindex",),
    "serve.compare": ("Comparison",),
    "serve.export": ("export",),
    "serve.neighbors": ("neighbors",),
    "serve.verify": ("verify",),
    "store.graph": ("Graph",),
}

_JOBS_CALL_THEM = ("export", "find_clusters", "find_holes", "neighbors", "verify")
"""Calls that the command shares: from Python, their errors name arguments."""


def __getattr__(name: str) -> Any:
    """Import a call when it is first used: a worker loads only the room of its task."""
    for module, names in _MODULES.items():
        if name in names:
            found = getattr(import_module(f"figrl.{module}"), name)
            if name in _JOBS_CALL_THEM:
                return import_module("figrl.api.words").in_python(found)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
