"""figrl: node embeddings for graphs larger than memory, on Dask.

from pipeline import ingest, embed, fold_in, open_store

ingest("edges/", store="store")
vectors = embed("store", dim=64).vectors        # a lazy dask.array
"""

from pipeline.api import embed, ingest
from pipeline.graph import Graph
from pipeline.serve.calls import FoldedNodes, export, fold_in
from pipeline.serve.embedding import Embedding, StoreView, open_store

__all__ = [
    "Embedding",
    "FoldedNodes",
    "Graph",
    "StoreView",
    "embed",
    "export",
    "fold_in",
    "ingest",
    "open_store",
]
