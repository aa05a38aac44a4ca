"""figrl: node embeddings for graphs larger than memory, on Dask.

Examples
--------
>>> import figrl
>>> figrl.ingest("edges/", store="store")  # doctest: +SKIP
>>> figrl.embed("store", dim=64).vectors  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figrl.analyze.clusters import find_clusters
    from figrl.analyze.holes import find_holes
    from figrl.api import embed, ingest
    from figrl.nightly.reindex import run_reindex
    from figrl.serve.embedding import Embedding, StoreView, open_store
    from figrl.serve.export import export
    from figrl.serve.fold_in import FoldedNodes, fold_in
    from figrl.serve.neighbors import neighbors
    from figrl.store.graph import Graph

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
    "verify",
]

__version__ = metadata.version("figrl")

_MODULES = {
    "analyze.clusters": ("find_clusters",),
    "analyze.holes": ("find_holes",),
    "api": ("embed", "ingest"),
    "nightly.reindex": ("run_reindex",),
    "serve.export": ("export",),
    "serve.embedding": ("Embedding", "StoreView", "open_store"),
    "serve.fold_in": ("FoldedNodes", "fold_in"),
    "serve.neighbors": ("neighbors",),
    "serve.verify": ("verify",),
    "store.graph": ("Graph",),
}


def __getattr__(name: str) -> Any:
    """Import a call when it is first used: a worker loads only the room of its task."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"figrl.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
