"""Vectors with their ids in the forms of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from figrl.errors import ResourceError
from figrl.serve.embedding import Embedding
from figrl.serve.export import vectors_schema
from figrl.store.arrays import open_zarr
from figrl.store.matrix import Floats
from figrl.units import human_bytes


def check_fits(embedding: Embedding) -> None:
    """Refuse vectors that this process has no memory for."""
    needed = 4 * embedding.graph.nodes * embedding.dim
    free = int(psutil.virtual_memory().available)
    if needed > free:
        raise ResourceError(
            f"All vectors take {human_bytes(needed)}, and {human_bytes(free)} of memory are free. "
            "Use .vectors (a lazy array), .to_dask(), .lookup(ids), or figrl.export."
        )


def vectors_between(embedding: Embedding, start: int, stop: int) -> Floats:
    """Vectors of consecutive rows."""
    return np.asarray(open_zarr(embedding.path / "embedding")[start:stop])


def table_of(embedding: Embedding) -> pa.Table:
    """All vectors as exported: ``id``, ``side`` where there are sides, ``vector``."""
    check_fits(embedding)
    graph, dim = embedding.graph, embedding.dim
    flat = pa.array(vectors_between(embedding, 0, graph.nodes).reshape(-1))
    names = graph.node_columns(0, graph.nodes)
    column = pa.FixedSizeListArray.from_arrays(flat, dim)
    return pa.table([*names, column], vectors_schema(graph, dim).remove_metadata())


def frame_between(embedding: Embedding, start: int, stop: int) -> Any:
    """Vectors of consecutive rows as a frame of pandas; the names of the nodes are its index."""
    names = embedding.graph.node_columns(start, stop)
    columns = dict(zip(embedding.graph.node_fields, names, strict=True))
    return indexed_frame(columns, vectors_between(embedding, start, stop))


def indexed_frame(names: dict[str, pa.Array], vectors: Floats) -> Any:
    """Vectors as a frame of pandas with columns 0, 1, ..., named by ``id`` and ``side``."""
    import pandas as pd

    columns = {name: values.to_pandas() for name, values in names.items()}
    if len(columns) == 1:
        index = pd.Index(columns["id"], name="id")
    else:
        index = pd.MultiIndex.from_arrays(list(columns.values()), names=list(columns))
    return pd.DataFrame(vectors, index=index)


def dask_frame(embedding: Embedding) -> Any:
    """A lazy frame of Dask; columns ``id``, ``side`` where there are sides, 0, 1, ..."""
    import dask.dataframe as dd

    step, nodes = embedding.chunk_rows, embedding.graph.nodes
    starts = list(range(0, nodes, step))
    meta = _flat_frame(0, embedding, 1).iloc[:0]
    return dd.from_map(_flat_frame, starts, embedding=embedding, step=step, meta=meta)


def _flat_frame(start: int, embedding: Embedding, step: int) -> Any:
    stop = min(start + step, embedding.graph.nodes)
    frame = frame_between(embedding, start, stop).reset_index()
    frame.columns = [str(name) for name in frame.columns]
    return frame


def xarray_of(embedding: Embedding) -> Any:
    """A lazy DataArray: node x dimension, with ids as coordinates."""
    try:
        import xarray as xr
    except ImportError as error:
        raise ImportError("to_xarray needs xarray: pip install 'figrl[notebook]'") from error
    graph = embedding.graph
    names = graph.node_columns(0, graph.nodes)
    coords = {
        name: ("node", values.to_numpy(zero_copy_only=False))
        for name, values in zip(graph.node_fields, names, strict=True)
    }
    return xr.DataArray(embedding.vectors, dims=("node", "dimension"), coords=coords, name="vector")
